"""What campaigns need at a Prefect server: automations, block types and the work pool; and runs that were cut off."""

from __future__ import annotations

from pathlib import Path

from flows.server import automations
from flows.server.api import Api
from flows.server.server_process import credentials, used
from tasks.store.campaign_lock import holder, is_running
from tasks.store.ledger import ended, readable

POOL = "trainers"
"""The work pool of every deployment in prefect.yaml."""
AUTORESUME = "autoresume"
"""The tag of runs that are to be resumed."""


def set_up(url: str, home: Path) -> dict[str, str]:
    """Put all of it on a server, and say what was written. It changes nothing twice."""
    from blocks.endpoint import TrainingEndpoint
    from blocks.llm import LLM

    blocks, auth = (LLM, TrainingEndpoint), credentials(url, home)
    with used(url, home):
        for block in blocks:  # so that the page Blocks offers its form
            block.register_type_and_schema()
    return {
        "automations": ", ".join(automations.put(url, auth)) or "up to date",
        "blocks": ", ".join(str(block.get_block_type_slug()) for block in blocks),
        "pool": f"{POOL} {'made' if make_pool(url, auth) else 'is there'}",
    }


def make_pool(url: str, auth: tuple[str, str] | None) -> bool:
    """Make the pool, for process workers; False where there is one of that name."""
    from prefect.workers.process import ProcessWorker

    with Api(url, auth) as api:
        if api.ask("POST", "/work_pools/filter", {"work_pools": {"name": {"any_": [POOL]}}}):
            return False
        template = ProcessWorker.get_default_base_job_template()
        api.ask("POST", "/work_pools/", {"name": POOL, "type": "process", "base_job_template": template})
        return True


def resume_cut_off(url: str, auth: tuple[str, str] | None) -> list[str]:
    """Resume the runs of campaigns that nobody runs and that have not ended, if the automation is on; their names.

    The net below the automations, for a run that died while the server was away, and for one whose event was lost, as
    happens on SQLite under load (benchmarks/prefect_faults.py). Runs of terminals are marked Crashed, and those that a
    person was cancelling Cancelled.
    """
    cut_off = [ledger for ledger in readable() if not is_running(ledger) and not ended(ledger)]
    ids = [run_id for ledger in cut_off if (run_id := holder(ledger).get("flow_run_id"))]
    with Api(url, auth) as api:
        runs = api.ask("POST", "/flow_runs/filter", {"flow_runs": {"id": {"any_": ids}}}) if ids else []
        automation = automations.stored(api, automations.RESUME)
        is_off = automation is not None and not automation["enabled"]
        resumed = []
        for run in runs:
            kind = run["state_type"]
            if kind in ("RUNNING", "CRASHED") and AUTORESUME in run["tags"] and not is_off:
                state = {"type": "SCHEDULED", "name": "AwaitingRetry", "message": "Its process is gone; it is resumed."}
                resumed.append(str(run["name"]))
            elif kind in ("RUNNING", "CANCELLING"):
                end = "Crashed" if kind == "RUNNING" else "Cancelled"
                state = {"type": end.upper(), "name": end, "message": "Its process is gone."}
            else:
                continue
            api.ask("POST", f"/flow_runs/{run['id']}/set_state", {"state": state, "force": True})
    return resumed

"""Campaigns of this home that were cut off while no Prefect server heard of it, as by a reboot.

A run whose process dies is marked Crashed and resumed by the server's automations (automations.yaml). This is the net
below them: for a run that died while the server was away, and for one whose event was lost, as happens on SQLite under
load (benchmarks/prefect_faults.py).
"""

from __future__ import annotations

from flows.server import automations
from flows.server.api import Api
from tasks.store.campaign_lock import holder, is_running
from tasks.store.ledger import ended, readable

AUTORESUME = "autoresume"
"""The tag of runs that are to be resumed."""


def resume_cut_off(url: str, auth: tuple[str, str] | None) -> list[str]:
    """Resume the runs of campaigns that nobody runs and that have not ended, if the automation is on; their names.

    Runs of terminals are marked Crashed, and those that a person was cancelling Cancelled.
    """
    cut_off = [ledger for ledger in readable() if not is_running(ledger) and not ended(ledger)]
    ids = [run_id for ledger in cut_off if (run_id := holder(ledger).get("flow_run_id"))]
    with Api(url, auth) as api:
        runs = api.ask("POST", "/flow_runs/filter", {"flow_runs": {"id": {"any_": ids}}}) if ids else []
        is_off = bool(runs) and automations.is_off(api, automations.RESUME)
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

"""What campaigns need at a Prefect server: automations, block types and the work pool; and runs that were cut off."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from flows.server.server_process import BUSY_RETRIES, impatient_client
from tasks.store.campaign_lock import holder, is_running
from tasks.store.ledger import ended, readable

AUTOMATIONS = Path(__file__).with_name("automations.yaml")
"""Those that resume crashed runs and tell of their ends."""
TOLD = {
    "block_documents": {"name": {"any_": ["nightshift"]}},
    "block_schemas": {"block_capabilities": {"all_": ["notify"]}},
}
"""The blocks that each message goes to, as Prefect's API filters them."""
SILENT, RESUME = "nightshift-silent", "nightshift-resume"
"""Names of automations: a silent run is marked Crashed; a crashed run is resumed."""
POOL = "trainers"
"""The work pool of every deployment in prefect.yaml."""
AUTORESUME = "autoresume"
"""The tag of runs that are to be resumed."""


def set_up() -> None:
    """Put all of it on the server. It changes nothing twice."""
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectAlreadyExists

    from blocks.llm import LLM

    LLM.register_type_and_schema()  # so that the page Blocks offers its form
    put_automations()
    with impatient_client(retries=BUSY_RETRIES) as client, suppress(ObjectAlreadyExists):
        client.create_work_pool(WorkPoolCreate(name=POOL, type="process"))


def put_automations() -> list[str]:
    """Create or update the automations of the file on the server; the names of those that were written.

    One that was switched off stays off. An update forgets which runs an automation was waiting for, so only those that
    differ are written.
    """
    import yaml  # type: ignore[import-untyped]  # comes with Prefect
    from prefect.events.schemas.automations import AutomationCore

    written = []
    with impatient_client(retries=BUSY_RETRIES) as client:
        blocks = client.request("POST", "/block_documents/filter", json=TOLD).json()
        ids = sorted(block["id"] for block in blocks)
        for each in yaml.safe_load(AUTOMATIONS.read_text())["automations"]:
            name, (action,) = each["name"], each["actions"]
            if action["type"] == "send-notification":
                each["actions"] = [{**action, "block_document_id": block} for block in ids]
            before = client.read_automations_by_name(name)
            wanted = AutomationCore(**each, tags=["nightshift"], enabled=before[0].enabled if before else True)
            if not wanted.actions or (before and AutomationCore(**before[0].model_dump()) == wanted):
                continue
            if before:
                client.update_automation(before[0].id, wanted)
            else:
                client.create_automation(wanted)
            written.append(name)
    return written


def resume_cut_off() -> list[str]:
    """Resume the runs of campaigns that nobody runs and that have not ended, if the automation is on; their names.

    The net below the automations, for a run that died while the server was away, and for one whose event was lost, as
    happens on SQLite under load (seen with Prefect 3.8.8). Runs of terminals are marked Crashed, and those that a
    person was cancelling Cancelled.
    """
    from prefect.client.schemas.filters import FlowRunFilter
    from prefect.states import AwaitingRetry, Cancelled, Crashed

    cut_off = [ledger for ledger in readable() if not is_running(ledger) and not ended(ledger)]
    ids = [run_id for ledger in cut_off if (run_id := holder(ledger).get("flow_run_id"))]
    resumed = []
    with impatient_client(retries=BUSY_RETRIES) as client:
        is_off = any(not one.enabled for one in client.read_automations_by_name(RESUME))
        these = FlowRunFilter.model_validate({"id": {"any_": ids}})
        for run in client.read_flow_runs(flow_run_filter=these) if ids else ():
            kind = run.state_type
            if kind in ("RUNNING", "CRASHED") and AUTORESUME in run.tags and not is_off:
                client.set_flow_run_state(
                    run.id, AwaitingRetry(message="Its process is gone; it is resumed."), force=True
                )
                resumed.append(run.name)
            elif kind in ("RUNNING", "CANCELLING"):
                end = Crashed if kind == "RUNNING" else Cancelled
                client.set_flow_run_state(run.id, end(message="Its process is gone."), force=True)
    return resumed

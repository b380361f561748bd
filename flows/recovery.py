"""Recovery: what an earlier life left at the Prefect server when it was killed."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from prefect import State
from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectNotFound
from prefect.states import Crashed

from tasks.ledger import Ledger


def crash_the_dead(ledger: Ledger, own: str | None) -> None:
    """Mark the flow runs of earlier lives Crashed where the server still shows them as running.

    Whoever calls this holds the campaign's lock, so they are dead. A server that does not know one is another server.
    """
    lives = [event for event in ledger.events() if event["event"] == "life" and event.get("flow_run_id")]
    with get_client(sync_client=True) as client:
        for flow_run_id in {life["flow_run_id"] for life in lives} - {own}:
            try:
                run = client.read_flow_run(UUID(flow_run_id))
            except ObjectNotFound:
                continue
            if run.state is not None and not run.state.is_final():
                ended: State[Any] = Crashed(
                    message="its process was killed; the campaign goes on in another run"
                )
                client.set_flow_run_state(run.id, ended, force=True)

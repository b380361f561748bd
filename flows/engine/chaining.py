"""One campaign in several flow runs: each does a chunk of trials, so that none outgrows what Prefect's pages show.

A run that has done its share ends as Completed, under the name Continued, without a certificate and without an `end`
in the ledger; the next one takes the campaign up as after any other death. From the terminal the command calls the
flow once more (flows/cli/running/flow_run.py); a run of a deployment schedules the next run of that deployment.

That it hands over is noted first, so a run that is killed on the way and resumed does not go on itself: it schedules
the next run again, under the same key, which makes no second one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from tasks.store.ledger import Ledger

if TYPE_CHECKING:
    from prefect import State

    from flows.spec.campaign_spec import CampaignSpec

CHUNK = 100
"""Trials of one flow run. Another life replays those of the newest chunk, a seventh of a second of a core each, and
reads the others from their files."""
NAME = "Continued"
"""What the state of a run is called that has handed over."""


def begun(finished: int) -> int:
    """How many of so many finished trials belong to earlier chunks."""
    return finished // CHUNK * CHUNK


def full(finished: int) -> int:
    """How many decided trials there are when the chunk is done that a campaign with so many is in."""
    return begun(finished) + CHUNK


def has_handed_over(ledger: Ledger, own: str | None) -> bool:
    """Whether this flow run has done its share, in an earlier life."""
    return own is not None and any(
        event["event"] == "continued" and event["flow_run_id"] == own for event in ledger.events()
    )


def hand_over(spec: CampaignSpec, ledger: Ledger, trials: int) -> State[str]:
    """Note that the campaign goes on in another run after so many decided trials, and see to that run."""
    from prefect import runtime
    from prefect.states import Completed

    if not has_handed_over(ledger, runtime.flow_run.id):
        ledger.event("continued", flow_run_id=runtime.flow_run.id, trials=trials)
    if runtime.deployment.id:
        _schedule(spec, ledger, runtime.deployment.id)
    return Completed(name=NAME, message=f"{spec.name}: goes on in another run", data=spec.name)


def goes_on(ending: State[str]) -> bool:
    """Whether a run has ended so that another one is to follow."""
    return ending.is_completed() and ending.name == NAME


def _schedule(spec: CampaignSpec, ledger: Ledger, deployment: str) -> None:
    """The next run of the deployment. Its parameters are the spec's: there `until` is a date, and the name is given."""
    from prefect import runtime
    from prefect.client.orchestration import get_client

    key = f"{ledger.campaign.campaign_id}/after/{runtime.flow_run.id}"
    with get_client(sync_client=True) as client:
        client.create_flow_run_from_deployment(
            UUID(deployment), parameters=spec.model_dump(mode="json"), idempotency_key=key
        )

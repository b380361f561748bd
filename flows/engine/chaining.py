"""Chaining: a long campaign is split into several flow runs of CHUNK trials, so that Prefect's pages stay readable.

A flow run that has done its chunk ends as Completed, named Continued, without a certificate and without an `end`
event. The next flow run resumes the campaign. From the terminal, the command calls the flow again
(flows/cli/running/flow_run.py); a run of a deployment schedules the next run of that deployment.

The hand-over is recorded first. A run that is killed during it and resumed schedules the next run again, under the
same idempotency key, which creates no second one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from flows.spec import form
from tasks.store.ledger import Ledger

if TYPE_CHECKING:
    from prefect import State

    from flows.spec.campaign_spec import CampaignSpec

CHUNK = 100
"""Trials per flow run, where up to five run at once."""
WIDTH = 4
"""Of more at once, each so many have a CHUNK: at its end the slots run empty, for up to the time of a trial."""
REPLAYED = 10
"""Finished trials of its chunk, the newest, that a resumed flow run shows again as Cached: each takes 0.15 core
seconds."""
NAME = "Continued"
"""Name of the Prefect state of a flow run that has handed over."""


def size(parallel: int) -> int:
    """Trials per flow run, given how many run at once."""
    return CHUNK * max(round(parallel / WIDTH), 1)


def begun(finished: int, parallel: int = 1) -> int:
    """Trials of earlier chunks, given the number of finished trials."""
    return finished // size(parallel) * size(parallel)


def shown_before(finished: int, parallel: int = 1) -> int:
    """Finished trials that a flow run does not show, given the number of finished trials."""
    return max(begun(finished, parallel), finished - REPLAYED)


def full(finished: int, parallel: int = 1) -> int:
    """Decided trials at which the current chunk is full, given the number of finished trials."""
    return begun(finished, parallel) + size(parallel)


def has_handed_over(ledger: Ledger, own: str | None) -> bool:
    """Whether this flow run handed over before it was killed."""
    return own is not None and any(
        event["event"] == "continued" and event["flow_run_id"] == own for event in ledger.events()
    )


def hand_over(spec: CampaignSpec, ledger: Ledger, trials: int) -> State[str]:
    """Record that the campaign continues in another flow run after `trials` decided trials.

    A deployment's next run is scheduled, with the spec's own parameters: `until` is a date there, and the name is set.
    """
    from prefect import runtime
    from prefect.client.orchestration import get_client
    from prefect.states import Completed

    from flows.engine.recovery import wait_for_the_server

    if not has_handed_over(ledger, runtime.flow_run.id):
        ledger.event("continued", flow_run_id=runtime.flow_run.id, trials=trials)
    if runtime.deployment.id:
        wait_for_the_server(ledger)
        key = f"{ledger.campaign.campaign_id}/after/{runtime.flow_run.id}"
        with get_client(sync_client=True) as client:
            client.create_flow_run_from_deployment(
                UUID(runtime.deployment.id), parameters=form.parameters(spec), idempotency_key=key
            )
    return Completed(name=NAME, message=f"{spec.name}: goes on in another run", data=spec.name)


def goes_on(ending: State[str]) -> bool:
    """Whether a flow run ended by handing over to another."""
    return ending.is_completed() and ending.name == NAME

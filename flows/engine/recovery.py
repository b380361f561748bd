"""What a flow run says to the Prefect server of its own end, and of runs that were killed.

A killed run is resumed by the server (automations.yaml), as the same flow run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import UUID

import httpx
from prefect import State, runtime
from prefect.client.schemas.filters import FlowRunFilter, TaskRunFilter
from prefect.exceptions import Abort, ObjectNotFound, Pause, PrefectHTTPStatusError, TerminationSignal
from prefect.states import Cancelled, Crashed

from flows.server.server_process import BUSY_RETRIES, impatient_client
from flows.server.setup import AUTORESUME
from tasks.store.ledger import Ledger
from tasks.system.interrupt import StoppedForGood

AWAY = (httpx.HTTPError, ObjectNotFound, PrefectHTTPStatusError)
ENDED = "ended by a person; Retry, or `nightshift resume`, goes on, and trains again only what was under way"


@contextmanager
def cancellable() -> Iterator[None]:
    """Let a flow that a person cancels or stops end as Cancelled, and not as Crashed, which would be resumed.

    A worker ends the process by SIGTERM, and writes Cancelled itself once that has ended. A run without one, such as of
    a terminal, writes it here, and Abort ends the flow without another state. A pause is said once more, after the last
    heartbeat: else its silence would be taken for a death.
    """
    try:
        yield
    except Pause as paused:
        said: State[Any] = paused.state  # type: ignore[assignment]  # see heed_the_server
        with suppress(*AWAY), impatient_client(BUSY_RETRIES) as client:
            client.set_flow_run_state(UUID(str(runtime.flow_run.id)), said.fresh_copy(), force=True)
        raise
    except (KeyboardInterrupt, TerminationSignal) as ending:
        with suppress(*AWAY), impatient_client(BUSY_RETRIES) as client:
            run = client.read_flow_run(UUID(str(runtime.flow_run.id)))
            state = run.state
            is_asked = state is not None and (_is_called_off(state) or state.is_paused())
            if isinstance(ending, StoppedForGood) or (is_asked and runtime.deployment.id is None):
                cancelled: State[Any] = Cancelled(message=ENDED)
                client.set_flow_run_state(run.id, cancelled, force=True)
                raise Abort(ENDED) from ending
            if is_asked:
                raise Abort(ENDED) from ending
        raise


def heed_the_server() -> Pause | None:
    """The pause, after which Resume goes on, that a person has asked for meanwhile; None without one.

    Raises:
        KeyboardInterrupt: it was cancelled, and no worker ends it; its pause took too long, which is Failed; or it was
            paused without a deployment, so that nobody could resume it.
    """
    with suppress(*AWAY), impatient_client() as client:  # no trial waits for a server that is away
        state = client.read_flow_run(UUID(str(runtime.flow_run.id))).state
        if state is not None and state.is_paused() and runtime.deployment.id:
            return Pause(state=state)
        if state is not None and (state.is_paused() or _is_called_off(state)):
            raise KeyboardInterrupt
    return None


def _is_called_off(state: State[Any]) -> bool:
    return state.is_cancelling() or state.is_cancelled() or state.is_failed()


def crash_earlier_runs(ledger: Ledger, own: str | None) -> None:
    """Mark flow runs of earlier lives, and all their task runs, Crashed, where they still seem to run.

    The caller holds the campaign's lock and has begun no task yet, so they are dead. Runs that this server does not
    know are none of its results.
    """
    lives = {event["flow_run_id"] for event in ledger.events() if event["event"] == "life" and event.get("flow_run_id")}
    runs = FlowRunFilter.model_validate({"id": {"any_": [*lives]}})
    under_way = TaskRunFilter.model_validate({"state": {"type": {"any_": ["PENDING", "RUNNING"]}}})
    with impatient_client(BUSY_RETRIES) as client:
        for task_run in client.read_task_runs(flow_run_filter=runs, task_run_filter=under_way):
            client.set_task_run_state(task_run.id, Crashed(message="its process was killed"), force=True)
        for run in client.read_flow_runs(flow_run_filter=runs):
            if str(run.id) != own and run.state is not None and not run.state.is_final():
                # Crashed, it would be resumed beside this one; Cancelled, its runs on other machines end, too.
                end = Cancelled if AUTORESUME in run.tags or run.state.is_cancelling() else Crashed
                ended: State[Any] = end(message="its process was killed; the campaign goes on in another run")
                client.set_flow_run_state(run.id, ended, force=True)

"""Cancel, Pause and signals: a flow run that a person ends in the Prefect UI stays ended, and the report says so.

The worker ends the process by SIGTERM. A campaign defers signals (tasks/system/interrupt.py), so Prefect's engine
would report a crash, by force, over Cancelling, and the automation nightshift-resume would resume the run. Heartbeats
that follow a Pause would have nightshift-silent mark it Crashed. So the flow itself answers: the last state that a
person has set counts, whatever came after it. It is looked up where the flow is interrupted, and where a run begins
again. `presence` (flows/engine/recovery.py) looks too, for runs that no worker watches.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from uuid import UUID

import httpx
from prefect import State, runtime
from prefect.client.orchestration import get_client
from prefect.exceptions import Abort, ObjectNotFound, Pause, PrefectHTTPStatusError, TerminationSignal
from prefect.states import Cancelled, Suspended

from flows.report.write import write_report
from flows.server.automations import RESUMED_MESSAGES
from tasks.store import campaign_lock
from tasks.store.ledger import Ledger
from tasks.system.interrupt import StoppedForGood

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

RESUMES = ("AwaitingRetry", "Resuming", "Scheduled")
"""Names of states by which a person has a run begin again."""
MESSAGE = "ended by a person; Retry, or `nightshift resume`, goes on, and trains again only what was under way"


@contextmanager
def cancellable() -> Iterator[None]:
    """Let a flow that a person cancels, pauses or stops within the block end in that state, and not as Crashed.

    Raises:
        Abort, Pause: which end the flow; the server has the state already.
    """
    if (runtime.flow_run.run_count or 0) > 1:
        _end_as_asked()
    try:
        yield
    except StoppedForGood:
        _end_as_asked(stopped=True)
        raise
    except (KeyboardInterrupt, TerminationSignal, Pause):
        _end_as_asked()
        raise


@contextmanager
def reported(ledger: Ledger) -> Iterator[None]:
    """Write the report once more if the block is cut off: the last one was written while the campaign ran.

    The block holds the campaign's lock, and sets the state that a person has asked for, so the report delays neither.
    Where another process runs the campaign, that one writes it.
    """
    try:
        yield
    except BaseException:
        _write_the_last(ledger)
        raise


def _write_the_last(ledger: Ledger) -> None:
    """Write the report of a campaign that has begun and is over; no fault of it changes how the run ended."""
    try:
        if ledger.history() and not campaign_lock.is_running(ledger):
            write_report(ledger)
    except Exception as fault:  # noqa: BLE001 (see above)
        with suppress(OSError):  # a full disk has no room for that either
            ledger.event("view", failed="report", error=f"{type(fault).__name__}: {fault}")


def last_asked(client: SyncPrefectClient, flow_run_id: UUID) -> State[Any] | None:
    """The state by which a person cancelled or paused a run; None if there is none, or it was to go on since."""
    asked: State[Any] | None = None
    for state in sorted(client.read_flow_run_states(flow_run_id), key=lambda state: state.timestamp):
        if state.is_cancelling() or state.is_cancelled() or state.is_paused():
            asked = state
        elif state.name in RESUMES and state.message not in RESUMED_MESSAGES:
            asked = None
    return asked


def _end_as_asked(stopped: bool = False) -> None:
    """End the flow if a person asked for it; `stopped`: in another way than at the Prefect server.

    A server that does not answer is told nothing. A pause is set once more, as the last word after all heartbeats.
    """
    own = UUID(str(runtime.flow_run.id))
    try:
        with get_client(sync_client=True, httpx_settings={"timeout": 10}) as client:
            asked = last_asked(client, own)
            if asked is None and not stopped:
                return
            # Without a deployment there is no Resume.
            if asked and asked.is_paused() and not stopped and runtime.deployment.id:
                until = asked.state_details.pause_timeout
                paused: State[Any] = Suspended(pause_expiration_time=until, message="Resume goes on")
                client.set_flow_run_state(own, paused, force=True)
                raise Pause(state=paused)
            cancelled: State[Any] = Cancelled(message=MESSAGE)
            client.set_flow_run_state(own, cancelled, force=True)
            raise Abort(MESSAGE)
    except (httpx.HTTPError, ObjectNotFound, PrefectHTTPStatusError):
        return

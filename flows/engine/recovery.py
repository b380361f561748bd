"""Recovery: flow runs that earlier processes of a campaign left at the Prefect server, and limits of automatic
resuming.

A killed run is resumed by the server (automations.yaml), as the same flow run. After an outage the server may resume
a run that is still alive: then the second process waits for the first, and the first reports that it is alive. A run
that dies repeatedly without progress ends as Failed.
"""

from __future__ import annotations

import contextvars
import threading
from types import TracebackType
from typing import Any
from uuid import UUID

import httpx
from prefect import State
from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.states import Crashed, Running

from environments.plugins import Refused
from tasks.store import life
from tasks.store.ledger import Ledger
from tasks.system import interrupt

DEATHS = 10
"""Consecutive processes of one flow run that may end without judging a single run."""
LOOK_SECONDS = 2.0
"""Interval of checks whether the other process has ended."""
LEAVE_SECONDS = 2.0
ASSERT_SECONDS = 20.0
"""Interval of checks of this run's state at the server."""


def crash_the_dead(ledger: Ledger, own: str | None) -> None:
    """Mark the flow runs of earlier processes Crashed where the server still shows them as running.

    The caller holds the campaign's lock, so they are dead. Runs that this server does not know are skipped.
    """
    with get_client(sync_client=True) as client:
        for flow_run_id in {one["flow_run_id"] for one in _lives(ledger)} - {own}:
            try:
                run = client.read_flow_run(UUID(flow_run_id))
            except ObjectNotFound:
                continue
            if run.state is not None and not run.state.is_final():
                ended: State[Any] = Crashed(
                    message="its process was killed; the campaign goes on in another run"
                )
                client.set_flow_run_state(run.id, ended, force=True)


def wait_for_the_other(ledger: Ledger, own: str | None) -> None:
    """Wait until no other process of the same flow run holds the campaign."""
    while own and life.is_running(ledger) and [one["flow_run_id"] for one in _lives(ledger)][-1:] == [own]:
        interrupt.wait(LOOK_SECONDS)


def check_progress(ledger: Ledger, own: str | None) -> None:
    """Refuse to resume a flow run whose last DEATHS processes made no progress. A manual Retry resets the count.

    Raises:
        Refused: the flow run fails with it, and a failed run is not resumed automatically.
    """
    since: list[float] = []
    for event in ledger.events():
        if event["event"] == "life" and event.get("flow_run_id") == own:
            since.append(event["time"])
        elif event["event"] == "gave up":
            since.clear()
    before = since[:-1]  # without this process
    if len(before) < DEATHS:
        return
    judged = (ledger.results / ledger.campaign.campaign_id).rglob("evaluate*")
    if any(path.stat().st_mtime > before[-DEATHS] for path in judged):
        return
    ledger.event("gave up", flow_run_id=own, deaths=DEATHS)
    raise Refused(
        f"campaign {ledger.campaign.name!r} died {DEATHS} times in a row without finishing a run, and is not "
        f"resumed any more: see its last trial (`nightshift logs {ledger.campaign.name}`) and the worker's log, mend "
        f"that, then press Retry, or `nightshift resume {ledger.campaign.name}`"
    )


class Presence:
    """Report to the Prefect server that this run is alive, within a `with` block, if the server marked it as dead.

    That can happen after an outage of the server. A run that a person cancels is left alone.
    """

    def __init__(self, own: str | None) -> None:
        self._own = own
        self._over = threading.Event()

    def __enter__(self) -> Presence:
        # Prefect's settings, such as the server's address, are context variables.
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(self._look_on,), name="presence", daemon=True
        )
        if self._own:
            self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._over.set()
        if self._own:
            self._thread.join(LEAVE_SECONDS)  # while the server is away its client retries for a minute

    def _look_on(self) -> None:
        while not self._over.wait(ASSERT_SECONDS):
            self.assert_it()

    def assert_it(self) -> bool:
        """Set the run to Running if the server marked it Crashed or AwaitingRetry; whether it was.

        An absent server is asked again at the next interval.
        """
        try:
            with get_client(sync_client=True, httpx_settings={"timeout": 10}) as client:
                run = client.read_flow_run(UUID(str(self._own)))
                if run.state is None or not (run.state.is_crashed() or run.state.name == "AwaitingRetry"):
                    return False
                lives: State[Any] = Running(
                    message="its process lives; the server had not heard of it for a while"
                )
                if self._over.is_set():
                    return False
                client.set_flow_run_state(run.id, lives, force=True)
                return True
        except (httpx.HTTPError, ObjectNotFound, PrefectHTTPStatusError):
            return False


def _lives(ledger: Ledger) -> list[dict[str, Any]]:
    return [event for event in ledger.events() if event["event"] == "life" and event.get("flow_run_id")]

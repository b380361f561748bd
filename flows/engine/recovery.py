"""Recovery: what earlier lives of a campaign left at the Prefect server, and whether another life is worth it.

A run that was killed is resumed by the server itself (automations.yaml), as the same flow run. So a run can be
resumed although it lives, when the server has not heard of it for a while: then the second process waits for the
first, and the first says that it lives. And it could be resumed for ever, so a run that dies again and again without
getting anywhere ends as Failed.
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
"""Lives of one flow run in a row that may end without a single run judged in them."""
LOOK_SECONDS = 2.0
"""Between two looks at whether the other process has ended."""
LEAVE_SECONDS = 2.0
ASSERT_SECONDS = 20.0
"""Between two looks at what the server believes of this run."""


def crash_the_dead(ledger: Ledger, own: str | None) -> None:
    """Mark the flow runs of earlier lives Crashed where the server still shows them as running.

    Whoever calls this holds the campaign's lock, so they are dead. A server that does not know one is another server.
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
    """Return when no other process of the same flow run holds the campaign; at once where there is none."""
    while own and life.is_running(ledger) and [one["flow_run_id"] for one in _lives(ledger)][-1:] == [own]:
        interrupt.wait(LOOK_SECONDS)


def check_progress(ledger: Ledger, own: str | None) -> None:
    """Refuse another life to a flow run whose last DEATHS lives got nowhere; a person's Retry begins to count anew.

    Raises:
        Refused: that is so; the flow run fails by it, and what has failed is not resumed.
    """
    since: list[float] = []
    for event in ledger.events():
        if event["event"] == "life" and event.get("flow_run_id") == own:
            since.append(event["time"])
        elif event["event"] == "gave up":
            since.clear()
    before = since[:-1]  # without the life that asks
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
    """Tell the Prefect server that a run lives, while a `with` block runs, should it take the run for dead.

    It may after an outage: the silence was the server's own. A run that a person cancels is left alone.
    """

    def __init__(self, own: str | None) -> None:
        self._own = own
        self._over = threading.Event()

    def __enter__(self) -> Presence:
        # Prefect's settings, the server's address among them, are variables of the context.
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
            self._thread.join(
                LEAVE_SECONDS
            )  # while the server is away its client goes on asking, for a minute

    def _look_on(self) -> None:
        while not self._over.wait(ASSERT_SECONDS):
            self.assert_it()

    def assert_it(self) -> bool:
        """Set the run Running if the server has taken it for dead; whether it had.

        A server that is away is asked the next time.
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

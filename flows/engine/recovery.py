"""Recovery of a campaign's flow run after a kill, and after an outage of the Prefect server.

A killed run is resumed by the server (automations.yaml), as the same flow run. After an outage the server may resume
a run that is still alive: then the second process waits for the first, and the first reports that it is alive. A run
that dies repeatedly without progress ends as Failed. During an outage a campaign goes on: tasks and results are
local, and records are sent later. Only the final state of the flow run has to reach the server.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import httpx
from prefect import State
from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.settings import PREFECT_API_URL
from prefect.states import Cancelled, Crashed, Running

from environments.plugins import Refused
from flows.engine.cancelling import last_asked
from tasks.store import campaign_lock
from tasks.store.ledger import Ledger
from tasks.system import interrupt
from tasks.system.clock import clock
from tasks.system.daemon import answers

DEATHS = 10
"""Consecutive processes of one flow run that may end without judging a single run."""
LOOK_SECONDS = 2.0
"""Interval of checks whether the other process has ended, or the server is back."""
END_SECONDS = 300.0
"""How long the end of a flow run waits for an absent server."""
LEAVE_SECONDS = 2.0
ASSERT_SECONDS = 5.0
"""Interval of checks of this run's state at the server."""


def crash_the_dead(ledger: Ledger, own: str | None) -> None:
    """Mark the flow runs of earlier processes Crashed where the server still shows them as running.

    The caller holds the campaign's lock, so they are dead. Runs that this server does not know are skipped.
    """
    with get_client(sync_client=True) as client:
        for flow_run_id in {*_flow_runs(ledger)} - {own}:
            try:
                run = client.read_flow_run(UUID(flow_run_id))
            except ObjectNotFound:
                continue
            if run.state is not None and not run.state.is_final():
                as_asked = Cancelled if run.state.is_cancelling() else Crashed
                ended: State[Any] = as_asked(message="its process was killed; the campaign goes on in another run")
                client.set_flow_run_state(run.id, ended, force=True)


def wait_for_the_other(ledger: Ledger, own: str | None) -> None:
    """Wait until no other process of the same flow run holds the campaign."""
    while own and campaign_lock.is_running(ledger) and _flow_runs(ledger)[-1:] == [own]:
        interrupt.wait(LOOK_SECONDS)


def check_progress(ledger: Ledger, own: str | None) -> None:
    """Refuse to resume a flow run whose last DEATHS processes made no progress.

    The flow run then fails, and a failed run is not resumed automatically. A manual Retry resets the count.
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


@contextmanager
def presence(own: str | None) -> Iterator[None]:
    """Within the block, follow the state of this run at the Prefect server.

    A run that a person cancelled or paused is interrupted, also where no worker watches it. One that the server took
    for dead is reported alive.
    """
    over = threading.Event()

    def look_on() -> None:
        while not over.wait(ASSERT_SECONDS):
            follow_state(own, over)

    # Prefect's settings, such as the server's address, are context variables.
    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(look_on,), name="presence", daemon=True)
    if own:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if own:
            thread.join(LEAVE_SECONDS)  # while the server is away its client retries for a minute


def follow_state(own: str | None, over: threading.Event) -> None:
    """Interrupt this process if a person cancelled or paused its run; set the run to Running if it was taken for dead.

    The latter can happen after an outage. An absent server is asked again later.
    """
    try:
        with get_client(sync_client=True, httpx_settings={"timeout": 10}) as client:
            run = client.read_flow_run(UUID(str(own)))
            if run.state is None or run.state.is_running() or over.is_set():
                return
            if last_asked(client, run.id):
                interrupt.ask()
            elif run.state.is_crashed() or run.state.name == "AwaitingRetry":
                alive: State[Any] = Running(message="its process lives; the server had not heard of it for a while")
                client.set_flow_run_state(run.id, alive, force=True)
    except (httpx.HTTPError, ObjectNotFound, PrefectHTTPStatusError, ValueError):  # the last: a proxy's page, no JSON
        return


def wait_for_the_server(ledger: Ledger) -> None:
    """Return when the Prefect server answers, or after END_SECONDS. Called at the end of a campaign.

    Prefect's engine retries for about a minute to report the final state. If it fails, it takes that for a failure of
    the flow run, and a finished campaign is shown as Failed, or as Running forever.
    """
    url, began = PREFECT_API_URL.value(), clock()
    if url is None or answers(url):
        return
    ledger.event("prefect", away="at the end", url=url)
    while not (back := answers(url)) and clock() - began < END_SECONDS:
        interrupt.wait(LOOK_SECONDS)
    ledger.event("prefect", back=back, seconds=round(clock() - began, 1))


def _flow_runs(ledger: Ledger) -> list[str]:
    """The flow run of each process of the campaign, in order."""
    lives = (event for event in ledger.events() if event["event"] == "life")
    return [event["flow_run_id"] for event in lives if event.get("flow_run_id")]

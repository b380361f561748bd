"""Cancel, Pause and `stop --now` against what else reports the end of a run: real flows on a real server."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from flows.engine.cancelling import cancellable, last_asked, reported
from tests.support.runners import prefect_at

from flows.engine.recovery import follow_state
from flows.server import automations
from flows.server.api import Api
from tasks.store.campaign_lock import CampaignLock
from tasks.system import interrupt
from tests.support.ledgers import created

RETRY = ("SCHEDULED", "AwaitingRetry", "Retry from the UI")
RESUMED, MISSED = (("SCHEDULED", "AwaitingRetry", message) for message in automations.RESUMED_MESSAGES)
CANCEL, PAUSE, CRASH = ("CANCELLING", "Cancelling", ""), ("PAUSED", "Suspended", ""), ("CRASHED", "Crashed", "")
RESUME, RUNNING = ("SCHEDULED", "Resuming", ""), ("RUNNING", "Running", "")


def set_state(server: str, run: str, kind: str, name: str, message: str = "") -> None:
    with Api(server, None) as api:
        state = {"type": kind, "name": name, "message": message}
        api.ask("POST", f"/flow_runs/{run}/set_state", {"state": state, "force": True})


def a_run(server: str, *states: tuple[str, str, str]) -> str:
    with Api(server, None) as api:
        flow = api.ask("POST", "/flows/", {"name": "campaign"})["id"]
        run = str(api.ask("POST", "/flow_runs/", {"flow_id": flow, "state": {"type": "PENDING"}})["id"])
    for state in states:
        set_state(server, run, *state)
    return run


def states_of(server: str, run: str) -> list[str]:
    with Api(server, None) as api:
        found = api.ask("GET", f"/flow_run_states/?flow_run_id={run}")
    return [state["type"] for state in sorted(found, key=lambda state: state["timestamp"])]


@pytest.mark.parametrize(
    ("then", "asked"),
    [
        ([CANCEL], "CANCELLING"),
        ([CANCEL, CRASH], "CANCELLING"),
        ([CANCEL, CRASH, RESUMED, RUNNING, CRASH, RESUMED, RUNNING], "CANCELLING"),
        ([CRASH, MISSED, CANCEL], "CANCELLED"),
        ([CANCEL, CRASH, RETRY, RUNNING], None),
        ([PAUSE, CRASH, RESUMED, RUNNING], "PAUSED"),
        ([PAUSE, RESUME, RUNNING, CRASH], None),
        ([PAUSE, CANCEL, CRASH], "CANCELLING"),
        ([CRASH, RESUMED, RUNNING], None),
    ],
)
def test_what_a_person_asked_last_counts_whatever_came_after_it(
    server: str, then: list[tuple[str, str, str]], asked: str | None
) -> None:
    from prefect.client.orchestration import get_client

    run = a_run(server, RUNNING, *then)
    with prefect_at(server), get_client(sync_client=True) as client:
        found = last_asked(client, UUID(run))
    assert (found.type.value if found else None) == asked


def test_the_automation_resumes_with_the_message_that_is_no_persons() -> None:
    (resume,) = (one for one in automations.wanted() if one["name"] == automations.RESUME)
    assert resume["actions"][0]["message"] == automations.RESUMED_MESSAGES[0]


def interrupted(server: str, state: tuple[str, str, str] | None, **hold: Any) -> tuple[str, BaseException]:
    """A flow whose run gets this state and then SIGTERM: its run, and what ended it."""
    from prefect import flow, runtime

    runs: list[str] = []

    @flow(persist_result=False)
    def night() -> None:
        runs.append(str(runtime.flow_run.id))
        with cancellable(), CampaignLock(hold["ledger"], flow_run_id=runs[0]):
            if hold.get("stop"):
                (hold["ledger"].path / "stop").touch()
            if state:
                set_state(server, runs[0], *state)
            os.kill(os.getpid(), signal.SIGTERM)
            interrupt.wait(10)

    with prefect_at(server), pytest.raises(BaseException) as ended:  # noqa: PT011 (Abort, Pause and Ctrl-C)
        night()
    return runs[0], ended.value


@pytest.mark.parametrize(
    ("state", "stop", "end"),
    [(CANCEL, False, "CANCELLED"), (PAUSE, False, "CANCELLED"), (None, True, "CANCELLED"), (None, False, "CRASHED")],
)
def test_a_flow_that_is_interrupted_ends_as_a_person_asked_and_else_as_crashed(
    server: str, tmp_path: Any, state: tuple[str, str, str] | None, stop: bool, end: str
) -> None:
    """A pause, too, where no deployment could resume it."""
    run, ended = interrupted(server, state, stop=stop, ledger=created(tmp_path))
    found = states_of(server, run)
    assert found[-1] == end
    assert ("CRASHED" in found) == (end == "CRASHED")
    assert isinstance(ended, KeyboardInterrupt) == (end == "CRASHED"), ended


def test_a_run_that_is_cancelled_without_a_worker_interrupts_itself(server: str) -> None:
    with prefect_at(server), interrupt.deferred():
        follow_state(a_run(server, RUNNING), threading.Event())
        interrupt.check()
        follow_state(a_run(server, RUNNING, CANCEL), threading.Event())
        with pytest.raises(KeyboardInterrupt):
            interrupt.check()


def test_no_fault_of_the_last_report_changes_how_a_run_ended(tmp_path: Path) -> None:
    ledger = created(tmp_path)
    ledger.place(0).path.mkdir()
    ledger.place(0).trial.write_text("damaged")
    with pytest.raises(KeyboardInterrupt), reported(ledger):
        raise KeyboardInterrupt
    assert [event["failed"] for event in ledger.events() if event["event"] == "view"] == ["report"]

    (ledger.path / "events.jsonl").unlink()
    (ledger.path / "events.jsonl").mkdir()  # as unwritable as on a full disk
    with pytest.raises(KeyboardInterrupt), reported(ledger):
        raise KeyboardInterrupt

"""How a flow run ends that a person cancels, stops or pauses, or that is killed: real flows on a real server."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from flows.engine.recovery import cancellable, crash_earlier_runs, heed_the_server
from tasks.store import campaign_lock
from tasks.store.campaign_lock import STOP
from tasks.store.ledger import Ledger
from tasks.system import interrupt
from tests.support.ledgers import created
from tests.support.prefect_api import ask, prefect_at, set_state, states_of


def interrupted(
    server: str, ledger: Ledger, state: str | None, stop: bool = False, signalled: bool = True
) -> tuple[str, BaseException]:
    """A flow whose run gets this state, and then SIGTERM or looks for itself: its run, and what ended it."""
    from prefect import flow, runtime

    runs: list[str] = []

    @flow(persist_result=False)
    def night() -> None:
        runs.append(str(runtime.flow_run.id))
        with cancellable(), campaign_lock.hold(ledger, runs[0]):
            if stop:
                (ledger.path / STOP).touch()
            if state:
                set_state(server, runs[0], type=state, name=state.title())
            if signalled:
                os.kill(os.getpid(), signal.SIGTERM)
                interrupt.wait(10)
            if pause := heed_the_server():
                raise pause

    with prefect_at(server), pytest.raises(BaseException) as ended:  # noqa: PT011 (Abort, Pause and Ctrl-C)
        night()
    return runs[0], ended.value


@pytest.mark.parametrize(
    ("state", "stop", "signalled", "deployed", "end"),
    [
        ("CANCELLING", False, True, False, "CANCELLED"),
        ("CANCELLING", False, False, False, "CANCELLED"),
        ("PAUSED", False, False, False, "CANCELLED"),  # nobody could resume it
        (None, True, True, False, "CANCELLED"),  # `stop --now`
        (None, False, True, False, "CRASHED"),
        ("CANCELLING", False, True, True, "CANCELLING"),  # its worker writes the end
        ("PAUSED", False, False, True, "PAUSED"),
        ("FAILED", False, False, True, "FAILED"),  # a pause that took too long
    ],
)
def test_a_run_ends_as_a_person_asked_and_else_as_crashed(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str | None, stop: bool, signalled: bool,
    deployed: bool, end: str,
) -> None:  # fmt: skip
    if deployed:  # as Prefect's runtime has it in a run of a deployment
        monkeypatch.setenv("PREFECT__RUNTIME__DEPLOYMENT__ID", "00000000-0000-0000-0000-000000000001")
    run, ended = interrupted(server, created(tmp_path), state, stop, signalled)
    states = states_of(server, run)
    assert states[-1] == end and ("CRASHED" in states) == (end == "CRASHED")
    assert isinstance(ended, KeyboardInterrupt) == (end == "CRASHED"), ended


def test_runs_of_earlier_lives_that_were_killed_end_and_no_others(server: str, ledger: Ledger) -> None:
    flow = ask("POST", f"{server}/flows/", {"name": "campaign"})["id"]
    runs = [str(ask("POST", f"{server}/flow_runs/", {"flow_id": flow})["id"]) for _ in range(5)]
    running, cancelled, done, own, stranger = runs
    for run, state in zip(runs, ("RUNNING", "CANCELLING", "COMPLETED", "RUNNING", "RUNNING"), strict=True):
        set_state(server, run, type=state, name=state.title())
    for run in (running, cancelled, done, own, "00000000-0000-0000-0000-000000000009"):  # a run of another server
        ledger.event("life", flow_run_id=run)
    task = {"flow_run_id": running, "task_key": "train", "dynamic_key": "1", "state": {"type": "RUNNING"}}
    begun = ask("POST", f"{server}/task_runs/", task)["id"]
    with prefect_at(server):
        crash_earlier_runs(ledger, own)
    assert ask("GET", f"{server}/task_runs/{begun}")["state_type"] == "CRASHED"
    ends = [states_of(server, run)[-1] for run in (running, cancelled, done, own, stranger)]
    assert ends == ["CRASHED", "CANCELLED", "COMPLETED", "RUNNING", "RUNNING"]
    for run in (own, stranger):
        set_state(server, run, type="CRASHED")

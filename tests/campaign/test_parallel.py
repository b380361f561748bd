"""Several trials at once: who waits for whom, what each is told of the others, and what ends them all."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import tasks.train
from flows.campaign import search
from tasks.store.ledger import Ledger
from tasks.system import interrupt
from tasks.trial import Run
from tests.support.ledgers import created
from tests.support.nights import on_night
from tests.support.toy import FIT, GREEDY, nightshift, quadratic

UNEVEN = "import sys, time\ntime.sleep(15 if '-3.0' in sys.argv else 0.3)\n" + FIT
"""The trainer that takes long at one end of the space, and a moment everywhere else."""
FIVE = (
    "--proposer", "grid", "--set", "proposer.points=5", "--trials", "5", "--tracking", "off",
    "--set", "budget_seconds=30", *GREEDY,
)  # fmt: skip


@pytest.mark.slow
def test_a_slow_trial_holds_nobody_up_and_proposals_know_what_is_under_way(
    tmp_path: Path, home: Path, server: str
) -> None:
    folder = quadratic(tmp_path / "quad", fit=UNEVEN)
    done = nightshift("run", str(folder), "--name", "two", "--parallel", "2", *FIVE, server=server)
    assert done.returncode == 0, done.stderr
    history = Ledger.open("two").history()
    assert sorted(trial.number for trial in history) == list(range(6)), "none lost, none doubled"
    assert [trial.order for trial in history] == list(range(6))
    by_number = {trial.number: trial for trial in history}
    slow = next(trial for trial in history if trial.proposal.params["x"] == -3.0)
    later = [by_number[number] for number in range(slow.number + 1, 6)]
    ahead = [trial for trial in later if trial.order < slow.order]
    assert len(ahead) >= 2, "it would have held them up"
    (run,) = slow.runs
    assert all(run.started < trial.runs[0].started < run.started + run.wall_seconds for trial in ahead)
    assert len({trial.proposal.params["x"] for trial in history}) == 6, "no point twice"


def test_a_fault_of_the_machine_in_one_trial_ends_the_other_at_once_and_leaves_no_verdict(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, ended, other = tasks.train.run_program, [], threading.Event()

    def faulty(marker: str, *rest: Any, **more: Any) -> Run:
        number = int(marker.split("/")[1])
        if number == 2:
            assert other.wait(60), "two train at once"
            raise OSError("no space left")
        if number:
            other.set()
        try:
            interrupt.wait(60 if number else 0)
        except KeyboardInterrupt:
            ended.append(number)
            raise
        return real(marker, *rest, **more)

    asked = {"trials": 2, "parallel": 2, "overrides": {"device": "cpu", "cores": 0}}  # two slots on one core too
    ledger = created(tmp_path, "two", rule="greedy", tracking="off", **asked)
    monkeypatch.setattr(tasks.train.train, "retries", 0)
    with monkeypatch.context() as patched:
        patched.setattr(tasks.train, "run_program", faulty)
        with pytest.raises(OSError, match="no space left"):
            on_night(server, ledger, search)
    assert ended == [1] and [trial.number for trial in ledger.history()] == [0]
    interrupt.check()  # the next campaign of this process may run
    assert on_night(server, ledger, search).state == "finished"
    assert {(trial.number, trial.attempt) for trial in ledger.history()} == {(0, 1), (1, 1), (2, 1)}


def test_a_free_place_is_left_empty_when_the_last_trial_is_under_way(tmp_path: Path, server: str) -> None:
    ledger = created(tmp_path, "one", rule="greedy", trials=1, parallel=2, tracking="off")
    assert on_night(server, ledger, search).state == "finished"
    assert [trial.number for trial in ledger.history()] == [0, 1]

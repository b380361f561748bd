"""Several trials at once: who waits for whom, what each is told of the others, and what ends them all."""

from __future__ import annotations

import json
import signal
import threading
import time
from pathlib import Path

import pytest
from flows.engine.worker_pool import WorkerPool, run_in_parallel

from tasks.store import workspace
from tasks.store.ledger import Ledger
from tasks.system import interrupt, orphans
from tasks.trial import Proposal
from tests.support.toy import FIT, GREEDY, nightshift, quadratic, start, status

NOBODY = Proposal({})
UNEVEN = "import sys, time\ntime.sleep(6 if '-3.0' in sys.argv else 0.3)\n" + FIT
"""The trainer that takes long at one end of the space, and a moment everywhere else."""
FIVE = ("--proposer", "grid", "--set", "proposer.points=5", "--trials", "5", "--tracking", "off", *GREEDY)


def test_a_crew_does_as_many_at_once_as_it_has_hands() -> None:
    meet, done = threading.Barrier(2, timeout=10), []

    def work(number: int, proposal: Proposal) -> None:
        meet.wait()
        done.append(number)

    with WorkerPool(2) as crew:
        crew.start(work, 1, NOBODY)
        assert not crew.is_full()
        crew.start(work, 2, NOBODY)
        assert crew.is_full() and not crew.is_full(resting=1) and set(crew.under_way) == {1, 2}
        while crew.under_way:
            crew.wait(10)
    assert sorted(done) == [1, 2]


def test_what_goes_wrong_in_one_ends_the_others_and_is_told() -> None:
    ended = threading.Event()

    def fails(number: int, proposal: Proposal) -> None:
        raise OSError("no space left")

    def trains(number: int, proposal: Proposal) -> None:
        try:
            while True:
                interrupt.wait(0.01)
        except KeyboardInterrupt:
            ended.set()

    def both() -> None:
        with WorkerPool(2) as crew:
            crew.start(trains, 1, NOBODY)
            crew.start(fails, 2, NOBODY)
            while True:
                crew.wait(10)

    with pytest.raises(OSError, match="no space left"):
        both()
    assert ended.is_set()
    interrupt.check()  # the next campaign of this process may run


def test_trials_that_are_called_off_end_and_others_may_begin() -> None:
    began, ended = threading.Barrier(3, timeout=10), []

    def trains(number: int, proposal: Proposal) -> None:
        began.wait()
        try:
            run_in_parallel(interrupt.wait, [(60,)] * number, number)  # in this thread, or in others
        finally:
            ended.append(number)

    with WorkerPool(2) as crew:
        crew.start(trains, 1, NOBODY)
        crew.start(trains, 2, NOBODY)
        began.wait()
        crew.call_off()
        assert sorted(ended) == [1, 2] and not crew.under_way
        interrupt.check()  # the campaign goes on
        crew.start(lambda number, proposal: interrupt.check(), 3, NOBODY)
        crew.wait(10)


def test_what_goes_wrong_in_a_trial_that_is_called_off_is_told() -> None:
    began = threading.Event()

    def fails(number: int, proposal: Proposal) -> None:
        began.set()
        raise OSError("no space left")

    with WorkerPool(1) as crew:
        crew.start(fails, 1, NOBODY)
        began.wait(10)
        with pytest.raises(OSError, match="no space left"):
            crew.call_off()


def test_side_by_side_results_come_in_the_order_of_their_calls() -> None:
    def square(number: int) -> int:
        time.sleep(0.02 * (3 - number))
        return number**2

    for hands in (1, 3):
        assert run_in_parallel(square, [(1,), (2,), (3,)], hands) == [1, 4, 9]


def test_side_by_side_ends_with_what_goes_wrong() -> None:
    begun: list[int] = []

    def one(number: int) -> None:
        begun.append(number)
        if number == 1:
            raise ValueError("the first")
        interrupt.wait(10)

    def last(number: int) -> None:
        if number == 2:
            raise ValueError("the second")
        interrupt.wait(60)

    with pytest.raises(ValueError, match="the second"):
        run_in_parallel(last, [(1,), (2,)], 2)  # which ends the first, and does not wait a minute for it

    for hands in (1, 2):
        begun.clear()
        with pytest.raises(ValueError, match="the first"):
            run_in_parallel(one, [(number,) for number in range(1, 9)], hands)
        assert len(begun) <= hands + 1
    interrupt.check()


def test_who_waits_for_a_trial_meets_what_went_wrong_in_one_of_its_runs() -> None:
    both = threading.Barrier(2, timeout=10)

    def run(number: int) -> None:
        both.wait()
        if number == 1:
            raise OSError("the slot is taken")
        try:
            interrupt.wait(60)
        finally:
            time.sleep(0.3)  # a program takes a moment to end

    def trial(number: int, proposal: Proposal) -> None:
        run_in_parallel(run, [(1,), (2,)], 2)

    def waits() -> None:
        with WorkerPool(2) as crew:
            crew.start(trial, 0, NOBODY)
            while True:
                crew.wait(0.02)

    with pytest.raises(OSError, match="the slot is taken"):
        waits()
    interrupt.check()


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
    assert all(slow.number in trial.proposal.pending for trial in ahead)
    (run,) = slow.runs
    assert all(run.started < trial.runs[0].started < run.started + run.wall_seconds for trial in ahead)
    assert len({trial.proposal.params["x"] for trial in history}) == 6, "no point twice"


def stored(home: Path, name: str) -> dict[str, str]:
    """Everything that was proposed, scored and decided, by file."""
    files = [*(home / name).glob("trials/*/trial.json"), *(home / name).glob("trials/*/proposal.json")]
    return {path.relative_to(home).as_posix(): path.read_text() for path in files}


@pytest.mark.slow
@pytest.mark.parametrize("signals", [(signal.SIGKILL,) * 3, (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)])
def test_killed_with_two_trials_under_way_a_campaign_loses_and_changes_nothing(
    tmp_path: Path, home: Path, server: str, signals: tuple[signal.Signals, ...]
) -> None:
    folder = quadratic(tmp_path / "quad", fit="import time\ntime.sleep(1)\n" + FIT)
    ends = ["run", str(folder), "--name", "two", "--parallel", "2", *FIVE]
    before: dict[str, str] = {}
    for number in signals:
        process = start(*ends, server=server)
        wanted = len(before) + 2
        while process.poll() is None and len(stored(home, "two")) < wanted:
            time.sleep(0.02)
        process.send_signal(number)
        process.communicate(timeout=60)
        now = stored(home, "two")
        assert {path: now.get(path) for path in before} == before
        before = now
        ends = ["resume", "two"]
    done = nightshift("resume", "two", server=server)
    assert done.returncode == 0, done.stderr
    now = stored(home, "two")
    assert {path: now.get(path) for path in before} == before
    assert [trial.order for trial in Ledger.open("two").history()] == list(range(6))
    assert sorted(trial["trial"] for trial in status("two")["trials"]) == list(range(6))
    campaign_id = json.loads((home / "two/campaign.json").read_text())["campaign_id"]
    assert orphans.marked(campaign_id) == []
    ledger = Ledger.open("two")
    assert all(workspace.finished(ledger.place(number)) for number in range(6))

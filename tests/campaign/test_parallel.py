"""Several trials at once: who waits for whom, what each is told of the others, and what ends them all."""

from __future__ import annotations

import json
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import tasks.train
from flows.campaign import search
from tasks.store.ledger import Ledger
from tasks.system import interrupt, orphans
from tasks.trial import Run
from tests.support.ledgers import created
from tests.support.nights import on_night
from tests.support.toy import FIT, GREEDY, nightshift, quadratic, start, status

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
    assert all(slow.number in trial.proposal.pending for trial in ahead)
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

    ledger = created(tmp_path, "two", rule="greedy", trials=2, parallel=2, tracking="off")
    monkeypatch.setattr(tasks.train.train, "retries", 0)
    with monkeypatch.context() as patched:
        patched.setattr(tasks.train, "run_program", faulty)
        with pytest.raises(OSError, match="no space left"):
            on_night(server, ledger, search)
    assert ended == [1] and [trial.number for trial in ledger.history()] == [0]
    interrupt.check()  # the next campaign of this process may run
    assert on_night(server, ledger, search).state == "finished"
    assert {(trial.number, trial.attempt) for trial in ledger.history()} == {(0, 1), (1, 1), (2, 1)}


def stored(home: Path, name: str) -> dict[str, Any]:
    """Everything that was proposed, scored and decided, by file. A task that is killed before Prefect keeps its result
    proposes the same again, in another time.
    """
    files = [*(home / name).glob("trials/*/trial.json"), *(home / name).glob("trials/*/proposal.json")]
    facts = {path.relative_to(home).as_posix(): json.loads(path.read_text()) for path in files}
    return {path: {**each, "seconds": None} if path.endswith("proposal.json") else each for path, each in facts.items()}


@pytest.mark.slow
@pytest.mark.parametrize("signals", [(signal.SIGKILL,) * 3, (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)])
def test_killed_with_two_trials_under_way_a_campaign_loses_and_changes_nothing(
    tmp_path: Path, home: Path, server: str, signals: tuple[signal.Signals, ...]
) -> None:
    folder = quadratic(tmp_path / "quad", fit="import time\ntime.sleep(1)\n" + FIT)
    ends = ["run", str(folder), "--name", "two", "--parallel", "2", *FIVE]
    before: dict[str, Any] = {}
    for number in signals:
        process = start(*ends, server=server)
        while process.poll() is None and len(stored(home, "two")) < len(before) + 2:
            time.sleep(0.02)
        process.send_signal(number)
        process.communicate(timeout=240)
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

"""A trial that is run again: a new attempt decided last, everything else as it was, and what a kill can do to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows import rerun
from flows.status import document
from tasks.record import reconcile
from tasks.store import lineage
from tasks.store.ledger import Ledger
from tasks.trial import History, Params, VerdictKind
from tests.support.histories import tried
from tests.support.ledgers import filled
from tests.support.noisy import campaign, noisy, settled
from tests.support.prefect_api import prefect_at
from tests.support.processes import wait_for
from tests.support.toy import GREEDY, nightshift, quadratic, slow, start, status

LUCK = 80.0
"""What the first attempt at trial 1 scored too much."""
NIGHT: tuple[tuple[Params, float, VerdictKind], ...] = (
    ({}, 0.0, "keep"), ({"x": 20.0}, LUCK, "keep"), ({"x": 40.0}, 0.0, "discard"), ({"x": 10.0}, 0.0, "discard"),
)  # fmt: skip
"""Trials with the luck that each had, and the verdicts which follow."""


def night(folder: Path) -> Ledger:
    """A campaign that was led astray: trial 1 was lucky, and trial 2, which is better, was measured against that."""
    ledger = campaign(noisy(folder), rule="greedy", trials=3)
    for params, luck, kind in NIGHT:
        settled(ledger, params, kind=kind, luck=luck)
    ledger.event("end", state="finished", reason="all 3 trials done")
    return ledger


@pytest.fixture
def young(tmp_path: Path) -> Ledger:
    """A campaign whose baseline is decided, and whose trial 1 is under way."""
    ledger = filled(campaign(noisy(tmp_path / "noisy")), (tried((), 1.0),))
    ledger.place(1).workspace.mkdir(parents=True)
    return ledger


def told(ledger: Ledger, kind: str) -> list[dict[str, Any]]:
    return [{**event, "time": 0} for event in ledger.events() if event["event"] == kind]


def verdicts(history: History) -> list[tuple[int, int, int, str]]:
    return [(trial.number, trial.attempt, trial.order, trial.verdict.kind) for trial in history]


def test_one_request_makes_one_attempt_however_often_it_is_retried(young: Ledger) -> None:
    for _ in range(2):  # the second goes on with what the first had begun
        rerun.begin(young, 0)
        assert young.pending_attempts() == {0: 2}
    (first,) = young.history()
    filled(young, (replace(first, attempt=2),))
    rerun.begin(young, 0)  # it was killed after the new attempt was decided
    assert young.attempt(0) == 2
    young.event("end", state="finished", reason="as before")
    rerun.begin(young, 0)
    assert young.attempt(0) == 3
    assert [event["attempt"] for event in told(young, "rerun")] == [2, 3]


def test_it_is_decided_as_the_newest_trial_and_nothing_else_changes(tmp_path: Path, server: str) -> None:
    ledger = night(tmp_path / "noisy")
    before, commit = ledger.history(), lineage.commits(ledger.path / "lineage.git")
    kept = {path: path.read_bytes() for path in ledger.trials.rglob("*") if path.is_file()}
    with prefect_at(server):
        state = rerun.rerun("night", 1, return_state=True)
    assert state.is_completed() and state.message.startswith("night: trial 1 again: keep "), state.message
    now = ledger.history()
    assert verdicts(now) == [(0, 1, 0, "keep"), (2, 1, 2, "discard"), (3, 1, 3, "discard"), (1, 2, 4, "keep")]
    assert now[:-1] == (before[0], *before[2:])
    again, old = now[-1], before[1]
    assert again.proposal == old.proposal and again.runs[0].dir == "trials/0001.2"
    assert again.score.value == pytest.approx(20.0, abs=6) and again.runs[0].seed != old.runs[0].seed
    assert {path: path.read_bytes() for path in kept} == kept, "the first attempt stays to the byte"

    assert [event["trial"] for event in told(ledger, "settled")] == [0, 1, 2, 3, 1]
    table = (ledger.path / "results.tsv").read_text()
    (ledger.path / "results.tsv").unlink()  # as if it was killed before it wrote that
    subprocess.run(["git", "-C", ledger.path / "lineage.git", "update-ref", "-d", "refs/trials/0001"], check=True)
    assert reconcile(ledger) == now and (ledger.path / "results.tsv").read_text() == table
    found = document(ledger)
    assert (found["state"], found["reason"], found["champion"]["trial"]) == ("finished", "all 3 trials done", 1)
    refs = subprocess.run(
        ["git", "-C", str(ledger.path / "lineage.git"), "for-each-ref", "--format=%(refname) %(objectname)"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    names = dict(line.split() for line in refs.splitlines())
    assert commit[1] != names["refs/trials/0001"] == names["refs/heads/champion"]


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("taken_up", [("rerun", "night", "1"), ("resume", "night")])
def test_a_rerun_that_is_killed_is_completed_whichever_way_the_campaign_is_taken_up(
    tmp_path: Path, server: str, taken_up: tuple[str, ...]
) -> None:
    folder = quadratic(tmp_path / "quad", slow(1.0))
    options = ("--trials", "2", "--seed", "3", "--proposer", "random_search", "--tracking", "off", *GREEDY)
    done = nightshift("run", str(folder), "--name", "night", *options, "--json", server=server)
    assert done.returncode == 0, done.stderr
    first, ledger = json.loads(done.stdout), Ledger.open("night")
    old = ledger.place(1).trial.read_bytes()
    with start("rerun", "night", "1", server=server) as process:
        wait_for(lambda: (ledger.trials / "0001.2/log.txt").exists())
        os.killpg(process.pid, signal.SIGKILL)
    assert status("night")["trials"] == first["trials"], "nothing of it counts yet"
    again = nightshift(*taken_up, "--json", server=server)
    assert again.returncode == 0, again.stderr
    found = json.loads(again.stdout)
    assert (found["state"], found["reason"]) == ("finished", first["reason"])
    assert [(row["trial"], row["attempt"]) for row in found["trials"]] == [(0, 1), (2, 1), (1, 2)]
    assert ledger.place(1, attempt=1).trial.read_bytes() == old

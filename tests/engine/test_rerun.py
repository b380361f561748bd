"""A trial once more, in its place: what is new, what stays to the byte, what changes after it, and what a kill can do."""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flows.engine.campaign_state import CampaignState
from flows.engine.next_trial import undone
from flows.engine.redecide import finish_pending
from rich.console import Console
from tests.support.runners import bench, prefect_at

from environments.plugins import Refused
from flows import rerun
from flows.cli.deciding.certify import certify as certify_command
from flows.cli.running.rerun import rerun as rerun_command
from flows.spec.campaign_spec import CampaignSpec
from flows.spending.budget import CampaignBudget
from flows.views.status import document
from flows.views.tables import campaign_table
from tasks.certifying.certificate import Certificate
from tasks.evaluate import judge_run
from tasks.machine.slots import Slots
from tasks.record import reconcile, settle
from tasks.store import attempts, lineage, workspace
from tasks.store.campaign_lock import lock_path
from tasks.store.ledger import CERTIFICATE, Ledger
from tasks.system.files import write_atomic
from tasks.tracking.outbox import Outbox
from tasks.tracking.sender import Sender
from tasks.train import run_program
from tasks.trial import History, Params, Proposal, Trial, Verdict
from tests.support.histories import tried
from tests.support.noisy import noisy
from tests.support.toy import QUADRATIC, SANDBOX, nightshift, quadratic, start, status

LUCK = 80.0
"""What the first attempt at trial 1 scored too much."""
NIGHT: tuple[tuple[Params, float, str], ...] = (
    ({}, 0.0, "keep"),
    ({"x": 20.0}, LUCK, "keep"),
    ({"x": 40.0}, 0.0, "discard"),
    ({"x": 10.0}, 0.0, "discard"),
)
"""Trials with the luck that each had, and the verdicts which follow."""


def night(folder: Path, rule: str = "greedy") -> Ledger:
    """A campaign that was led astray: trial 1 was lucky, and trial 2, which is better, was measured against that."""
    spec = CampaignSpec.of(environment=str(noisy(folder)), name="night", rule=rule, tracking="off")
    ledger, history = spec.open(), ()
    for params, luck, kind in NIGHT:
        history += (_settled(ledger, history, params, luck, kind),)
    reconcile(ledger)
    ledger.event("end", state="finished", reason="all 3 trials done")
    return ledger


def _settled(ledger: Ledger, history: History, params: Params, luck: float, kind: str) -> Trial:
    number, environment = len(history), ledger.environment
    place = ledger.place(number)
    proposal = Proposal(environment.complete(params), parent=0 if number else None, seen=number)
    write_atomic(place.proposal, workspace.PROPOSAL.dump_json(proposal, indent=2).decode() + "\n")
    seed = ledger.seed("train", ledger.key(number))
    run = run_program("rerun", environment, SANDBOX, ledger.program, place, proposal, seed)
    score = judge_run("rerun", environment, SANDBOX, place, run, 1)
    assert score.value is not None, score.error
    score = replace(score, value=score.value + luck)
    verdict = Verdict(kind, "as a test says", "provisional" if kind == "keep" else None)  # type: ignore[arg-type]
    return settle(ledger, history, Trial(number, 1, number, proposal, (run,), score, verdict, 1.0))


def completed(ledger: Ledger) -> History:
    """What every life of a campaign does first."""
    one = bench(ledger)
    return finish_pending(one.spec, ledger, Slots(ledger.path), ledger.history())


def told(ledger: Ledger, kind: str) -> list[dict[str, Any]]:
    return [{**event, "time": 0} for event in ledger.events() if event["event"] == kind]


def proposals(ledger: Ledger) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in ledger.trials.rglob("proposal.json")}


def table(ledger: Ledger) -> list[dict[str, str]]:
    with (ledger.path / "results.tsv").open() as file:
        return list(csv.DictReader(file, delimiter="\t"))


# Attempts


def test_another_attempt_has_keys_seeds_and_directories_of_its_own(tmp_path: Path) -> None:
    ledger = CampaignSpec.of(environment=str(noisy(tmp_path / "noisy")), name="night").open()
    first, before = ledger.key(7), ledger.place(7, "run-2")
    attempts.begin(ledger.path, 7, 2)
    assert json.loads((ledger.path / "attempts.json").read_text()) == {"7": 2}
    assert (ledger.attempt(7), ledger.attempt(6)) == (2, 1)
    assert str(ledger.key(7)) == f"{str(first).removesuffix('/1')}/2"
    assert (before.path.name, ledger.place(7, "run-2").path.name) == ("0007-run-2", "0007.2-run-2")
    assert ledger.place(7, "run-2", attempt=1) == before
    assert ledger.key(7, attempt=1) == first and ledger.key(6).attempt == 1
    for purpose in ("train", "search", "spare"):
        assert ledger.seed(purpose, ledger.key(7)) != ledger.seed(purpose, first)  # type: ignore[arg-type]


def test_what_a_certificate_runs_is_of_no_attempt(tmp_path: Path) -> None:
    ledger = CampaignSpec.of(environment=str(noisy(tmp_path / "noisy")), name="night").open()
    parts = ("certificate-1-champion-1", "ablation-2")
    before = [ledger.key(7, part) for part in parts]
    attempts.begin(ledger.path, 7, 2)
    assert [ledger.key(7, part) for part in parts] == before
    assert ledger.key(7, "again-1-of-0003").attempt == ledger.key(7, "run-2").attempt == 2


def test_the_attempt_before_counts_until_the_new_one_is_decided(tmp_path: Path) -> None:
    ledger = CampaignSpec.of(environment=str(noisy(tmp_path / "noisy")), name="night").open()
    first = tried((), 1.0)
    second = tried((first,), 2.0)
    for trial in (first, second):
        write_atomic(ledger.place_of(trial).trial, workspace.TRIAL.dump_json(trial).decode())
    attempts.begin(ledger.path, 0, 2)
    ledger.place(0).workspace.mkdir(parents=True)
    assert ledger.history() == (first, second) and attempts.pending(ledger.path) == {0: 2}
    again = replace(first, attempt=2)
    write_atomic(ledger.place(0).trial, workspace.TRIAL.dump_json(again).decode())
    assert ledger.history() == (again, second) and attempts.pending(ledger.path) == {}
    assert workspace.finished(ledger.place(0, attempt=1)) == first
    assert workspace.settled(ledger.place(0), "") == (again.runs[0], again.score)
    assert workspace.settled(ledger.place(0, "again-1"), "again-1") is None, "it was never asked for"


# What may be run again


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (9, "campaign 'night' has no trial 9: it has 0 to 0"),
        (-1, "campaign 'night' has no trial -1: it has 0 to 0"),
        (1, "trial 1 of campaign 'night' is not finished: nightshift resume night goes on with it"),
    ],
)
def test_only_a_finished_trial_can_be_run_again(tmp_path: Path, number: int, words: str) -> None:
    ledger = CampaignSpec.of(environment=str(noisy(tmp_path / "noisy")), name="night").open()
    first = tried((), 1.0)
    write_atomic(ledger.place(0).trial, workspace.TRIAL.dump_json(first).decode())
    ledger.place(1).workspace.mkdir(parents=True)
    with pytest.raises(Refused) as refused:
        rerun_command("night", number, None, False)
    assert str(refused.value) == words
    assert not (ledger.path / "attempts.json").exists()


def test_a_campaign_that_runs_is_left_alone(tmp_path: Path) -> None:
    ledger = CampaignSpec.of(environment=str(noisy(tmp_path / "noisy")), name="night").open()
    with lock_path(ledger).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Refused, match=r"campaign 'night' is running .*: wait for its end, or `nightshift stop"):
            rerun_command("night", 0, None, False)
        with pytest.raises(Refused, match=r"campaign 'night' is running .*: wait for its end, or `nightshift stop"):
            certify_command("night", None, None, False, None, False)


def test_one_request_makes_one_attempt_however_often_it_is_retried(tmp_path: Path) -> None:
    ledger = CampaignSpec.of(environment=str(noisy(tmp_path / "noisy")), name="night").open()
    first = tried((), 1.0)
    write_atomic(ledger.place(0).trial, workspace.TRIAL.dump_json(first).decode())
    for flow_run in ("a", "a", "b"):  # b goes on with what a had begun
        rerun._begin(ledger, (first,), 0, flow_run)
        assert attempts.pending(ledger.path) == {0: 2}
    write_atomic(ledger.place(0).trial, workspace.TRIAL.dump_json(replace(first, attempt=2)).decode())
    for flow_run in ("b", "c"):  # b was killed after the new attempt was decided
        rerun._begin(ledger, (first,), 0, flow_run)
    ledger.event("end", state="finished", reason="as a test says")
    rerun._begin(ledger, (first,), 0, "c")
    assert ledger.attempt(0) == 2
    rerun._begin(ledger, (first,), 0, "d")
    assert ledger.attempt(0) == 3
    assert [(event["attempt"], event["flow_run_id"]) for event in told(ledger, "rerun")] == [
        (2, "a"), (2, "b"), (2, "c"), (3, "d"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("events", "state", "reason"),
    [
        ([("end", {"state": "finished", "reason": "as it was"})], "finished", "as it was"),
        ([("end", {"state": "stopped", "reason": "asked"})], "stopped", "asked"),
        ([("end", {"state": "finished", "reason": "as it was"}), ("life", {"rerun": 1})], "finished", "as it was"),
        ([("end", {"state": "finished", "reason": "as it was"}), ("life", {})], "stopped", "a trial was run again"),
        ([("end", {"state": "failed", "reason": "no score"})], "stopped", "a trial was run again"),
    ],
)  # fmt: skip
def test_a_campaign_stands_afterwards_as_it_stood_before(
    tmp_path: Path, events: list[tuple[str, dict[str, Any]]], state: str, reason: str
) -> None:
    ledger = CampaignSpec.of(environment=str(noisy(tmp_path / "noisy")), name="night").open()
    for kind, facts in [*events, ("life", {"rerun": 1})]:
        ledger.event(kind, **facts)
    end = rerun._end(bench(ledger, ()).spec, ledger, (tried((), 1.0),), 0.0)
    assert end.state == state and end.reason.startswith(reason)


# What follows


@pytest.mark.timeout(200)
def test_later_verdicts_are_given_anew_and_marked_and_nothing_that_was_is_lost(tmp_path: Path, server: str) -> None:
    ledger = night(tmp_path / "noisy")
    before, old = ledger.history(), ledger.place(1).path
    stored = proposals(ledger)
    kept = {path: path.read_bytes() for path in old.rglob("*") if path.is_file()}
    commits = lineage.commits(ledger.path / "lineage.git")
    made = Certificate(1, 0.05, 1, "noisy", (), False, "as a test says")
    write_atomic(ledger.path / "certificates/1.json", CERTIFICATE.dump_json(made).decode())
    attempts.begin(ledger.path, 1, 2)
    with prefect_at(server):
        now = completed(ledger)
        assert completed(ledger) == now == ledger.history()

    assert [(t.number, t.attempt, t.order) for t in now] == [(0, 1, 0), (1, 2, 1), (2, 1, 2), (3, 1, 3)]
    assert [trial.verdict.kind for trial in now] == ["keep", "keep", "keep", "discard"]
    assert [[(was.kind, was.rerun, was.attempt) for was in t.was] for t in now] == [[], [], [("discard", 1, 2)], []]
    assert now[1].score.value == pytest.approx(20.0, abs=6) and now[1].runs[0].seed != before[1].runs[0].seed
    assert now[1].runs[0].dir == "trials/0001.2"
    assert [trial.proposal for trial in now] == [trial.proposal for trial in before]
    assert [trial.runs for trial in now[2:]] == [trial.runs for trial in before[2:]], "they were not run again"

    assert proposals(ledger) == stored
    assert {path: path.read_bytes() for path in old.rglob("*") if path.is_file()} == kept
    facts = {"time": 0, "event": "verdict", "trial": 2, "before": "discard", "now": "keep", "rerun": 1, "attempt": 2}
    assert told(ledger, "verdict") == [facts]
    assert [event["trial"] for event in told(ledger, "settled")] == [0, 1, 2, 3, 1]
    assert [(row["trial"], row["attempt"], row["verdict"]) for row in table(ledger)] == [
        ("0", "1", "keep"), ("1", "2", "keep"), ("2", "1", "keep"), ("3", "1", "discard"),
    ]  # fmt: skip

    found = document(ledger)
    assert (found["certificate"]["trial"], found["champion"]["trial"]) == (1, 2)
    assert ledger.certificates() == (made,), "which is no look at the new champion"
    assert [row["was"] for row in found["trials"][1:3]] == [[], [{"verdict": "discard", "rerun": 1, "attempt": 2}]]
    console = Console(width=120, file=io.StringIO(), record=True)
    console.print(campaign_table(found, console))
    assert "keep * (was discard)" in console.export_text()

    refs = subprocess.run(
        ["git", "-C", str(ledger.path / "lineage.git"), "for-each-ref", "--format=%(refname) %(objectname)"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    names = dict(line.split() for line in refs.splitlines())
    assert names["refs/attempts/0001/1"] == commits[1] != names["refs/trials/0001"]
    assert names["refs/heads/champion"] == names["refs/trials/0002"] == commits[2]


@contextmanager
def _killed_at(write: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A kill before the so-manieth file of the ledger is replaced."""
    real, files = write_atomic, ("trial.json", "diff.patch", "results.tsv")
    left = iter(range(write, -1, -1))

    def dying(path: Path, text: str) -> None:
        if path.name in files and next(left) == 0:
            raise KeyboardInterrupt
        real(path, text)

    with monkeypatch.context() as patched:
        patched.setattr("tasks.record.write_atomic", dying)
        with pytest.raises(KeyboardInterrupt):
            yield


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_wherever_it_is_killed_the_next_life_ends_with_the_same(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = night(tmp_path / "noisy")
    attempts.begin(ledger.path, 1, 2)
    with prefect_at(server):
        for write in range(5):  # two later verdicts, the diff, the new attempt, the table
            with _killed_at(write, monkeypatch):
                completed(ledger)
            if write == 0:
                shutil.copytree(ledger.path, tmp_path / "before")
            assert [trial.attempt for trial in ledger.history()] == [1, 1 + (write == 4), 1, 1]
            assert (attempts.pending(ledger.path) == {1: 2}) == (write < 4)
            reconcile(ledger)
            now = completed(ledger)
            assert now == ledger.history()
            assert [(trial.attempt, trial.verdict.kind, len(trial.was)) for trial in now] == [
                (1, "keep", 0), (2, "keep", 0), (1, "keep", 1), (1, "discard", 0),
            ]  # fmt: skip
            assert len(told(ledger, "verdict")) == 1 and len(told(ledger, "settled")) == 5
            assert [row["verdict"] for row in table(ledger)] == ["keep", "keep", "keep", "discard"]
            trained = [path.parent.parent.name for path in ledger.trials.glob("*/out/model.json")]
            assert sorted(trained) == ["0000", "0001", "0001.2", "0002", "0003"]
            shutil.rmtree(ledger.path)
            shutil.copytree(tmp_path / "before", ledger.path)


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_what_a_later_verdict_needs_by_then_is_run_and_never_run_again(tmp_path: Path, server: str) -> None:
    ledger = night(tmp_path / "noisy", rule="race")
    attempts.begin(ledger.path, 1, 2)
    with prefect_at(server):
        now = completed(ledger)
        assert now[2].verdict.kind == "keep" and now[2].verdict.level == "confirmed"
        assert {rerun.of for rerun in now[2].reruns} == {2}
        ran = {path: path.stat().st_mtime_ns for path in ledger.trials.glob("*/out/model.json")}
        assert {"0001.2-again-1", "0002-again-1"} <= {path.parent.parent.name for path in ran}

        spec, slots = bench(ledger).spec, Slots(ledger.path)
        with Sender(Outbox(ledger, "off", None, now)) as sender:
            money = CampaignBudget(spec, ledger, 0)
            replayed = CampaignState(spec, ledger, sender, slots, now[:1], lambda _: None, money)
            for number, proposal in undone(replayed, now):  # as another life of the campaign does
                replayed.trial(number, proposal)
    assert replayed.history == now
    assert {path: path.stat().st_mtime_ns for path in ledger.trials.glob("*/out/model.json")} == ran


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_the_baseline_itself_can_be_run_again(tmp_path: Path, server: str) -> None:
    ledger = night(tmp_path / "noisy")
    attempts.begin(ledger.path, 0, 2)
    with prefect_at(server):
        now = completed(ledger)
    assert [(trial.attempt, trial.verdict.kind) for trial in now] == [
        (2, "keep"), (1, "keep"), (1, "discard"), (1, "discard"),
    ]  # fmt: skip
    assert not told(ledger, "verdict")


# The command, in whole campaigns

FIT = """\
import argparse, json, pathlib, random, time
parser = argparse.ArgumentParser()
parser.add_argument("--x", type=float)
parser.add_argument("--out", type=pathlib.Path)
args = parser.parse_args()
seed = json.loads(pathlib.Path("config.json").read_text())["seed"]
time.sleep(1)
(args.out / "model.json").write_text(json.dumps({"x": args.x + random.Random(seed).gauss(0, 2)}))
"""
"""A trainer that is far noisier than anything it could find."""


def _logged(home: Path, trial: int) -> set[tuple[str, str | None]]:
    """The attempts at a trial that MLflow has, and what supersedes each."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{home}/mlflow.db")
    experiments = [one.experiment_id for one in client.search_experiments()]
    runs = client.search_runs(experiments, f"tags.campaign = 'night' and tags.trial = '{trial}'")
    assert len(runs) == len({run.data.tags["attempt"] for run in runs})
    return {(run.data.tags["attempt"], run.data.tags.get("superseded")) for run in runs}


def _until(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_rerun_that_is_killed_is_completed_whichever_way_the_campaign_is_taken_up(
    tmp_path: Path, home: Path, server: str
) -> None:
    toml = QUADRATIC.replace("deterministic = true\n", "")
    folder = quadratic(tmp_path / "quad", FIT, toml=toml)
    done = nightshift(
        "run", str(folder), "--name", "night", "--trials", "4", "--seed", "3", "--rule", "greedy",
        "--proposer", "random_search", "--json", server=server,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, ledger = json.loads(done.stdout), Ledger.open("night")
    number = next(row["trial"] for row in first["trials"] if row["trial"] and row["verdict"] == "keep")
    stored, old = proposals(ledger), ledger.place(number).trial.read_bytes()

    before, changes = first, 0
    for attempt, taken_up in ((2, ("rerun", "night", str(number))), (3, ("resume", "night"))):
        with start("rerun", "night", str(number), server=server) as process:
            _until(ledger.trials / f"{number:04d}.{attempt}/out")
            os.killpg(process.pid, signal.SIGKILL)
        assert status("night")["trials"] == before["trials"], "nothing of it counts yet"
        again = nightshift(*taken_up, "--json", server=server)
        assert again.returncode == 0, again.stderr
        found = json.loads(again.stdout)
        assert (found["state"], found["reason"]) == ("finished", first["reason"])
        rows = {row["trial"]: row for row in found["trials"]}
        assert {n: row["attempt"] for n, row in rows.items()} == {n: attempt if n == number else 1 for n in range(5)}
        was = {row["trial"]: row for row in before["trials"]}
        assert all(rows[n]["values"] == was[n]["values"] for n in rows if n != number), "they were not run again"
        assert rows[number]["values"] != was[number]["values"]
        changed = {n: (was[n]["verdict"], rows[n]["verdict"]) for n in rows if was[n]["verdict"] != rows[n]["verdict"]}
        told_now = [event for event in told(ledger, "verdict") if event["attempt"] == attempt]
        assert {event["trial"]: (event["before"], event["now"]) for event in told_now} == changed
        assert all(rows[n]["was"][-1]["verdict"] == verdict for n, (verdict, _) in changed.items())
        before, changes = found, changes + len(changed)

    assert changes, "the seed was chosen so that something changes"
    assert proposals(ledger) == stored and ledger.place(number, attempt=1).trial.read_bytes() == old
    assert found["waiting_to_record"] == 0
    assert _logged(home, number) == {("1", "attempt 2"), ("2", "attempt 3"), ("3", None)}
    assert nightshift("logs", "night", str(number), "--attempt", "1").returncode == 0

"""Watching a campaign: what is read as it is written, and what is shown of a directory that fills step by step."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from flows.views import curves
from flows.views.curves import CurveFile, CurvePoint, TrainingCurve, value_at
from flows.watch import CampaignWatch, Follower
from flows.views.live_model import Certifying, UnderWay, campaign_progress, run_seconds, runs_of_a_trial
from tasks.machine import slots as machine_slots
from tasks.machine.slots import Slots
from tasks.record import reconcile, record
from tasks.store import approval, workspace
from tasks.store.campaign_lock import CampaignLock
from tasks.store.ledger import Ledger
from tasks.system.commands import identity
from tasks.system.files import write_atomic
from tasks.tracking.sync import FILE
from tasks.trial import EarlyStop, History, Proposal, Usage
from tests.support.histories import tried
from tests.support.ledgers import created
from tests.support.terminals import terminal

METRIC = "loss"


def report(elapsed: float, **metrics: float) -> str:
    return json.dumps({"elapsed": elapsed, "step": int(elapsed * 100), "metrics": metrics}) + "\n"


def curve_file(path: Path, metric: str = METRIC) -> CurveFile:
    """A reader that has looked once."""
    file = CurveFile(path, metric)
    file.read()
    return file


def test_a_curve_is_read_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    file = curve_file(path)
    assert (file.ready, file.curve) == (False, TrainingCurve())
    path.write_text('{"ready": true}\n')
    file.read()
    assert (file.ready, file.elapsed, file.curve) == (True, None, TrainingCurve())
    with path.open("a") as stream:
        stream.write(report(0.5, loss=3.0) + report(1.0, loss=2.0))
    file.read()
    assert file.curve == TrainingCurve("loss", (CurvePoint(0.5, 50.0, 3.0), CurvePoint(1.0, 100.0, 2.0)))
    assert (file.elapsed, file.step) == (1.0, 100.0)


def test_half_a_line_waits_for_its_other_half(tmp_path: Path) -> None:
    path, whole = tmp_path / "progress.jsonl", report(0.5, loss=3.0)
    file = curve_file(path)
    for cut in range(len(whole)):
        path.write_text(whole[:cut])
        file.read()
        assert file.curve == TrainingCurve(), cut
    path.write_text(whole)
    file.read()
    assert [point.value for point in file.curve.points] == [3.0]


def test_what_is_no_report_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    garbage = [
        b"\xff\xfe\x00garbage",
        b"",
        b"[1, 2]",
        b"null",
        b'{"elapsed": "soon", "step": true, "metrics": {"loss": "low"}}',
        b'{"elapsed": NaN, "step": Infinity, "metrics": {"loss": NaN, "other": -Infinity}}',
        b'{"elapsed": 1, "step": 2, "metrics": [1]}',
        b'{"elapsed": 1, "step": 2, "metrics": {"loss": ' + b"9" * 5000 + b"}}",
        b"[" * 20_000,
        b"x" * 2**16,
    ]
    path.write_bytes(b"\n".join([*garbage, report(2.0, loss=1.0).encode()]))
    assert curve_file(path).curve == TrainingCurve("loss", (CurvePoint(2.0, 200.0, 1.0),))


def test_a_line_without_an_end_costs_nothing_and_does_not_hide_what_follows(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    file = curve_file(path)
    with path.open("ab", buffering=0) as stream:
        for _ in range(3):
            stream.write(b"x" * (curves.READ_BYTES + 1))
            file.read()
        stream.write(b"x\n" + report(2.0, loss=1.0).encode())
    file.read()
    assert [point.value for point in file.curve.points] == [1.0]


def test_a_program_that_is_started_again_starts_a_new_curve(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    path.write_text(report(1.0, loss=3.0) + report(2.0, loss=2.0))
    file = curve_file(path)
    path.write_text(report(0.5, loss=9.0))
    file.read()
    assert [point.value for point in file.curve.points] == [9.0]
    path.unlink()
    file.read()
    assert (file.curve, file.ready) == (TrainingCurve(), False)


def test_another_metric_stands_in_until_the_environments_own_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    path.write_text(report(1.0, entropy=0.7, kl=0.1) + report(2.0, kl=0.2, entropy=0.6))
    file = curve_file(path)
    assert (file.curve.name, [point.value for point in file.curve.points]) == ("entropy", [0.7, 0.6])
    with path.open("a") as stream:
        stream.write(report(3.0, entropy=0.5, loss=8.0))
    file.read()
    assert (file.curve.name, [point.value for point in file.curve.points]) == ("loss", [8.0])


def test_what_is_not_a_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "endless").symlink_to("/dev/zero")
    for name in ("pipe", "folder", "endless", "nowhere"):
        assert curve_file(tmp_path / name).curve == TrainingCurve()


def test_a_long_curve_is_taken_in_over_several_looks_and_thinned(tmp_path: Path) -> None:
    path, lines = tmp_path / "progress.jsonl", 30_000
    path.write_text("".join(report(at / 10, loss=1 - at / lines) for at in range(lines)))
    file, looks = CurveFile(path, METRIC), 0
    while file.elapsed != (lines - 1) / 10:
        file.read()
        looks += 1
    assert looks == -(-path.stat().st_size // curves.READ_BYTES)
    assert curves.POINTS <= len(file.curve.points) <= 2 * curves.POINTS
    assert value_at(file.curve.along("elapsed"), 1500.0) == pytest.approx(0.5, abs=0.01)


def test_a_value_between_two_reports_is_in_proportion() -> None:
    line = [(1.0, 10.0), (3.0, 20.0)]
    assert [value_at(line, at) for at in (0.9, 1.0, 2.0, 3.0, 9.0)] == [None, 10.0, 15.0, 20.0, 20.0]
    assert value_at([], 1.0) is None


def test_a_curve_goes_only_forward() -> None:
    points = (CurvePoint(1.0, None, 1.0), CurvePoint(0.5, 3.0, 2.0), CurvePoint(2.0, 4.0, 3.0))
    assert TrainingCurve("loss", points).along("elapsed") == [(1.0, 1.0), (2.0, 3.0)]
    assert TrainingCurve("loss", points).along("step") == [(3.0, 2.0), (4.0, 3.0)]


@pytest.mark.parametrize(
    ("steps", "last", "axis"),
    [
        (0, CurvePoint(5.0, 900.0, 0.0), "elapsed"),
        (1000, CurvePoint(1.0, 900.0, 0.0), "step"),
        (1000, CurvePoint(4.0, 100.0, 0.0), "elapsed"),
        (1000, CurvePoint(4.0, None, 0.0), "elapsed"),
        (0, CurvePoint(None, 100.0, 0.0), "step"),
    ],
)
def test_curves_are_compared_along_what_binds(tmp_path: Path, steps: int, last: CurvePoint, axis: str) -> None:
    environment = created(tmp_path).environment.model_copy(update={"budget_steps": steps})
    trial = UnderWay(1, Proposal({}), "training", 1.0, None, TrainingCurve("loss", (last,)), TrainingCurve())
    assert trial.axis(environment) == axis


def history_of(count: int, every: float = 20.0) -> History:
    """So many decided trials, one begun `every` seconds; the baseline is best."""
    history: History = ()
    for number in range(count):
        trial = tried(history, float(number), params={"x": 1.0}, wall=every - 1, higher_is_better=False)
        (run,) = trial.runs
        run = type(run)(**{**vars(run), "started": 1e9 + every * number})
        history += (type(trial)(**{**vars(trial), "runs": (run,)}),)
    return history


def test_a_campaign_ends_with_what_binds(tmp_path: Path) -> None:
    environment, history = created(tmp_path).environment, history_of(4)
    spec = {"trials": 9, "hours": 1.0, "rule": "greedy", "replicates": 1}
    trials = campaign_progress(spec, environment, history, 80.0, 5.0, 2e9)
    assert (trials.trials, trials.binds, trials.ends) == (3, "trials", 2e9 + 6 * 19 - 5)
    assert trials.share == pytest.approx(80 / (80 + 6 * 19 - 5))
    time_is_up = campaign_progress({**spec, "hours": 0.04}, environment, history, 80.0, 5.0, 2e9)
    assert (time_is_up.binds, time_is_up.ends) == ("hours", 2e9 + 0.04 * 3600 - 80)
    until = {**spec, "until": "2033-05-18T03:34:00+00:00"}  # 40 s after 2e9
    found = campaign_progress(until, environment, history, 80.0, 5.0, 2e9)
    assert (found.binds, found.ends, found.until) == ("until", 2e9 + 40, 2e9 + 40)
    over = campaign_progress({**spec, "trials": 2}, environment, history, 80.0, 0.0, 2e9)
    assert (over.share, over.ends) == (1.0, 2e9)


def test_before_the_first_trial_nobody_says_when_it_ends(tmp_path: Path) -> None:
    environment = created(tmp_path).environment
    assert (
        campaign_progress(
            {"trials": 9, "hours": 8.0, "rule": "certify", "replicates": 1}, environment, (), 3.0, 3.0, 2e9
        ).ends
        is None
    )


def test_the_time_left_includes_the_runs_of_the_certificate(tmp_path: Path) -> None:
    environment, history = created(tmp_path).environment, history_of(4)
    spec = {"trials": 9, "hours": 1.0, "rule": "certify", "replicates": 1}
    plain = campaign_progress({**spec, "rule": "greedy"}, environment, history, 80.0, 5.0, 2e9)
    found = campaign_progress(spec, environment, history, 80.0, 5.0, 2e9)
    assert plain.ends is not None and found.ends == plain.ends + 4 * 19.0, "two runs of each where nothing is random"
    assert found.share < plain.share
    searched = campaign_progress({**spec, "trials": 3}, environment, history, 80.0, 0.0, 2e9)
    begun = campaign_progress({**spec, "trials": 3}, environment, history, 80.0, 0.0, 2e9, Certifying(2, 1, 4, 4.0))
    last = campaign_progress({**spec, "trials": 3}, environment, history, 80.0, 0.0, 2e9, Certifying(2, 4, 4, 4.0))
    assert (searched.ends, begun.ends, last.ends) == (2e9 + 76, 2e9 + 72, 2e9 + 15)
    assert searched.share < begun.share < last.share < 1
    assert (begun.trials, begun.asked) == (3, 3)


def test_a_search_that_ended_early_leaves_the_certificate_alone_to_wait_for(tmp_path: Path) -> None:
    environment, history = created(tmp_path).environment, history_of(4)
    spec = {"trials": 90, "hours": 9.0, "rule": "certify", "replicates": 1}
    found = campaign_progress(spec, environment, history, 80.0, 0.0, 2e9, Certifying(2, 1, 10, 0.0))
    assert found.ends == 2e9 + 10 * 19 and found.share == pytest.approx(80 / (80 + 190))


def test_a_fresh_run_takes_as_long_as_a_run_that_nobody_cancelled(tmp_path: Path) -> None:
    environment = created(tmp_path).environment
    history: History = (tried((), 1.0, 1.1, 1.2, wall=60.0),)
    for _ in range(3):
        history += (tried(history, None, kind="cancelled", due=EarlyStop(0.4, "slow"), wall=5.0),)
    spec = {"trials": 1, "hours": 1.0, "rule": "certify", "replicates": 1}
    made = campaign_progress(spec, environment, history, 80.0, 0.0, 2e9, Certifying(0, 1, 4, 0.0))
    assert run_seconds(()) is None and run_seconds(history) == 5.0
    assert made.ends == 2e9 + 4 * history[0].wall_seconds / 3


def test_trials_take_the_time_of_their_proposals_too_and_less_where_they_run_at_once(tmp_path: Path) -> None:
    environment, history = created(tmp_path).environment, history_of(4)
    slow = tuple(
        dataclasses.replace(trial, proposal=dataclasses.replace(trial.proposal, seconds=11.0)) for trial in history
    )
    spec = {"trials": 9, "hours": 1.0, "rule": "greedy", "replicates": 1}
    assert campaign_progress(spec, environment, slow, 80.0, 0.0, 2e9).ends == 2e9 + 6 * 30
    assert campaign_progress({**spec, "parallel": 2}, environment, slow, 80.0, 0.0, 2e9).ends == 2e9 + 6 * 15


def propose(ledger: Ledger, number: int, rationale: str = "as a test says") -> workspace.TrialDir:
    place = ledger.place(number)
    proposal = Proposal({"x": 2.5 - number}, rationale=rationale, parent=0, proposer="test")
    write_atomic(place.proposal, workspace.PROPOSAL.dump_json(proposal).decode())
    place.out.mkdir()
    return place


def decide(ledger: Ledger, score: float | None) -> None:
    history = ledger.history()
    params = json.loads(ledger.place(len(history)).proposal.read_text())["params"]
    ledger.place(len(history)).workspace.mkdir(exist_ok=True)
    record(ledger, history, tried(history, score, params=params, higher_is_better=False))


def campaign(tmp_path: Path, name: str = "n") -> Ledger:
    ledger = created(tmp_path, name, tracking="off", trials=5)
    reconcile(ledger)
    return ledger


def test_a_trial_is_followed_from_its_proposal_to_its_verdict(tmp_path: Path) -> None:
    ledger = campaign(tmp_path)
    follower = Follower(ledger)
    assert follower.look(time.time()).trial is None
    place = propose(ledger, 0)
    trial = follower.look(time.time()).trial
    assert trial is not None and (trial.number, trial.phase, trial.proposal.params) == (0, "starting", {"x": 2.5})
    place.progress.write_text('{"ready": true}\n' + report(1.0, loss=3.0))
    trial = follower.look(place.progress.stat().st_mtime + 0.5).trial
    assert trial is not None and (trial.phase, trial.elapsed) == ("training", pytest.approx(1.5))
    trial = follower.look(time.time() + 3600).trial
    assert trial is not None and trial.elapsed == ledger.environment.budget_seconds
    place.judge_log.touch()
    trial = follower.look(time.time()).trial
    assert trial is not None and (trial.phase, trial.elapsed) == ("judging", 1.0)
    decide(ledger, 3.0)
    scene = follower.look(time.time())
    assert scene.trial is None and [trial.score.value for trial in scene.history] == [3.0]
    propose(ledger, 1)
    trial = follower.look(time.time()).trial
    assert trial is not None and [point.value for point in trial.champion_curve.points] == [3.0]


def test_a_program_without_reports_is_training_when_its_time_to_start_is_over(tmp_path: Path) -> None:
    ledger = campaign(tmp_path)
    place = propose(ledger, 0)
    write_atomic(place.config, "{}")
    place.log.touch()
    began = place.config.stat().st_mtime
    for later, phase, elapsed in ((1.0, "starting", 0.0), (3.0, "training", 1.0), (60.0, "training", 5.0)):
        trial = Follower(ledger).look(began + later).trial
        assert trial is not None and (trial.phase, trial.elapsed) == (phase, pytest.approx(elapsed))


def test_trials_that_run_at_once_are_all_seen(tmp_path: Path) -> None:
    ledger = campaign(tmp_path)
    propose(ledger, 0)
    decide(ledger, 3.0)
    follower = Follower(ledger)
    for number in (1, 2):
        propose(ledger, number).progress.write_text('{"ready": true}\n' + report(1.0, loss=float(number)))
    scene = follower.look(time.time())
    assert [trial.number for trial in scene.under_way] == [1, 2]
    assert [trial.curve.points[-1].value for trial in scene.under_way] == [1.0, 2.0]
    ledger.place(2).workspace.mkdir(exist_ok=True)
    second = dataclasses.replace(tried(scene.history, 2.0, params={"x": 1.0}, higher_is_better=False), number=2)
    record(ledger, scene.history, second)
    scene = follower.look(time.time())
    assert ([trial.number for trial in scene.under_way], len(scene.history)) == ([1], 2)


def test_what_changes_of_the_guards_and_the_page_is_seen(tmp_path: Path) -> None:
    ledger = campaign(tmp_path)
    follower = Follower(ledger)
    assert (follower.look(0.0).progress.asked, follower.look(0.0).page) == (5, None)
    text = (ledger.path / "spec.toml").read_text()
    write_atomic(ledger.path / "spec.toml", text.replace("trials = 5", "trials = 70"))
    ledger.event("life", page="http://127.0.0.1:4200/flow-runs/flow-run/1")
    scene = follower.look(0.0)
    assert (scene.progress.asked, scene.page) == (70, "http://127.0.0.1:4200/flow-runs/flow-run/1")


def test_which_run_of_a_trial_is_under_way_is_seen(tmp_path: Path) -> None:
    ledger = campaign(tmp_path)
    place, follower = propose(ledger, 0), Follower(ledger)
    place.progress.write_text('{"ready": true}\n' + report(1.0, loss=3.0))
    first = follower.look(time.time()).trial
    place.judge_log.touch()
    second_place = ledger.place(0, "run-2")
    second_place.out.mkdir(parents=True)
    second = follower.look(time.time()).trial
    second_place.progress.write_text('{"ready": true}\n' + report(0.5, loss=9.0))
    third = follower.look(time.time()).trial
    assert first and second and third
    assert [trial.run for trial in (first, second, third)] == ["run 1 of 2", "run 2 of 2", "run 2 of 2"]
    assert [trial.phase for trial in (first, second, third)] == ["training", "starting", "training"]
    assert [point.value for point in third.curve.points] == [9.0]
    assert third.proposal == first.proposal


def test_a_baseline_that_was_calibrated_runs_once(tmp_path: Path) -> None:
    environment, spec = created(tmp_path).environment, {"rule": "certify", "replicates": 1}
    assert runs_of_a_trial(spec, environment, 0) == 2, "where nothing is drawn at random"
    noisy = environment.model_copy(update={"deterministic": False})
    assert [runs_of_a_trial(spec, noisy, number) for number in (0, 1)] == [3, 1]
    assert runs_of_a_trial(spec, noisy, 0, calibrated=True) == 1
    assert runs_of_a_trial({**spec, "rule": "greedy"}, noisy, 0) == 1
    assert runs_of_a_trial({**spec, "replicates": 5}, noisy, 0) == 5


def test_a_rerun_is_seen_as_such(tmp_path: Path) -> None:
    ledger = campaign(tmp_path)
    propose(ledger, 0)
    decide(ledger, 3.0)
    propose(ledger, 1)
    follower = Follower(ledger)
    trial = follower.look(time.time()).trial
    assert trial is not None and trial.run == "", "its only one"
    for number in (1, 2):
        ledger.place(1, f"again-{number}").out.mkdir(parents=True)
        trial = follower.look(time.time()).trial
        assert trial is not None and trial.run == f"rerun {number}"
    decide(ledger, 2.0)
    assert [one.number for one in follower.look(time.time()).history] == [0, 1]


def test_a_certificate_is_followed_from_its_first_run_to_its_last(tmp_path: Path) -> None:
    ledger = campaign(tmp_path)
    for number, score in enumerate((3.0, 2.0)):
        propose(ledger, number)
        decide(ledger, score)
    follower = Follower(ledger)
    assert follower.look(time.time()).certifying is None
    ledger.event("certify", look=1, champion=1, runs=3)
    scene = follower.look(time.time())
    assert scene.certifying is not None and (scene.certifying.run, scene.certifying.runs) == (1, 6)
    for part in ("0001-champion-1", "0001-baseline-1", "0001-baseline-2"):
        (ledger.path / "certificates" / f"1-{part}").mkdir(parents=True)
    begun = (ledger.path / "certificates" / "1-0001-baseline-2").stat().st_mtime
    scene = follower.look(begun + 2)
    assert scene.certifying == Certifying(1, 3, 6, pytest.approx(2.0))
    ledger.event("certified", look=1, trial=1, passed=True)
    assert follower.look(time.time()).certifying is None


def test_the_looks_of_a_certificate_are_known_and_that_it_waits_for_a_slot(tmp_path: Path) -> None:
    ledger = campaign(tmp_path)
    ledger.event("certify", look=1, champion=1, runs=10, planned=14, groups=[[5, 3], [10, 4]])
    ledger.event("waiting", number=1, who="cpu-0 is held by process 7")
    made = Follower(ledger).look(time.time()).certifying
    assert made is not None and (made.groups, made.waits_for) == (((5, 3), (10, 4)), "cpu-0 is held by process 7")
    ledger.event("slot", number=1, slot="cpu-0")
    made = Follower(ledger).look(time.time()).certifying
    assert made is not None and made.waits_for == ""


def test_a_trial_waits_for_a_slot_until_it_has_one(tmp_path: Path) -> None:
    ledger = campaign(tmp_path)
    place, follower = propose(ledger, 0), Follower(ledger)
    ledger.event("waiting", number=0, who="cpu-0 is held by process 7")
    trial = follower.look(time.time()).trial
    assert trial is not None and (trial.phase, trial.waits_for) == ("waiting", "cpu-0 is held by process 7")
    ledger.event("slot", number=0, slot="cpu-0")
    trial = follower.look(time.time()).trial
    assert trial is not None and (trial.phase, trial.waits_for) == ("starting", "")
    place.judge_log.touch()
    ledger.event("waiting", number=0, who="cpu-1 is held by process 8")
    trial = follower.look(time.time()).trial
    assert trial is not None and trial.phase == "waiting", "its next run does"
    ledger.event("life", pid=1)
    trial = follower.look(time.time()).trial
    assert trial is not None and trial.phase == "judging", "what an earlier life waited for is no matter"


def test_who_holds_each_slot_is_read_from_its_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_slots, "locks_folder", lambda: tmp_path / "locks")
    ledger = campaign(tmp_path)
    propose(ledger, 0)
    slots = Slots.of_cores(tmp_path, usable=[0, 1, 2])
    ledger.event("slots", locks=slots.locks)
    ledger.event("slot", number=0, slot="cpu-0")
    with subprocess.Popen(["sleep", "60"]) as other, CampaignLock(ledger), slots.hold() as held:
        ledger.event("slots", locks=slots.locks)
        ledger.event("slot", number=0, slot=held.name)
        stranger, dead = f"{other.pid} {identity(other.pid)}", f"{other.pid} another boot"
        (tmp_path / "locks" / f"{slots.locks['cpu-1'][0]}.holder").write_text(stranger)
        (tmp_path / "locks" / f"{slots.locks['cpu-2'][0]}.holder").write_text(dead)
        states = {one.name: one.holder for one in Follower(ledger).look(time.time()).slots}
        other.kill()
    assert states == {"cpu-0": "trial 0", "cpu-1": f"process {other.pid} (sleep)", "cpu-2": ""}
    assert [one.holder for one in Follower(ledger).look(time.time()).slots] == ["", "", ""]


def test_records_that_wait_for_mlflow_are_counted_until_they_are_sent(tmp_path: Path) -> None:
    ledger = campaign(tmp_path)
    propose(ledger, 0)
    decide(ledger, 3.0)
    assert Follower(ledger).look(0.0).unrecorded == "", "it has failed at nothing"
    (ledger.path / FILE).write_text(json.dumps({"store": "mlflow.db", "state": "running"}))
    ledger.event("tracking", error="no server answers", waiting=1)
    follower = Follower(ledger)
    assert follower.look(0.0).unrecorded == "2 records wait: no server answers"
    ledger.event("life", pid=1)
    assert follower.look(0.0).unrecorded == ""


def test_money_is_counted_with_what_is_under_way(tmp_path: Path) -> None:
    ledger = campaign(tmp_path)
    propose(ledger, 0)
    decide(ledger, 3.0)
    follower = Follower(ledger)
    assert follower.look(0.0).spent.models.calls == 0
    asked = Proposal({"x": 1.0}, usage=Usage(2, 10, 10, 0.25))
    write_atomic(ledger.place(1).proposal, workspace.PROPOSAL.dump_json(asked).decode())
    assert (follower.look(0.0).spent.models.calls, follower.look(0.0).spent.usd) == (2, 0.25)


def test_a_proposal_that_waits_for_approval_says_until_when(tmp_path: Path) -> None:
    ledger = campaign(tmp_path)
    propose(ledger, 0)
    decide(ledger, 3.0)
    propose(ledger, 1)
    approval.park(ledger, approval.Parked(1, Proposal({"x": 1.0}), until=2e9))
    scene = Follower(ledger).look(1.5e9)
    assert (scene.waiting, scene.answer_by, scene.trial) == ((1,), 2e9, None)


def test_patience_is_counted_from_the_champion(tmp_path: Path) -> None:
    environment, history = created(tmp_path).environment, history_of(4)
    spec = {"trials": 9, "hours": 1.0, "rule": "greedy", "replicates": 1, "advanced": {"patience": 5, "max_usd": 2.0}}
    found = campaign_progress(spec, environment, history, 80.0, 5.0, 2e9)
    assert (found.patience, found.max_usd, found.certifies) == (2, 2.0, False)
    assert campaign_progress(spec, environment, history[:1], 80.0, 5.0, 2e9).patience == 5
    short = (
        *history[:2],
        *(dataclasses.replace(one, proposal=dataclasses.replace(one.proposal, share=0.25)) for one in history[2:]),
    )
    assert campaign_progress(spec, environment, short, 80.0, 5.0, 2e9).patience == pytest.approx(2 + 0.75 * 3, abs=1)


def test_a_certificate_that_was_interrupted_is_not_under_way_in_the_next_life(tmp_path: Path) -> None:
    ledger = campaign(tmp_path)
    ledger.event("certify", look=1, champion=1, runs=3)
    assert Follower(ledger).look(time.time()).certifying is not None
    ledger.event("life", page=None)
    assert Follower(ledger).look(time.time()).certifying is None


def test_into_a_file_go_the_runs_of_a_trial_and_the_certificate(tmp_path: Path) -> None:
    output = io.StringIO()
    ledger = campaign(tmp_path)
    propose(ledger, 0)
    with CampaignWatch("n", Console(file=output, width=80)):
        wait_until(lambda: "begins" in output.getvalue())
        ledger.place(0, "run-2").out.mkdir(parents=True)
        wait_until(lambda: "run 2 of 2" in output.getvalue())
        decide(ledger, 3.0)
        wait_until(lambda: "keep" in output.getvalue())
        ledger.event("certify", look=1, champion=1, runs=5, planned=8)
        wait_until(lambda: "certificate" in output.getvalue())
    lines = output.getvalue().splitlines()
    assert lines[1].split() == ["0", "run", "2", "of", "2"]
    assert lines[-1] == " > certificate: trial 1 against the baseline, at most 8 fresh runs"


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "in vain"
        time.sleep(0.02)


def test_into_a_file_go_plain_lines_of_what_begins_and_what_was_decided(tmp_path: Path) -> None:
    output = io.StringIO()
    with CampaignWatch("n", Console(file=output, width=80)):
        ledger = campaign(tmp_path)
        propose(ledger, 0, "the first of [bold]all[/] \x1b[31m")
        wait_until(lambda: "begins" in output.getvalue())
        decide(ledger, 3.0)
        propose(ledger, 1)
        wait_until(lambda: output.getvalue().count("begins") == 2)
        decide(ledger, None)
    lines = output.getvalue().splitlines()
    assert [line.split()[:3] for line in lines] == [
        [">", "0", "begins"], ["trial", "score", "gain"], ["+", "0", "keep"], [">", "1", "begins"], ["x", "1", "crash"],
    ]  # fmt: skip
    assert r"the first of [bold]all[/] \x1b[31m" in lines[0] and "\x1b" not in output.getvalue()
    assert "x 2.5 → 1.5" in lines[3] and "[0 of 5 trials, done about" in lines[3]
    assert lines[4].endswith("exited with status 3  x=1.5")


def test_what_was_decided_before_is_summed_up_in_a_line(tmp_path: Path) -> None:
    ledger, output = campaign(tmp_path), io.StringIO()
    for number, score in enumerate((3.0, 2.0)):
        propose(ledger, number)
        decide(ledger, score)
    with CampaignWatch("n", Console(file=output)):
        pass
    assert output.getvalue() == "   2 trials before; champion: trial 1, loss 2 (baseline 3)\n"


def test_a_quiet_console_stays_quiet(tmp_path: Path) -> None:
    ledger, output = campaign(tmp_path), io.StringIO()
    with CampaignWatch("n", Console(file=output, quiet=True)):
        propose(ledger, 0)
        decide(ledger, 3.0)
    assert output.getvalue() == ""


def test_a_directory_that_goes_away_does_not_end_the_watch(tmp_path: Path) -> None:
    ledger, output = campaign(tmp_path), io.StringIO()
    propose(ledger, 0)
    watch = CampaignWatch("n", Console(file=output))
    with watch:
        wait_until(lambda: "begins" in output.getvalue())
        shutil.rmtree(ledger.path)
        assert watch.look() == "its directory is gone"
    assert "Traceback" not in output.getvalue()


def test_on_a_terminal_the_picture_is_drawn_below_the_lines_and_gone_in_the_end(tmp_path: Path) -> None:
    with terminal(70) as (console, written):
        ledger = campaign(tmp_path)
        with CampaignWatch("n", console):
            place = propose(ledger, 0)
            place.progress.write_text('{"ready": true}\n' + report(1.0, loss=3.0))
            wait_until(lambda: b"loss" in b"".join(written))
            decide(ledger, 3.0)
    shown = b"".join(written).decode()
    assert "training" in shown and "as a test says" in shown
    assert shown.count("keep") == 1
    assert shown.endswith("\x1b[?25h") or "\x1b[?25h" in shown[-120:], "the cursor is back"


def test_a_picture_that_has_not_changed_is_not_drawn_again(tmp_path: Path) -> None:
    campaign(tmp_path)
    with terminal(70) as (console, written), CampaignWatch("n", console):
        wait_until(lambda: b"choosing" in b"".join(written))
        time.sleep(0.6)  # two more looks
        assert b"".join(written).count(b"choosing") == 1

"""Calibration: its numbers against ones worked out by hand, what is stored, and what a campaign can take over."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from environments.plugins import Refused
from environments.score import Score
from flows.cli.app import app
from flows.cli.deciding import calibrate
from tasks.store import calibration
from tasks.store.calibration import Calibration, Measured, findings, foresight, interval, replicates, reruns
from tasks.store.ledger import machine
from tasks.trial import TWENTIETHS, Run
from tests.support.noisy import DRAW, TOML, campaign, noisy
from tests.support.toy import nightshift, quadratic


def measured(*values: float, curves: list[list[float | None]] | None = None, spread: float = 0.5) -> list[Measured]:
    """Runs with these scores, each over two units that lie `spread` to either side, and these curves."""
    return [
        Measured(
            Run(f"0001/trials/{i}", i, 5.0, "finished", curve=tuple(curves[i]) if curves else ()),
            Score.of([value - spread, value + spread], True),
        )
        for i, value in enumerate(values)
    ]


def stored(*values: float, digest: str = "d", on: str = "m") -> Calibration:
    return Calibration("noisy", digest, on, 5.0, 20, "auto", 1e9, tuple(measured(*values)))


def run(folder: Path, runs: int = 3, seed: int | None = None) -> tuple[Calibration, calibrate.Session]:
    """A calibration as the command makes it."""
    session = calibrate.prepare(str(folder), runs, [], seed, "auto")
    return session.measure(quiet=True), session


def test_noise_between_runs_is_their_standard_deviation_with_its_chi_square_interval() -> None:
    found = findings(measured(1.0, 2.0, 3.0, 4.0, 5.0))
    assert (found.runs, found.mean, found.sd) == (5, 3.0, pytest.approx(math.sqrt(2.5)))
    # chi-square with 4 degrees of freedom: 2.5 % of it lie below 0.4844, 2.5 % above 11.1433
    assert found.low == pytest.approx(math.sqrt(2.5 * 4 / 11.1433), rel=1e-4)
    assert found.high == pytest.approx(math.sqrt(2.5 * 4 / 0.4844), rel=1e-4)
    assert interval(2.0, 4) == pytest.approx((2 * math.sqrt(4 / 11.1433), 2 * math.sqrt(4 / 0.4844)), rel=1e-4)


def test_units_explain_their_share_of_the_variance_between_runs() -> None:
    """Two units 0.5 to either side: an sd of sqrt(0.5), so a standard error of 0.5."""
    found = findings(measured(1.0, 2.0, 3.0, 4.0, 5.0))
    assert (found.unit_se, found.unit_share) == (pytest.approx(0.5), pytest.approx(0.25 / 2.5))


def test_of_single_units_nobody_can_tell_what_they_explain() -> None:
    runs = [dataclasses.replace(one, score=Score.of([i], True)) for i, one in enumerate(measured(1.0, 2.0, 3.0))]
    found = findings(runs)
    assert (found.unit_se, found.unit_share) == (None, None)
    assert "each run has a single one" in " ".join(calibrate.in_words(found, "reward"))


def test_gains_are_told_with_the_runs_that_they_need_and_arms_with_what_they_show() -> None:
    found = findings(measured(1.0, 2.0, 3.0, 4.0, 5.0), gain=4.0)
    sd = math.sqrt(2.5)
    assert [(one.sds, one.runs, one.noisier) for one in found.needed] == [
        (0.5, 51, 98),
        (1.0, 14, 25),
        (2.0, 5, 8),
        (3.0, 3, 4),
    ]
    assert [one.gain for one in found.needed] == pytest.approx([0.5 * sd, sd, 2 * sd, 3 * sd])
    assert [one.runs for one in found.detects] == [3, 4, 5]
    assert [one.gain / sd for one in found.detects] == pytest.approx([2.801, 2.117, 1.788], abs=1e-3)
    assert [one.noisier / sd for one in found.detects] == pytest.approx([3.945, 2.977, 2.512], abs=1e-3)
    assert found.asked is not None and (found.asked.gain, found.asked.runs, found.asked.noisier) == (4.0, 4, 5)
    assert found.certificate == 4
    assert findings(measured(1.0, 2.0, 3.0, 4.0, 5.0), gain=4.5).certificate == 3
    assert findings(measured(1.0, 2.0, 3.0, 4.0, 5.0), gain=0.1).certificate == 5
    assert findings(measured(1.0, 2.0, 3.0)).asked is None


@pytest.mark.parametrize(
    ("gain", "runs"), [(None, 1), (2.0, 1), (1.0, 1), (0.99, 2), (math.sqrt(0.5), 2), (0.5, 4), (0.01, 4)]
)
def test_a_trial_is_replicated_until_its_mean_is_no_noisier_than_the_gain(gain: float | None, runs: int) -> None:
    assert replicates(1.0, gain) == runs


def test_runs_that_all_score_the_same_have_no_noise() -> None:
    found = findings(measured(2.0, 2.0, 2.0), gain=0.1)
    assert (found.sd, found.needed, found.unit_share, found.replicates) == (0.0, (), None, 1)
    assert [one.gain for one in found.detects] == [0.0, 0.0, 0.0]
    assert found.asked is not None and (found.asked.sds, found.asked.runs) == (None, 2)
    json.dumps(dataclasses.asdict(found), allow_nan=False)
    assert "all scored the same" in calibrate.in_words(found, "reward")[0]


@pytest.mark.parametrize("values", [(), (1.0, 2.0)])
def test_fewer_than_three_runs_say_nothing(values: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=f"3 runs .*{len(values)} of {len(values)}"):
        findings(measured(*values))


def test_a_run_without_a_score_is_none_to_calibrate_with() -> None:
    crashed = Measured(measured(1.0)[0].run, Score.missing("exited with status 1", True))
    with pytest.raises(ValueError, match="3 of 4"):
        findings([*measured(1.0, 2.0, 3.0), crashed])


def test_foresight_is_the_correlation_with_the_end_and_the_error_of_predicting_it() -> None:
    """Progress (1, 2, 3, 4) against scores (1, 3, 2, 4): r = 0.8, residual variance (1 - 0.64) * 3 / 2 of the runs'."""
    curves: list[list[float | None]] = [[None, v, v * 2.0, v / 2.0] for v in (1.0, 2.0, 3.0, 4.0)]
    seen = foresight(
        [(one.run, score) for one, score in zip(measured(1, 3, 2, 4, curves=curves), (1, 3, 2, 4), strict=True)]
    )
    assert [one.fraction for one in seen] == [0.1, 0.15, 0.2], "from where every run had reported"
    assert [one.noise for one in seen] == pytest.approx([2.0, 4.0, 1.0])
    for one in seen:
        assert one.correlation == pytest.approx(0.8)
        assert one.error == pytest.approx(math.sqrt(0.36 * 3 / 2))
        assert one.low == pytest.approx(math.tanh(math.atanh(0.8) - 1.96), abs=1e-4)
        assert one.high == pytest.approx(math.tanh(math.atanh(0.8) + 1.96), abs=1e-4)


def test_three_runs_leave_a_correlation_wide_open() -> None:
    curves: list[list[float | None]] = [[1.0], [2.0], [4.0]]
    (one,) = findings(measured(1.0, 2.0, 3.0, curves=curves)).foresight
    assert one.correlation is not None and (one.low, one.high) == (None, None)


def test_progress_that_is_the_same_for_all_runs_predicts_nothing() -> None:
    curves: list[list[float | None]] = [[1.0], [1.0], [1.0]]
    found = findings(measured(1.0, 2.0, 3.0, curves=curves))
    assert [(one.correlation, one.noise) for one in found.foresight] == [(None, None)]
    assert found.cancel is None


@pytest.mark.parametrize(("noise_until", "fraction"), [(0, 0.2), (8, 0.45), (17, 0.9), (18, None), (19, None)])
def test_a_run_is_judged_by_its_progress_once_that_is_at_most_twice_as_noisy_as_at_its_end(
    noise_until: int, fraction: float | None
) -> None:
    curves: list[list[float | None]] = [
        [v * (2.1 if at < noise_until else 2.0 if at < TWENTIETHS - 1 else 1.0) for at in range(TWENTIETHS)]
        for v in (1.0, 2.0, 3.0, 5.0)
    ]
    assert findings(measured(1.0, 2.0, 3.0, 5.0, curves=curves)).cancel == fraction


def test_without_progress_nothing_is_cancelled() -> None:
    found = findings(measured(1.0, 2.0, 3.0))
    assert (found.cancel, found.foresight) == (None, ())
    assert "cancel = none: no progress is reported that every run has in common" in calibrate.in_words(found, "reward")


@pytest.mark.parametrize(
    ("spread", "words"), [(0.1, "only more runs help"), (0.9, "more units for each run are the cheapest")]
)
def test_the_words_say_whether_units_or_runs_are_short(spread: float, words: str) -> None:
    found = findings(measured(1.0, 2.0, 3.0, spread=spread))
    assert words in " ".join(calibrate.in_words(found, "reward"))


def test_a_gain_beyond_a_certificate_is_told_with_what_it_needs() -> None:
    words = calibrate.in_words(findings(measured(1.0, 2.0, 3.0), gain=0.5), "reward")[-1]
    assert "A gain of 0.5 needs 51 runs of each arm" in words
    assert "that of a campaign has at most 5 v 3, 10 v 4 from 12 trials on, 17 v 8 from 30 trials on" in words
    exact = calibrate.in_words(findings(measured(1.0, 1.0, 1.0)), "reward", deterministic=True)[-1]
    assert exact.endswith("that of a campaign has at most 2 v 2")
    tiny = calibrate.in_words(findings(measured(1.0, 2.0, 3.0), gain=0.001), "reward")[-1]
    assert "needs more than 1000 runs of each arm" in tiny
    large = calibrate.in_words(findings(measured(1.0, 2.0, 3.0), gain=9.0), "reward")[-1]
    assert "3 runs of each arm" in large and "needs" not in large


def test_runs_are_added_to_those_of_the_same_digest_and_machine_alone(tmp_path: Path) -> None:
    calibration.add(tmp_path, stored(1.0, 2.0, 3.0))
    assert calibration.add(tmp_path, stored(4.0, 5.0, 6.0)).values == (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
    calibration.add(tmp_path, stored(7.0, digest="e"))
    calibration.add(tmp_path, stored(8.0, on="another"))
    found = {
        (digest, on): calibration.find(tmp_path, digest, on) for digest in ("d", "e", "f") for on in ("m", "another")
    }
    assert {key: one.values for key, one in found.items() if one} == {
        ("d", "m"): (1.0, 2.0, 3.0, 4.0, 5.0, 6.0),
        ("e", "m"): (7.0,),
        ("d", "another"): (8.0,),
    }


def test_a_calibration_gives_reruns_of_a_baseline() -> None:
    first, second = reruns(stored(1.0, 2.0))
    assert (first.of, first.score.value, second.of, second.score.value) == (0, 1.0, 0, 2.0)
    assert first.run.dir == "../.calibrations/noisy/0001/trials/0", "as seen from a campaign's directory"


def test_a_calibration_is_stored_and_a_second_one_adds_to_it(tmp_path: Path, home: Path) -> None:
    folder = noisy(tmp_path / "noisy")
    first, session = run(folder)
    calibration.add(home, first)
    assert calibration.find(home, session.digest, machine()) == first
    assert [one.run.dir for one in first.runs] == [f"0001/trials/{n}" for n in (1, 2, 3)]
    assert all((session.stage.root / one.run.dir / "log.txt").is_file() for one in first.runs)
    assert all(len(one.run.curve) == TWENTIETHS for one in first.runs)
    second, again = run(folder)
    assert again.known == first.runs and again.digest == session.digest
    assert {one.run.seed for one in second.runs}.isdisjoint(one.run.seed for one in first.runs)
    whole = calibration.add(home, second)
    assert whole.runs == first.runs + second.runs
    assert calibration.find(home, session.digest, machine()) == whole
    (path,) = (home / ".calibrations/noisy").glob("*.json")
    assert path == calibration.path_of(home, whole)


def test_every_run_is_judged_on_units_of_its_own(tmp_path: Path) -> None:
    still = DRAW.replace("+ draw.gauss(0, 1)", "").replace(
        '{"reward": reward}', '{"reward": reward, "seed": config["seed"]}'
    )
    found, _ = run(noisy(tmp_path / "noisy", still))
    assert len(set(found.values)) == 3


def test_a_campaign_finds_the_calibration_of_its_environment(tmp_path: Path, home: Path) -> None:
    folder = noisy(tmp_path / "noisy")
    whole = calibration.add(home, run(folder)[0])
    ledger = campaign(folder)
    digest = calibration.digest(ledger.path, ledger.environment)
    assert calibration.find(home, digest, machine()) == whole
    for rerun in reruns(whole):
        assert (ledger.path / rerun.run.dir / "out/model.json").is_file()


@pytest.mark.parametrize(
    "changed",
    [
        {"toml": TOML.replace("budget_seconds = 5", "budget_seconds = 4")},
        {"toml": TOML.replace("default = 0.0", "default = 1.0")},
        {"draw": DRAW + "# more\n"},
    ],
)
def test_whatever_changes_a_score_makes_another_digest(tmp_path: Path, changed: dict[str, Any]) -> None:
    folder = noisy(tmp_path / "noisy")
    before = calibrate.prepare(str(folder), 3, [], None, "auto").digest
    assert calibrate.prepare(str(folder), 3, [], None, "auto").digest == before
    noisy(folder, **changed)
    assert calibrate.prepare(str(folder), 3, [], None, "auto").digest != before


@pytest.mark.parametrize("setting", ["budget_seconds=4", "command.total_seconds=19"])
def test_a_setting_laid_over_the_file_makes_another_digest(tmp_path: Path, setting: str) -> None:
    folder = str(noisy(tmp_path / "noisy"))
    digests = [calibrate.prepare(folder, 3, over, None, "auto").digest for over in ([], [setting])]
    assert digests[0] != digests[1]


def test_a_seed_that_was_run_is_refused_for_it_would_count_twice(tmp_path: Path, home: Path) -> None:
    folder = noisy(tmp_path / "noisy")
    calibration.add(home, run(folder, seed=4)[0])
    with pytest.raises(Refused, match="--seed 4 "):
        calibrate.prepare(str(folder), 5, [], 4, "auto")
    assert not (home / ".calibrations/noisy/0002").exists()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("cartpole", "--runs", "2"), "--runs 2: a spread needs at least 3 runs"),
        (("cartpole", "--gain", "0"), "--gain 0: give the least gain that is worth finding, above 0"),
        (("cartpole", "--gain", "inf"), "--gain inf: give the least gain"),
        (("cartpole", "--gain", "nan"), "--gain nan: give the least gain"),
    ],
)
def test_what_cannot_be_calibrated_is_refused_before_anything_is_made(
    arguments: tuple[str, ...], why: str, home: Path
) -> None:
    with pytest.raises(Refused, match=re.escape(why)):
        app(["calibrate", *arguments], exit_on_error=False, print_error=False)
    assert not home.exists()


def test_an_unknown_environment_is_refused_with_the_near_miss(home: Path) -> None:
    with pytest.raises(Refused, match=r"'cartpol'.*'cartpole'\?"):
        calibrate.prepare("cartpol", 3, [], None, "auto")
    assert not (home / ".calibrations").exists()


def test_the_runs_before_an_interruption_are_stored_and_too_few_for_a_campaign(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = noisy(tmp_path / "noisy")
    session = calibrate.prepare(str(folder), 3, [], None, "auto")
    shown = iter(range(2))

    def ask_to_end(score: Score) -> str:
        if next(shown):
            os.kill(os.getpid(), signal.SIGINT)
        return ""

    with monkeypatch.context() as patched:
        patched.setattr(calibrate.single_run, "score_text", ask_to_end)
        with pytest.raises(KeyboardInterrupt):
            session.measure()
    assert capsys.readouterr().err == "stored the 2 of 3 runs that had ended\n"
    found = calibration.find(home, session.digest, machine())
    assert found is not None and len(found.runs) == 2
    assert campaign(folder).calibrated == (), "two runs tell no spread"
    calibration.add(home, run(folder, 3)[0])
    assert len(campaign(folder, "again").calibrated) == 5


@pytest.mark.slow
def test_a_baseline_that_crashes_stores_nothing_and_says_why(tmp_path: Path, home: Path) -> None:
    folder = noisy(tmp_path / "noisy", "raise SystemExit('no idea')\n")
    done = nightshift("calibrate", str(folder), "--json")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert "no idea" in found["error"]
    assert list((home / ".calibrations/noisy").glob("*.json")) == []
    assert len(list(Path(found["directory"], "trials").iterdir())) == 1, "the first crash ends it"


@pytest.mark.slow
def test_the_command_reports_in_tables_and_words(tmp_path: Path, home: Path) -> None:
    done = nightshift(
        "calibrate", str(noisy(tmp_path / "noisy")), "--runs", "4", "--gain", "9", "--set", "budget_seconds=4"
    )
    assert done.returncode == 0, done.stderr
    for shown in (
        "run 4 of 4  seed ", f"noisy on {machine()}, 4 s a run: 4 runs", "needs runs of each arm", "show a gain of",
        "correlation", "noise between runs: sd ", "95 % interval", "units: one run's score is known to", "cancel",
        "replicates = 1", "certificate: 3 runs of each arm", "see ",
    ):  # fmt: skip
        assert shown in done.stdout


@pytest.mark.slow
def test_with_json_there_is_one_document_and_nothing_else(tmp_path: Path, home: Path) -> None:
    done = nightshift("calibrate", str(quadratic(tmp_path / "quad")), "--runs", "3", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found.keys() == {
        "environment", "digest", "machine", "metric", "direction", "budget_seconds", "budget_steps", "device",
        "created", "runs", "findings", "words", "path",
    }  # fmt: skip
    assert [row["score"] for row in found["runs"]] == [2.25, 2.25, 2.25]
    assert (found["findings"]["sd"], found["findings"]["foresight"]) == (0.0, [])
    assert json.loads(Path(found["path"]).read_text())["digest"] == found["digest"]


def test_the_largest_numbers_that_a_program_may_report_are_no_trouble() -> None:
    curves: list[list[float | None]] = [[v * 1e99] for v in (1.0, 2.0, 3.0, 4.0)]
    (one,) = findings(measured(1.0, 2.0, 3.0, 4.0, curves=curves)).foresight
    assert (one.correlation, one.error) == (pytest.approx(1.0), pytest.approx(0.0, abs=1e-6))

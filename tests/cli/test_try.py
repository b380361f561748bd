"""`nightshift try`: what is refused, what several runs say of the noise, and what a campaign can take over."""

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
from tasks.stats.power import POWER, power
from tasks.store.calibration import Calibration, Measured, reruns, sd_interval

from environments.plugins import Refused
from environments.score import Score
from flows.cli import trying
from flows.cli.app import app
from flows.cli.single_runs import Side
from flows.cli.trying import Try
from flows.spec.environment import checked_environment
from tasks.store import calibration
from tasks.store.ledger import machine
from tasks.trial import TWENTIETHS, Run
from tests.support.noisy import BETTER, DRAW, TOML, campaign, noisy, settled
from tests.support.toy import nightshift, quadratic


def ready(folder: Path, runs: int = 3, seed: int = 1, settings: dict[str, Any] | None = None) -> Try:
    """Runs of the baseline, laid out and not yet made."""
    problem = checked_environment(str(folder), settings or {})
    return trying.prepare(problem, None, Side("run"), tuple(range(seed, seed + runs)))


def stored(home: Path, one: Try) -> Calibration | None:
    return calibration.find(home, calibration.digest(one.stage.folder, one.stage.environment), machine())


def recorded(*values: float, digest: str = "d", on: str = "m") -> Calibration:
    runs = [Run(f"0001/trials/run-{i}", i, 5.0, "finished") for i, _ in enumerate(values)]
    scores = [Score.of([value - 0.5, value + 0.5], True) for value in values]
    return Calibration("noisy", digest, on, 5.0, 20, "auto", 1e9, tuple(map(Measured, runs, scores)))


def test_the_spread_has_its_chi_square_interval_and_the_gain_is_one_that_the_certificate_shows() -> None:
    noise = trying.noise_of([1.0, 2.0, 3.0, 4.0, 5.0], deterministic=False, of_baseline=True)
    assert noise["sd"] == pytest.approx(math.sqrt(2.5))
    # chi-square with 4 degrees of freedom: 2.5 % of it lie below 0.4844, 2.5 % above 11.1433
    assert noise["sd_low"] == pytest.approx(math.sqrt(2.5 * 4 / 11.1433), rel=1e-4)
    assert sd_interval(2.0, 4) == pytest.approx((2 * math.sqrt(4 / 11.1433), 2 * math.sqrt(4 / 0.4844)), rel=1e-4)
    shown = noise["detectable"]
    assert (shown["champion"], shown["baseline"]) == (10, 4)
    assert POWER < power((10, 4), shown["gain"], noise["sd"], alpha=0.05) < POWER + 0.1, "at the level of its last look"
    assert shown["noisier"] > shown["gain"]


def test_runs_that_all_score_the_same_have_no_noise_and_one_has_no_spread() -> None:
    noise = trying.noise_of([2.0, 2.0, 2.0], deterministic=True, of_baseline=True)
    assert (noise["sd"], noise["detectable"]["gain"]) == (0.0, 0.0)
    assert trying.noise_of([2.0], False, True)["sd"] is None


def test_runs_are_added_to_those_of_the_same_digest_and_machine_alone(tmp_path: Path) -> None:
    calibration.add(tmp_path, recorded(1.0, 2.0, 3.0))
    assert calibration.add(tmp_path, recorded(4.0, 5.0)).values == (1.0, 2.0, 3.0, 4.0, 5.0)
    calibration.add(tmp_path, recorded(7.0, digest="e"))
    calibration.add(tmp_path, recorded(8.0, on="another"))
    found = {(digest, on): calibration.find(tmp_path, digest, on) for digest in "def" for on in ("m", "another")}
    assert {key: one.values for key, one in found.items() if one} == {
        ("d", "m"): (1.0, 2.0, 3.0, 4.0, 5.0), ("e", "m"): (7.0,), ("d", "another"): (8.0,),
    }  # fmt: skip


def test_runs_of_a_baseline_are_stored_and_a_campaign_takes_them_over(tmp_path: Path, home: Path) -> None:
    folder = noisy(tmp_path / "noisy")
    first = ready(folder)
    done = first.measure(quiet=True)
    known = stored(home, first)
    assert known is not None and [one.run for one in known.runs] == [one.run for one in done]
    assert len({one.score.value for one in done}) == 3 and all(len(one.run.curve) == TWENTIETHS for one in done)
    second = ready(folder, runs=2, seed=7)
    assert second.known == known.runs
    second.measure(quiet=True)
    ledger = campaign(folder)
    assert len(ledger.calibrated) == 5
    for rerun in ledger.calibrated:
        assert (ledger.path / rerun.run.dir / "out/model.json").is_file()


def test_every_run_is_judged_on_units_of_its_own(tmp_path: Path) -> None:
    still = DRAW.replace("+ draw.gauss(0, 1)", "").replace(
        '{"reward": reward}', '{"reward": reward, "seed": config["seed"]}'
    )
    assert len({one.score.value for one in ready(noisy(tmp_path / "noisy", still)).measure(quiet=True)}) == 3


def test_a_calibration_gives_reruns_of_a_baseline() -> None:
    first, second = reruns(recorded(1.0, 2.0))
    assert (first.of, first.score.value, second.of, second.score.value) == (0, 1.0, 0, 2.0)
    assert first.run.dir == "../.calibrations/noisy/0001/trials/run-0", "as seen from a campaign's directory"


@pytest.mark.parametrize(
    "changed",
    [
        {"toml": TOML.replace("budget_seconds = 5", "budget_seconds = 4")},
        {"toml": TOML.replace("default = 0.0", "default = 1.0")},
        {"draw": DRAW + "# more\n"},
    ],
)
def test_whatever_changes_a_score_makes_another_digest(tmp_path: Path, changed: dict[str, Any]) -> None:
    def digest(**settings: Any) -> str:
        one = ready(folder, settings=settings).stage
        return calibration.digest(one.folder, one.environment)

    folder = noisy(tmp_path / "noisy")
    before = digest()
    assert digest() == before != digest(**{"command.total_seconds": 19})
    noisy(folder, **changed)
    assert digest() != before


def test_a_seed_that_was_run_is_refused_for_it_would_count_twice(tmp_path: Path, home: Path) -> None:
    folder = noisy(tmp_path / "noisy")
    ready(folder, runs=2, seed=4).measure(quiet=True)
    with pytest.raises(Refused, match="seed 5 was run already"):
        ready(folder, runs=3, seed=5)
    assert not (home / ".calibrations/noisy/0002").exists()


def test_the_runs_before_an_interruption_are_stored_and_too_few_for_a_campaign(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = noisy(tmp_path / "noisy")
    one, shown = ready(folder), iter(range(2))

    def ask_to_end(score: Score) -> str:
        if next(shown):
            os.kill(os.getpid(), signal.SIGINT)
        return ""

    monkeypatch.setattr(trying.single_runs, "score_text", ask_to_end)
    with pytest.raises(KeyboardInterrupt):
        one.measure(quiet=False)
    found = stored(home, one)
    assert found is not None and len(found.runs) == 2
    assert campaign(folder).calibrated == (), "two runs tell too little of their spread"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("cartpole", "--params", "{x: 1}"), "--params '{x: 1}' is not JSON"),
        (("cartpole", "--params", "[1]"), "--params '[1]': give a JSON object of numbers, texts and booleans"),
        (("cartpole", "--params", '{"lr": null}'), "give a JSON object of numbers, texts and booleans"),
        (("cartpole", "--diff", "no.diff"), "--diff no.diff: No such file or directory"),
        ((), "name one of the two: an environment, or --in CAMPAIGN"),
        (("cartpole", "--in", "n"), "name one of the two: an environment, or --in CAMPAIGN"),
        (("--in", "n"), "unknown campaign 'n'"),
    ],
)
def test_a_try_that_says_nothing_sensible_is_refused(arguments: tuple[str, ...], why: str, home: Path) -> None:
    with pytest.raises(Refused, match=re.escape(why)):
        app(["try", *arguments], exit_on_error=False, print_error=False)
    assert not home.exists() or list(home.iterdir()) == []


@pytest.mark.slow
def test_a_baseline_that_crashes_stores_nothing_and_says_why(tmp_path: Path, home: Path) -> None:
    folder = noisy(tmp_path / "noisy", "raise SystemExit('no idea')\n")
    done = nightshift("try", str(folder), "--runs", "4", "--json")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert "no idea" in found["error"] and (found["score"], found["sd"]) == (None, None)
    assert list((home / ".calibrations/noisy").glob("*.json")) == []
    assert len(found["runs"]) == len(list(Path(found["directory"], "trials").iterdir())) == 1, "the first crash ends it"


@pytest.mark.slow
def test_in_a_campaign_the_program_and_parameters_are_run_in_its_frozen_environment(tmp_path: Path, home: Path) -> None:
    folder = noisy(tmp_path / "noisy")
    settled(campaign(folder), {"x": 50.0})
    noisy(folder, "changed meanwhile\n")
    (tmp_path / "better.diff").write_text(BETTER)
    told = ("--params", '{"x": 3}', "--diff", str(tmp_path / "better.diff"), "--runs", "2")
    done = nightshift("try", "--in", "night", *told)
    assert done.returncode == 0, done.stderr
    assert (
        "reward 5" in done.stdout and "the champion of night had " in done.stdout and "certificate" not in done.stdout
    )
    assert not (home / ".calibrations").exists(), "they are no runs of the baseline"


@pytest.mark.slow
def test_with_json_there_is_one_document_and_nothing_else(tmp_path: Path, home: Path) -> None:
    folder = str(quadratic(tmp_path / "quad"))
    once = nightshift("try", folder, "--seed", "7", "--json")
    assert (once.returncode, once.stderr) == (0, "")
    found = json.loads(once.stdout)
    assert (
        found.items() >= {"environment": "quad", "metric": "loss", "score": 2.25, "seed": 7, "champion": None}.items()
    )
    several = nightshift("try", folder, "--runs", "3", "--json")
    assert (several.returncode, several.stderr) == (0, "")
    found = json.loads(several.stdout)
    assert [row["score"] for row in found["runs"]] == [2.25, 2.25, 2.25] and found["score"] == 2.25
    assert found["sd"] == 0.0 and found["detectable"]["gain"] == 0.0
    assert dataclasses.asdict(ready(Path(folder)).known[0].score)["value"] == 2.25

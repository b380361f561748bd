"""`nightshift try`: what is refused, what several runs say of the noise, and what a campaign can take over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flows.cli.single_runs import TRIES, Side, in_environment, isolated, measure, set_up
from tests.support.noisy import BETTER, DRAW, campaign, noisy, settled
from tests.support.toy import nightshift, quadratic


def test_every_run_is_judged_on_units_of_its_own(tmp_path: Path) -> None:
    still = DRAW.replace("+ draw.gauss(0, 1)", "").replace(
        '{"reward": reward}', '{"reward": reward, "seed": config["seed"]}'
    )
    question = in_environment({"run": Side()}, str(noisy(tmp_path / "noisy", still)), {}, trust=False)
    with set_up(question, TRIES, isolated("auto", allow_unsandboxed=False)) as stage:
        assert len({one.score.value for one in measure(stage, [1, 2, 3])}) == 3


@pytest.mark.slow
def test_a_baseline_that_crashes_says_why(tmp_path: Path, home: Path) -> None:
    folder = noisy(tmp_path / "noisy", "raise SystemExit('no idea')\n")
    done = nightshift("try", str(folder), "--runs", "4", "--json")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert "no idea" in found["error"] and (found["score"], found["sd"]) == (None, None)
    assert len(found["runs"]) < 4, "the first crash ends it"


@pytest.mark.slow
def test_in_a_campaign_the_program_and_parameters_are_run_in_its_frozen_environment(tmp_path: Path, home: Path) -> None:
    folder = noisy(tmp_path / "noisy")
    settled(campaign(folder), {"x": 50.0})
    noisy(folder, "changed meanwhile\n")
    (tmp_path / "better.diff").write_text(BETTER)
    told = ("--params", '{"x": 3}', "--diff", str(tmp_path / "better.diff"), "--runs", "2")
    done = nightshift("try", "--in", "night", *told)
    assert done.returncode == 0, done.stderr
    assert "reward 5" in done.stdout


@pytest.mark.slow
def test_with_json_there_is_one_document_and_nothing_else(tmp_path: Path, home: Path) -> None:
    folder = str(quadratic(tmp_path / "quad"))
    once, several = (
        nightshift("try", folder, "--seed", "7", "--json"),
        nightshift("try", folder, "--runs", "3", "--json"),
    )
    assert (once.returncode, several.returncode) == (0, 0), once.stderr + several.stderr
    assert (
        json.loads(once.stdout).items() >= {"environment": "quad", "metric": "loss", "score": 2.25, "seed": 7}.items()
    )
    found = json.loads(several.stdout)
    assert [row["score"] for row in found["runs"]] == [2.25, 2.25, 2.25] and found["score"] == 2.25
    assert found["sd"] == 0.0 and found["detectable"]["gain"] == 0.0

"""Guarded metrics: how they are stated, what is refused early, and that an unmeasured one is no score."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import environments
from environments import Environment
from environments.metric_guards import Guard
from environments.plugins import Refused
from environments.score import Score
from tasks.evaluate import judge_run
from tasks.store.workspace import TrialDir
from tasks.train import run_program
from tasks.trial import Proposal
from tests.support.toy import QUADRATIC, SANDBOX, quadratic

GUARDED = (
    QUADRATIC
    + """
[guards."tokens/mean"]
margin = 20
"""
)
CONTROL = """\
metric = "return/mean"
direction = "maximize"
trainer = "ppo"
judge = "control"
budget_seconds = 5

[control]
id = "Pendulum-v1"
other_episodes = 0
sources.moon.kwargs = {g = 1.6}
sources.earth.kwargs = {g = 9.8}

[guards."source/moon"]
margin = 20
"""


def written(folder: Path, toml: str) -> Environment:
    return environments.load(quadratic(folder / "quad", toml=toml))


def test_a_guard_points_the_way_of_the_objective_unless_it_says_otherwise(tmp_path: Path) -> None:
    assert written(tmp_path, GUARDED).guards == {"tokens/mean": Guard(margin=20, direction="minimize")}
    assert written(tmp_path, GUARDED + 'direction = "maximize"').guards["tokens/mean"].direction == "maximize"
    assert written(tmp_path, CONTROL).guards["source/moon"].direction == "maximize"
    assert written(tmp_path, QUADRATIC).guards == {}


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("margin = 20", "margin = -1", "guards.tokens/mean.margin: Input should be greater than or equal to 0, got -1"),
        ("margin = 20", "margin = 20\nmargn = 3", "guards.tokens/mean.margn: unknown key."),
        ("tokens/mean", "loss", "guards: 'loss' is the objective: guard what stands beside it"),
    ],
)  # fmt: skip
def test_a_bad_guard_is_refused_with_file_and_key(tmp_path: Path, old: str, new: str, why: str) -> None:
    assert old in GUARDED
    with pytest.raises(Refused) as refused:
        written(tmp_path, GUARDED.replace(old, new, 1))
    (line,) = str(refused.value).splitlines()
    assert line.startswith(f"{tmp_path / 'quad/environment.toml'}: ")
    assert why in line


def test_a_guard_on_what_the_judge_never_measures_is_refused(tmp_path: Path) -> None:
    written(tmp_path, CONTROL).check()
    known = "Available: return/deterministic, source/moon, source/earth."
    for wrong, help in (("source/mon", "Did you mean 'source/moon'? "), ("tokens", "")):
        environment = written(tmp_path, CONTROL.replace('guards."source/moon"', f'guards."{wrong}"'))
        why = f"environment.toml: guards: unknown metric of the judge {wrong!r}. {help}{known}"
        with pytest.raises(Refused, match=re.escape(why)):
            environment.check()


def scored(folder: Path, result: dict[str, object]) -> Score:
    """What judging the baseline under a guard gives, when the evaluation leaves this result."""
    judge = f"import pathlib, sys\npathlib.Path(sys.argv[2]).write_text({json.dumps(result)!r})\n"
    environment = environments.load(quadratic(folder / "quad", toml=GUARDED, judge=judge))
    environment.check()
    place = TrialDir(folder / "trial")
    place.path.mkdir()
    (folder / "program").mkdir()
    (folder / "program/fit.py").write_text((folder / "quad/fit.py").read_text())
    run = run_program("test/guard", environment, SANDBOX, folder / "program", place, Proposal({"x": 1.0}), seed=7)
    return judge_run("test/guard", environment, SANDBOX, place, run, seed=8)


def test_a_result_without_a_guarded_metric_is_no_score(tmp_path: Path) -> None:
    score = scored(tmp_path, {"score": 0.5, "also": {"tokens": 3}})
    why = "the result lacks guard metric 'tokens/mean': write it under \"also\""
    assert (score.value, score.error) == (None, why)

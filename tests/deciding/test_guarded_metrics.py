"""Guarded metrics: how they are stated, what is refused early, and that an unmeasured one is no score."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import environments
from environments import Environment
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

"""Guarded metrics: how they are stated, what is refused early, and that an unmeasured one is no score."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import environments
from environments import Environment
from environments.plugins import Refused
from environments.score import Guard, Score
from tasks.decide import fallen, weigh
from tasks.evaluate import judge_run
from tasks.rules import JudgedTrial, NeedsRerun, Rule
from tasks.rules.certify import Certify
from tasks.rules.greedy import Greedy
from tasks.store.workspace import TrialDir
from tasks.train import run_program
from tasks.trial import History, Proposal, Trial, Verdict
from tests.support import histories
from tests.support.histories import tried, undemanding
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


def test_a_result_without_a_guarded_metric_is_no_score(tmp_path: Path) -> None:
    result = json.dumps({"score": 0.5, "also": {"tokens": 3}})
    judge = f"import pathlib, sys\npathlib.Path(sys.argv[2]).write_text({result!r})\n"
    environment = environments.load(quadratic(tmp_path / "quad", toml=GUARDED, judge=judge))
    place = TrialDir(tmp_path / "trial")
    run = run_program("test/guard", environment, SANDBOX, environment.folder, place, Proposal({"x": 1.0}), seed=7)
    score = judge_run("test/guard", environment, SANDBOX, place, run, seed=8)
    why = "the result lacks guard metric 'tokens/mean': write it under \"also\""
    assert (score.value, score.error) == (None, why)


# In the search: how often equal programs are blocked, and what corrects a lucky baseline

GUARDS = {"calm": Guard(margin=0.0)}


def with_calm(calm: Sequence[float], score: float = 1.0) -> Score:
    return Score.over([replace(histories.scored(score), also={"calm": value}) for value in calm])


def trial(history: History, calm: Sequence[float]) -> Trial:
    return replace(tried(history, *(1.0 for _ in calm), kind="keep"), score=with_calm(calm))


def blocked(history: History, *calm: float) -> bool:
    return fallen(GUARDS, history, with_calm(calm)) is not None


@pytest.mark.parametrize(("before", "now"), [(3, 1), (2, 1), (6, 1), (3, 3)])
def test_equal_programs_are_seldom_blocked(before: int, now: int) -> None:
    draw, nights = np.random.default_rng(before), 800
    falls = sum(blocked((trial((), draw.normal(50, 4, before)),), *draw.normal(50, 4, now)) for _ in range(nights))
    assert 0.01 < falls / nights < 0.045


def test_what_else_ran_more_than_once_corrects_a_baseline_whose_runs_agree_by_luck() -> None:
    lucky = (trial((), (50.0, 50.0, 50.0)),)
    assert blocked(lucky, 49.0)
    known = (*lucky, trial(lucky, (45.0, 51.0)))
    assert not blocked(known, 49.0) and blocked(known, 20.0)


@pytest.mark.parametrize("rule", [Certify(), Greedy()])
def test_a_guarded_metric_is_compared_with_the_baselines_and_cannot_fall_step_by_step(rule: Rule) -> None:
    """The baseline's runs have 49, 50 and 51: by t with 2 degrees of freedom, 4.97 below 50 is the limit."""
    environment = undemanding().model_copy(update={"guards": {"calm": Guard(margin=0.5)}})
    history: History = (trial((), (49.0, 50.0, 51.0)),)
    history += (trial(history, (46.0,)),)
    for calm in (45.1, 90.0, 44.9):
        judged = tried(history, 400.0)
        found = weigh(
            history, environment, rule, JudgedTrial(2, judged.proposal, judged.runs, with_calm([calm], 400.0))
        )
        if calm > 45:
            assert isinstance(found, NeedsRerun) or (isinstance(found, Verdict) and found.kind == "keep")
    assert isinstance(found, Verdict) and found.kind == "discard"
    assert found.reason.startswith("calm fell from 50 to 44.9, more than 4.97 (what its noise explains)")


def test_a_metric_that_was_measured_once_has_no_noise_and_blocks_by_its_margin() -> None:
    once = (trial((), (50.0,)),)
    assert blocked(once, 49.9) and not blocked(once, 50.0)

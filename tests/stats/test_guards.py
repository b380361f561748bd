"""Guarded metrics in the search: how often equal programs are blocked by them, and what corrects a lucky baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from environments.score import Guard, Score
from tasks.stats.guards import fallen
from tasks.trial import History, Trial
from tests.support.histories import scored, tried

GUARDS = {"calm": Guard(margin=0.0)}


def with_calm(calm: Sequence[float]) -> Score:
    return Score.over([replace(scored(1.0), also={"calm": value}) for value in calm])


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


def test_a_metric_that_was_measured_once_has_no_noise_and_blocks_by_its_margin() -> None:
    once = (trial((), (50.0,)),)
    assert blocked(once, 49.9) and not blocked(once, 50.0)

"""The statistics of training runs, next to scipy.stats."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from tasks.deciding.statistics import CONFIDENCE, Comparison, bound, pooled, quantile, welch

ARMS = [
    ((5.0, 7.0, 6.5), (1.0, 2.0, 3.0)),
    ((1.0, 2.0, 3.0), (5.0, 7.0, 6.5)),
    ((210.0, 190.0, 240.0, 170.0, 205.0), (80.0, 82.0)),
    ((1e-6, 2e-6, 4e-6), (1e-6, 1.5e-6, 3e-6)),
    ((-12.0, -12.5), (-300.0, -100.0)),
]


@pytest.mark.parametrize(("arm", "against"), ARMS)
def test_the_test_is_welchs(arm: tuple[float, ...], against: tuple[float, ...]) -> None:
    from scipy import stats

    found, theirs = welch(arm, against), stats.ttest_ind(arm, against, equal_var=False, alternative="greater")
    both = stats.ttest_ind(arm, against, equal_var=False).confidence_interval(CONFIDENCE)
    assert found.gain == pytest.approx(np.mean(arm) - np.mean(against))
    assert (found.p, found.df) == (pytest.approx(theirs.pvalue), pytest.approx(theirs.df))
    assert (found.low, found.high) == (pytest.approx(both.low), pytest.approx(both.high))
    assert bound(found) == pytest.approx(theirs.confidence_interval(CONFIDENCE).low)


@pytest.mark.parametrize(("arm", "against"), ARMS)
def test_the_other_way_round_the_gain_is_the_loss(arm: tuple[float, ...], against: tuple[float, ...]) -> None:
    found, turned = welch(arm, against), welch(against, arm)
    assert found.gain == pytest.approx(-turned.gain)
    assert (found.low, found.high) == (pytest.approx(-turned.high), pytest.approx(-turned.low))
    assert found.p == pytest.approx(1 - turned.p)


def test_an_arm_whose_runs_lie_together_by_luck_is_not_taken_for_quieter_than_the_floor() -> None:
    quiet, loud = (10.0, 10.0, 10.0), (4.0, 8.0, 6.0)
    floored = welch(quiet, loud, floor=3.0)
    error = math.sqrt(3.0 / 3 + 4.0 / 3)
    df = 2  # those of the loud arm alone: what was raised tells nothing
    assert floored.df == pytest.approx(df)
    assert floored.high - floored.gain == pytest.approx(quantile(0.975, df) * error)
    assert floored.p > welch(quiet, loud).p
    still = ((10.0, 10.1, 10.2), (9.0, 9.1, 9.2))
    assert welch(*still).p < 0.001 < 0.2 < welch(*still, floor=3.0).p
    assert welch(loud, (0.0, 4.0, 2.0), floor=3.0) == welch(loud, (0.0, 4.0, 2.0)), "louder than the floor"


@pytest.mark.parametrize(("gain", "p"), [(0.5, 0.0), (0.0, 1.0), (-0.5, 1.0)])
def test_where_nothing_is_random_what_is_seen_is_what_is(gain: float, p: float) -> None:
    found = welch((1.0 + gain, 1.0 + gain), (1.0, 1.0))
    assert found == Comparison(gain, gain, gain, p, None)
    assert bound(found) == gain


@pytest.mark.parametrize("value", [0.1, 0.35, 0.7, 0.9])
def test_runs_that_all_score_the_same_are_no_gain_however_many_either_arm_has(value: float) -> None:
    for mine in range(2, 12):
        assert welch([value] * mine, [value] * 3) == Comparison(0.0, 0.0, 0.0, 1.0, None)


def test_two_equal_arms_pass_as_often_as_the_test_says() -> None:
    """Three runs each of one and the same program: at 5 %, no more than about one in twenty passes."""
    draw = random.Random(1)
    trials = [[[draw.gauss(0, 1) for _ in range(3)] for _ in "ab"] for _ in range(4000)]
    passed = sum(welch(*arms).p <= 0.05 for arms in trials) / len(trials)
    floored = sum(welch(*arms, floor=0.5).p <= 0.05 for arms in trials) / len(trials)
    assert 0.02 < passed < 0.06
    assert floored < passed


def test_noise_is_pooled_over_what_was_run_more_than_once() -> None:
    groups = [(1.0, 3.0), (7.0,), (10.0, 10.0, 13.0), ()]
    found = pooled(groups)
    assert found is not None and found.df == 3
    assert found.sd == pytest.approx(math.sqrt((np.var([1, 3]) * 2 + np.var([10, 10, 13]) * 3) / 3))
    assert pooled([(1.0, 3.0)]) == pooled([(101.0, 103.0)])


@pytest.mark.parametrize("groups", [[], [()], [(1.0,), (2.0,)]])
def test_without_two_runs_of_anything_there_is_no_noise_to_tell(groups: list[tuple[float, ...]]) -> None:
    assert pooled(groups) is None

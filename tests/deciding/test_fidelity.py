"""Whether short runs rank points as whole ones do: the rank correlation next to scipy's, and what follows."""

from __future__ import annotations

import random

import numpy as np
import pytest

from environments.score import Score
from tasks.deciding.fidelity import FEWEST, PAYS, Fidelity, RankCorrelation, advised, found_words, rank_correlation


def scores(*values: float | None, higher: bool = True) -> list[Score]:
    return [Score.missing("crashed", higher) if v is None else Score(v, n=1, higher_is_better=higher) for v in values]


def found(short: list[Score], full: list[Score]) -> RankCorrelation:
    one = rank_correlation(list(zip(short, full, strict=True)))
    assert one is not None
    return one


@pytest.mark.parametrize("higher", [True, False])
@pytest.mark.parametrize("ties", [False, True])
def test_it_is_spearmans(higher: bool, ties: bool) -> None:
    from scipy import stats

    draws = random.Random(1)
    short = [draws.gauss(0, 1) for _ in range(25)]
    full = [one + draws.gauss(0, 1) for one in short]
    if ties:
        short, full = [round(one) for one in short], [round(one) for one in full]
    seen = found(scores(*short, higher=higher), scores(*full, higher=higher))
    assert seen.value == pytest.approx(stats.spearmanr(short, full).statistic)
    assert seen.low < seen.value < seen.high and seen.count == 25


def test_the_interval_holds_the_true_rank_correlation_about_as_often_as_it_says() -> None:
    draws, rho, held = np.random.default_rng(3), 0.7, 0
    truth = 6 / np.pi * np.arcsin(rho / 2)  # of ranks, for two normals
    for _ in range(400):
        first = draws.standard_normal(20)
        second = rho * first + np.sqrt(1 - rho**2) * draws.standard_normal(20)
        seen = found(scores(*first.tolist()), scores(*second.tolist()))
        held += seen.low <= truth <= seen.high
    assert 0.9 <= held / 400 <= 0.985


def test_a_point_that_crashed_short_is_left_out_and_one_that_crashed_in_full_is_the_last() -> None:
    seen = found(scores(1, 2, 3, 4, None), scores(1, 2, 3, None, 9))
    assert (seen.count, seen.value) == (4, pytest.approx(-0.2))


@pytest.mark.parametrize(
    "pairs",
    [(scores(1, 2, 3), scores(1, 2, 3)), (scores(1, 1, 1, 1), scores(1, 2, 3, 4)), (scores(*[None] * 5), scores(*[1] * 5))],
)  # fmt: skip
def test_too_few_points_or_equal_ones_tell_nothing(pairs: tuple[list[Score], list[Score]]) -> None:
    assert rank_correlation(list(zip(*pairs, strict=True))) is None


def test_a_perfect_order_has_an_interval_too() -> None:
    for sign in (1, -1):
        seen = found(scores(1, 2, 3, 4, 5), scores(*(sign * value for value in (1, 2, 3, 4, 5))))
        assert seen.value == pytest.approx(sign)
        assert seen.low < 0.2 < 0.99 < seen.high if sign > 0 else seen.low < -0.99 < -0.2 < seen.high


@pytest.mark.parametrize("count", [4, 6])
def test_the_interval_of_few_points_that_are_often_in_perfect_order_holds_the_truth(count: int) -> None:
    draws, rho, held = np.random.default_rng(3), 0.9, 0
    truth = 6 / np.pi * np.arcsin(rho / 2)
    for _ in range(300):
        first = draws.standard_normal(count)
        second = rho * first + np.sqrt(1 - rho**2) * draws.standard_normal(count)
        seen = found(scores(*first.tolist()), scores(*second.tolist()))
        held += seen.low <= truth <= seen.high
    assert held / 300 >= 0.93


def test_the_least_share_that_pays_is_advised() -> None:
    good, bad = RankCorrelation(0.8, 0.5, 0.9, 20), RankCorrelation(0.34, -0.1, 0.7, 20)
    few = RankCorrelation(0.9, 0.2, 0.99, FEWEST - 1)
    assert advised([]) is None
    known = advised([(0.5, good, 20), (0.3, good, 20), (0.1, bad, 20)])
    assert known is not None and known.share == 0.3 and "0.80" in known.words and "0.50 to 0.90" in known.words
    assert advised([(0.4, bad, 20)]) == Fidelity(1.0, found_words(0.4, bad, 20))
    assert f"from {PAYS:g} on" in found_words(0.4, bad, 20)
    assert not few.pays and "fewer than" in found_words(0.3, few, 9)
    assert "no rank correlation" in found_words(0.3, None, 3)

"""Designs of certificates: their groups, and the error that each may spend."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.stats.design import ALPHA, Looks, alpha_of, design_of, equal_arms, least_p, of_groups
from tasks.stats.permutation import compare


@pytest.mark.parametrize("looks", ["one", "several"])
def test_certificates_share_the_error_and_there_is_always_a_next(looks: Looks) -> None:
    spent: list[float] = []
    for _ in range(10):
        spent.append(alpha_of(spent, looks))
    assert sum(spent) < ALPHA and all(spent)
    assert spent[0] == pytest.approx({"one": 0.048, "several": 0.025}[looks])


def test_longer_searches_get_more_runs_and_where_nothing_is_random_two_may_be_enough() -> None:
    found = {trials: design_of(trials).runs for trials in (1, 20, 35, 36, 5000)}
    assert found == {1: 9, 20: 9, 35: 9, 36: 15, 5000: 15}
    assert design_of(5000, runs=40).runs == 9, "there is time for few"
    assert design_of(20, deterministic=True).groups[0] == (2, 2)
    for alpha in (ALPHA, 0.006, 0.001, 0.0001):
        assert least_p(design_of(20, alpha=alpha).groups[-1]) <= alpha, "it could not pass"


@pytest.mark.parametrize("groups", [design_of(40).groups, equal_arms(3), equal_arms(14), equal_arms(77)])
def test_early_looks_take_less_and_all_together_the_whole_error(groups: tuple[tuple[int, int], ...]) -> None:
    for alpha in (ALPHA, ALPHA / 8, 0.0):
        levels = of_groups(groups, alpha).levels
        assert list(levels) == sorted(levels) and levels[-1] == alpha


def test_more_runs_go_on_with_what_was_spent_on_the_first() -> None:
    first, more = of_groups(((4, 5),), 0.048), of_groups(((4, 2),), 0.001)
    both = more.after(first.groups, first.levels)
    assert both.groups == ((4, 5), (8, 7)) and both.levels == pytest.approx((0.048, 0.049))


def test_the_smallest_gain_that_is_told_is_one_that_the_certificate_shows() -> None:
    design, rng = design_of(20), np.random.default_rng(0)
    gain = design.smallest_gain(sd=2.0, power=0.8)
    nights = [(rng.normal(gain, 2, design.champion), rng.normal(0, 2, design.baseline)) for _ in range(1000)]
    passed = sum(compare([(mine.tolist(), theirs.tolist())], [0.05]).p <= 0.05 for mine, theirs in nights) / 1000
    assert abs(passed - 0.8) < 0.12, "few runs show a little less than the normal approximation says"

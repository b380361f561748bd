"""The test between two arms of runs, and what it holds of repeated looks; pooled noise."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence

import numpy as np
import pytest

from tasks.describe import mean_of
from tasks.stats.champion import run_sd, utility
from tasks.stats.permutation import EXACT, Group, compare, corrected, pooled
from tasks.trial import History
from tests.support.histories import tried

LEVEL = 0.05


def p_by_hand(arm: Sequence[float], against: Sequence[float]) -> float:
    """The share of ways to share out the runs that give the first arm as large a sum."""
    every = (*arm, *against)
    sums = [sum(every[index] for index in one) for one in itertools.combinations(range(len(every)), len(arm))]
    return statistics.mean(one >= sum(arm) - 1e-9 for one in sums)


@pytest.mark.parametrize("seed", range(5))
def test_p_is_the_share_of_ways_to_share_out_the_runs_that_show_as_much(seed: int) -> None:
    rng = np.random.default_rng(seed)
    arm, against = (rng.standard_normal(4) + 1).tolist(), rng.standard_normal(5).tolist()
    found = compare([(arm, against)], [LEVEL])
    assert found.p == pytest.approx(p_by_hand(arm, against))
    assert found.gain == pytest.approx(statistics.mean(arm) - statistics.mean(against))


def test_the_bound_is_the_largest_gain_that_the_test_rejects() -> None:
    arm, against = [9.0, 11.0, 10.0, 14.0], [1.0, 2.0, 0.0, 5.0, 3.0]
    found = compare([(arm, against)], [LEVEL])
    assert found.low is not None and 0 < found.low < found.gain
    for gain, rejected in ((found.low - 1e-6, True), (found.low + 1e-6, False)):
        assert (p_by_hand([value - gain for value in arm], against) <= LEVEL) is rejected


def test_what_passes_is_no_loss_though_a_shift_breaks_the_ties_at_a_ceiling() -> None:
    looks = [([500, 500, 167.2, 500], [335.9, 238.8, 346.3, 500, 305.9]), ([500.0] * 4, [428.3, 288])]
    found = compare(looks, [0.018, 0.05])
    assert found.p <= 0.05 and found.low is not None and found.low >= 0


def test_equal_runs_show_nothing_and_too_few_have_no_bound() -> None:
    assert compare([([5.0] * 4, [5.0] * 5)], [LEVEL]).p == 1.0
    few = compare([([9.0, 9.5], [1.0, 2.0])], [LEVEL])
    assert (few.p, few.low, few.high) == (pytest.approx(1 / 6), None, None)
    with pytest.raises(ValueError, match="got 2 and 0"):
        compare([([1.0, 2.0], [])], [LEVEL])


@pytest.mark.parametrize(
    ("sizes", "levels"),
    [([(4, 5)], [0.048]), ([(4, 5), (4, 2)], [0.025, 0.05]), ([(4, 5), (4, 2)], [0.048, 0.05]), ([(9, 9)], [0.05])],
    ids=["one", "two", "continued", "drawn"],
)
def test_equal_arms_pass_in_no_more_nights_than_was_said_however_often_they_are_looked_at(
    sizes: list[tuple[int, int]], levels: list[float]
) -> None:
    """Scores of a policy that mostly stands at a ceiling and sometimes collapses."""
    rng, passed, nights = np.random.default_rng(3), 0, 100
    for _ in range(nights):
        groups = list[Group]()
        for (mine, theirs), level in zip(sizes, levels, strict=True):
            values = 500.0 - rng.exponential(30, mine + theirs) * (rng.random(mine + theirs) < 0.5)
            groups.append((values[:mine].tolist(), values[mine:].tolist()))
            if compare(groups, levels[: len(groups)]).p <= level:
                passed += 1
                break
    most = nights * levels[-1] + 3 * (nights * levels[-1]) ** 0.5
    assert passed <= most


def test_what_was_spent_on_an_earlier_look_counts_and_more_runs_can_still_pass() -> None:
    first: Group = ([3.0, 4.0, 5.0, 6.0], [1.0, 5.5, 2.0, 3.5, 2.5])
    once = compare([first], [0.03])
    assert once.p > 0.03
    second: Group = ([9.0, 10.0, 8.0, 11.0], [1.0, 0.5, 2.0, 1.5])
    both = compare([first, second], [0.03, 0.05])
    assert 0 < both.p <= 0.05 and both.p >= compare([(first[0] + second[0], first[1] + second[1])], [0.05]).p


def test_many_runs_are_compared_by_ways_that_are_drawn_always_the_same() -> None:
    rng = np.random.default_rng(0)
    arms = [((rng.standard_normal(20) + 2).tolist(), rng.standard_normal(20).tolist())]
    assert compare(arms, [LEVEL]) == compare(arms, [LEVEL])
    assert compare(arms, [LEVEL]).p == pytest.approx(1 / EXACT)


def test_a_gain_that_passed_narrowly_is_lowered_and_a_clear_one_is_not() -> None:
    clear = compare([([100.0, 101.0, 102.0, 103.0], [1.0, 2.0, 3.0, 4.0, 5.0])], [LEVEL])
    narrow = compare([([5.0, 6.0, 4.0, 7.0], [3.0, 5.5, 2.0, 4.5, 1.0])], [LEVEL])
    assert corrected(clear, LEVEL, LEVEL) == pytest.approx(clear.gain, rel=1e-3)
    assert 0 <= corrected(narrow, LEVEL, LEVEL) < narrow.gain


def test_noise_is_pooled_within_groups_and_a_single_run_tells_none() -> None:
    found = pooled([(1.0, 3.0), (101.0, 103.0, 105.0), (7.0,)])
    assert found is not None and found.df == 3
    assert found.sd == pytest.approx(((2.0 + 8.0) / 3) ** 0.5)
    assert pooled([(1.0,), ()]) is None


# What the runs of a history say of its champion, and of the noise between runs.


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_champion_is_as_good_as_its_runs_are_on_average_and_noise_is_pooled(sign: float) -> None:
    up = sign > 0
    history: History = (tried((), 80.0 * sign, 90.0 * sign, higher_is_better=up),)
    history += (tried(history, 120.0 * sign, kind="keep", reruns=((1, 110.0 * sign),), higher_is_better=up),)
    history += (tried(history, 60.0 * sign, kind="discard", higher_is_better=up),)
    assert run_sd(history) == pytest.approx(statistics.stdev((80.0, 90.0))), "two pairs that lie equally far apart"
    assert utility(history, 1) == (120.0, 110.0) and mean_of(history, 1) == 115.0 * sign

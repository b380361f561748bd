"""One figure over several environments: the interquartile mean, its interval, and when there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.describe import over_environments
from tasks.stats.aggregate import FEW, aggregates, estimates, interquartile_mean
from tasks.stats.certificate import Certificate
from tasks.stats.transfer import Conditions
from tests.support.histories import certified

SCORES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40)


def elsewhere(
    on: str,
    mine: Sequence[float | None],
    theirs: Sequence[float | None],
    budget: float = 1.0,
    span: tuple[float, float] | None = None,
    **more: bool,
) -> Certificate:
    made = certified(3, mine, theirs, on=on, **more)  # type: ignore[arg-type]
    return replace(made, conditions=Conditions(budget, span, {"lr": 0.1}))


def even(count: int) -> np.ndarray:  # type: ignore[type-arg]
    return np.full(count, 1 / count)


def test_the_interquartile_mean_is_that_of_the_middle_half_computed_by_hand() -> None:
    assert interquartile_mean(np.array([8.0, 1, 2, 100, 3, 4, -50, 5]), even(8)) == pytest.approx((2 + 3 + 4 + 5) / 4)
    six = interquartile_mean(np.array([1.0, 2, 3, 4, 5, 60]), even(6))
    assert six == pytest.approx((0.5 * 2 + 3 + 4 + 0.5 * 5) / 3), "a value at the edge of the half counts in part"
    weighted = interquartile_mean(np.array([1.0, 2.0, 10.0]), np.array([0.25, 0.25, 0.5]))
    assert weighted == pytest.approx((0.25 * 2 + 0.25 * 10) / 0.5)


@settings(deadline=None)  # of its first example, which imports
@given(st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=40).filter(lambda values: len(values) % 4 == 0))
def test_where_a_quarter_is_a_whole_number_it_is_scipys_trimmed_mean(values: list[float]) -> None:
    from scipy.stats import trim_mean  # not at the top: every worker of a test run collects every file

    found = interquartile_mean(np.array(values), even(len(values)))
    assert found == pytest.approx(trim_mean(values, 0.25), abs=1e-6)


@given(SCORES, st.floats(0.1, 10), st.floats(-100, 100))
def test_it_lies_within_the_values_and_follows_their_scale(values: list[float], by: float, shift: float) -> None:
    array = np.array(values)
    found = interquartile_mean(array, even(len(values)))
    assert min(values) - 1e-6 <= found <= max(values) + 1e-6
    moved = interquartile_mean(by * array + shift, even(len(values)))
    assert moved == pytest.approx(by * float(found) + shift, rel=1e-6, abs=1e-3)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=2, max_size=6), st.lists(st.floats(-5, 5), min_size=2, max_size=6))
def test_an_interval_holds_its_estimate_and_equal_arms_have_no_gain(one: list[float], two: list[float]) -> None:
    arm = (tuple(one), tuple(two))
    mine, theirs, gain = estimates(arm, arm)
    assert mine.value == theirs.value and gain.value == 0
    for each in (mine, theirs, gain):
        assert each.low - 1e-9 <= each.value <= each.high + 1e-9
    assert estimates(arm, arm) == (mine, theirs, gain)


def test_an_environment_counts_the_same_however_many_runs_it_has() -> None:
    few, many = (0.0, 0.0), (4.0,) * 30
    assert estimates((few, many), (few, few))[0].value == pytest.approx(2.0)


def test_runs_are_measured_in_run_sds_from_the_mean_of_the_baseline() -> None:
    a = elsewhere("a", (12.0, 14.0, 13.0), (1.0, 2.0, 3.0))  # sd 1 in both arms
    b = elsewhere("b", (120.0, 140.0, 130.0), (10.0, 20.0, 30.0))  # the same, ten times as large
    (one,) = aggregates((a, b))
    assert (one.unit, one.environments, one.champion, one.fewest) == ("run sd", ("a", "b"), 3, 3)
    assert one.gain is not None and one.gain.value == pytest.approx(11.0) and one.gain.low > 9
    assert one.baselines is not None and one.baselines.value == pytest.approx(0.0)
    assert "too narrow" in over_environments(one) and one.fewest < FEW


def test_less_is_better_where_the_metric_says_so() -> None:
    a = elsewhere("a", (1.0, 2.0, 3.0), (11.0, 12.0, 13.0), higher_is_better=False)
    b = elsewhere("b", (1.0, 2.0, 3.0), (1.0, 2.0, 3.0))
    (one,) = aggregates((a, b))
    assert one.gain is not None and one.gain.value > 0


def test_where_every_environment_states_its_range_that_is_the_scale() -> None:
    a = elsewhere("a", (0.8, 0.8), (0.4, 0.4), span=(0.0, 1.0))
    b = elsewhere("b", (30.0, 30.0), (70.0, 70.0), span=(0.0, 100.0), higher_is_better=False)
    (one,) = aggregates((a, b))
    assert one.unit == "range" and one.gain is not None
    assert one.champions is not None and one.champions.value == pytest.approx(0.75)
    assert one.gain.value == pytest.approx(0.4)


def test_one_environment_or_one_of_another_budget_gives_no_aggregate() -> None:
    a, longer = elsewhere("a", (1.0, 2.0, 3.0), (0.0, 1.0, 2.0)), elsewhere("b", (1.0, 2.0), (0.0, 1.0), budget=4)
    assert aggregates((a,)) == () and aggregates((a, longer)) == ()
    own = certified(3, (1.0, 2.0, 3.0), (0.0, 1.0, 2.0))
    assert aggregates((own, a)) == (), "the champion was chosen in its own"


def test_an_environment_that_cannot_be_counted_is_not_left_out_in_silence() -> None:
    a = elsewhere("a", (1.0, 2.0, 3.0), (0.0, 1.0, 2.0))
    crashed, same = elsewhere("b", (1.0, None, 3.0), (0.0, 1.0, 2.0)), elsewhere("c", (1.0, 1.0), (1.0, 1.0))
    for other, why in ((crashed, "crashed in b"), (same, "of c do not differ")):
        (one,) = aggregates((a, other))
        assert one.gain is None and why in one.reason and why in over_environments(one)

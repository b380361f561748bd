"""The search space: what is drawn and what a grid holds lies in the range, and a bad space is refused in words."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.score import Score
from environments.space import Choice, Float, Int, Value
from tests.support.spaces import float_ranges, int_ranges

always = settings(derandomize=True, deadline=None, max_examples=150)
seeds = st.integers(0, 2**32)


@always
@given(parameter=st.one_of(float_ranges, int_ranges), seed=seeds)
def test_what_is_drawn_passes_the_parameters_own_check_unchanged(parameter: Float | Int, seed: int) -> None:
    value = parameter.sample(np.random.default_rng(seed))
    assert parameter.check(value) == value


@always
@given(parameter=st.one_of(float_ranges, int_ranges), points=st.integers(2, 12))
def test_a_grid_goes_from_end_to_end_without_repeating_itself(parameter: Float | Int, points: int) -> None:
    grid = parameter.grid(points)
    assert (grid[0], grid[-1]) == (parameter.low, parameter.high)
    assert list(grid) == sorted(set(grid))
    assert len(grid) <= points
    assert [parameter.check(value) for value in grid] == list(grid)


@pytest.mark.parametrize("log", [False, True])
def test_every_whole_number_of_a_range_is_drawn_the_ends_included(log: bool) -> None:
    rng = np.random.default_rng(0)
    parameter = Int(low=1, high=5, log=log, default=2)
    assert {parameter.sample(rng) for _ in range(300)} == {1, 2, 3, 4, 5}


def test_true_and_one_are_two_values_of_a_choice() -> None:
    parameter = Choice(values=(1, True), default=1)
    assert [type(parameter.check(value)) for value in (1, 1.0, True)] == [int, int, bool]


@pytest.mark.parametrize("value", [3, "1", math.nan, 10**400, True])
@pytest.mark.parametrize(
    "parameter", [Float(low=0, high=2, default=1), Int(low=0, high=2, default=1), Choice(values=(0, 1), default=1)]
)
def test_a_value_outside_is_refused_and_named(parameter: Float | Int | Choice, value: Value) -> None:
    with pytest.raises(ValueError, match="must be ") as refused:
        parameter.check(value)
    assert f"got {value!r}" in str(refused.value)


# Score: better, never larger; a missing one is worse than any.


@pytest.mark.parametrize("up", [True, False])
def test_of_two_scores_the_one_whose_mean_is_better_has_more_utility_and_a_missing_one_the_least(up: bool) -> None:
    worse, better = Score.of([1.0, 2.0], up), Score.of([5.0] if up else [-5.0], up)
    assert Score.missing("it crashed", up).utility < worse.utility < better.utility


@pytest.mark.parametrize("units", [(math.inf, -math.inf), (1e308, 1e308), (1e200, -1.0)])
def test_units_that_are_no_measurement_have_no_mean(units: tuple[float, ...]) -> None:
    score = Score.of(units)
    assert math.isnan(score.value or 0.0) and score.units == units


# Several sources


def test_the_standard_error_over_sources_is_that_of_the_weighted_mean() -> None:
    score = Score.of_sources({"a": [1.0, 3.0], "b": [5.0, 5.0, 8.0]}, {"a": 1, "b": 3})
    assert (score.value, score.n) == (pytest.approx((2 + 3 * 6) / 4), 5)
    assert score.se == pytest.approx(math.hypot(1 * 1, 3 * 1) / 4)  # each mean's own is 1


def test_a_source_without_units_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one data point"):
        Score.of_sources({"a": [], "b": [1.0]}, {"a": 1, "b": 1})

"""The search space: what is drawn and what a grid holds lies in the range, and a bad space is refused in words."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import environments
from environments.plugins import Refused
from environments.space import Choice, Float, Int, Value
from tests.support.spaces import float_ranges, int_ranges
from tests.support.toy import QUADRATIC, quadratic

SPACE = QUADRATIC[QUADRATIC.index("[space.x]") :]
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


def test_a_log_grid_is_evenly_spaced_in_its_logarithm() -> None:
    grid = Float(low=1e-4, high=1.0, log=True, default=1e-2).grid(5)
    assert grid == pytest.approx((1e-4, 1e-3, 1e-2, 1e-1, 1.0))


def test_a_grid_of_one_point_is_the_default() -> None:
    assert Float(low=0, high=1, default=0.3).grid(1) == (0.3,)
    assert Int(low=0, high=9, default=3).grid(1) == (3,)


@pytest.mark.parametrize("log", [False, True])
def test_every_whole_number_of_a_range_is_drawn_the_ends_included(log: bool) -> None:
    rng = np.random.default_rng(0)
    parameter = Int(low=1, high=5, log=log, default=2)
    assert {parameter.sample(rng) for _ in range(300)} == {1, 2, 3, 4, 5}


def test_half_of_the_draws_on_a_log_scale_lie_below_the_geometric_mean() -> None:
    rng = np.random.default_rng(0)
    parameter = Float(low=1e-6, high=1.0, log=True, default=1e-3)
    below = sum(parameter.sample(rng) < 1e-3 for _ in range(2000))
    assert 900 < below < 1100


def test_the_grid_of_a_choice_is_all_of_its_values_in_their_order() -> None:
    assert Choice(values=(3, "x", 1), default=1).grid(2) == (3, "x", 1)


def test_true_and_one_are_two_values_of_a_choice() -> None:
    parameter = Choice(values=(1, True), default=1)
    assert [type(parameter.check(value)) for value in (1, 1.0, True)] == [int, int, bool]


@pytest.mark.parametrize(
    ("parameter", "value"),
    list(
        itertools.product(
            [Float(low=0, high=2, default=1), Int(low=0, high=2, default=1), Choice(values=(0, 1), default=1)],
            [3, "1", math.nan, 10**400, True],
        )
    ),
)
def test_a_value_outside_is_refused_and_named(parameter: Float | Int | Choice, value: Value) -> None:
    with pytest.raises(ValueError, match="must be ") as refused:
        parameter.check(value)
    assert f"got {value!r}" in str(refused.value)


def test_an_int_takes_a_float_that_is_whole() -> None:
    value = Int(low=0, high=2, default=1).check(2.0)
    assert (value, type(value)) == (2, int)


@pytest.mark.parametrize(
    ("space", "where", "why"),
    [
        ("low = 3.0\nhigh = 3.0\ndefault = 3.0", "space.x", "low must be below high, got low = 3.0, high = 3.0"),
        ("low = 0\nhigh = 1\ndefault = 2", "space.x", "the default must lie in 0.0..1.0, got 2.0"),
        (
            "low = 0\nhigh = 1\nlog = true\ndefault = 1",
            "space.x",
            "a log scale needs low > 0, got low = 0.0: raise low or drop log",
        ),
        ('low = "small"\nhigh = 1\ndefault = 1', "space.x.low", "unable to parse string as a number, got 'small'"),
    ],
)  # fmt: skip
def test_a_bad_float_is_refused(tmp_path: Path, space: str, where: str, why: str) -> None:
    assert_refused(tmp_path, f'type = "float"\n{space}', where, why)


@pytest.mark.parametrize(
    ("space", "where", "why"),
    [
        ("low = 0.5\nhigh = 9\ndefault = 1", "space.x.low", "valid integer, got a number with a fractional part"),
        (f"low = 0\nhigh = {2**60}\ndefault = 1", "space.x.high", f"less than or equal to {2**53}, got {2**60}"),
    ],
)  # fmt: skip
def test_a_bad_int_is_refused(tmp_path: Path, space: str, where: str, why: str) -> None:
    assert_refused(tmp_path, f'type = "int"\n{space}', where, why)


@pytest.mark.parametrize(
    ("space", "where", "why"),
    [
        ("values = [1, 1]\ndefault = 1", "space.x", "values must differ, got [1, 1]"),
        ('values = ["a", "b"]\ndefault = "c"', "space.x", "must be one of ['a', 'b'], got 'c'"),
        ("values = [1.0, nan]\ndefault = 1.0", "space.x", "values must be finite, got [1.0, nan]"),
    ],
)
def test_a_bad_choice_is_refused(tmp_path: Path, space: str, where: str, why: str) -> None:
    assert_refused(tmp_path, f'type = "choice"\n{space}', where, why)


@pytest.mark.parametrize(
    ("space", "why"),
    [
        (
            'type = "flaot"\nlow = 0\nhigh = 1\ndefault = 0',
            "does not match any of the expected tags: 'float', 'int', 'choice'",
        )
    ],
)
def test_a_parameter_has_to_say_what_it_is(tmp_path: Path, space: str, why: str) -> None:
    assert_refused(tmp_path, space, "space.x", why)


def assert_refused(tmp_path: Path, space: str, where: str, why: str) -> None:
    """An environment with this `[space.x]` is refused, naming file, key and reason."""
    folder = quadratic(tmp_path / "quad", toml=QUADRATIC.replace(SPACE, f"[space.x]\n{space}\n"))
    with pytest.raises(Refused) as refused:
        environments.load(folder)
    lines = [line for line in str(refused.value).splitlines() if why in line]
    assert lines, refused.value
    assert lines[0].startswith(f"{folder / 'environment.toml'}: {where}: ")

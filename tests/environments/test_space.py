"""The search space: what is drawn and what a grid holds lies in the range, and a bad space is refused in words."""

from __future__ import annotations

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


@pytest.mark.parametrize(
    ("space", "where", "why"),
    [
        ('"float"\nlow = 3.0\nhigh = 3.0\ndefault = 3.0', "", "low must be below high, got low = 3.0, high = 3.0"),
        ('"float"\nlow = 0\nhigh = 1\ndefault = 2', "", "the default must lie in 0.0..1.0, got 2.0"),
        ('"float"\nlow = 0\nhigh = 1\nlog = true\ndefault = 1', "", "a log scale needs low > 0, got low = 0.0"),
        ('"choice"\nvalues = [1, 1]\ndefault = 1', "", "values must differ, got [1, 1]"),
        ('"choice"\nvalues = ["a", "b"]\ndefault = "c"', "", "must be one of ['a', 'b'], got 'c'"),
        ('"flaot"\nlow = 0\nhigh = 1\ndefault = 0', "", "does not match any of the expected tags: 'float', 'int'"),
    ],
)
def test_a_bad_space_is_refused_with_file_and_key(tmp_path: Path, space: str, where: str, why: str) -> None:
    folder = quadratic(tmp_path / "quad", toml=QUADRATIC.replace(SPACE, f"[space.x]\ntype = {space}\n"))
    with pytest.raises(Refused) as refused:
        environments.load(folder)
    lines = [line for line in str(refused.value).splitlines() if why in line]
    assert lines and lines[0].startswith(f"{folder / 'environment.toml'}: space.x{where}: "), refused.value

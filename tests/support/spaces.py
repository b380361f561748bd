"""Search spaces, drawn and fixed, and histories in them."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

import numpy as np
from hypothesis import strategies as st

from environments.score import LARGEST
from environments.space import LARGEST_INT, Choice, Float, Int, Space
from tasks.proposing import points as _points
from tasks.proposing.brief import Suggestion
from tasks.trial import History, Params, Trial, Verdict
from tests.support.histories import decided

Number = TypeVar("Number", int, float)


def two(numbers: st.SearchStrategy[Number]) -> st.SearchStrategy[list[Number]]:
    """Two different numbers, the smaller one first."""
    return st.lists(numbers, min_size=2, max_size=2, unique=True).map(sorted)


any_float = st.floats(-1e300, 1e300)
above_zero = st.floats(1e-300, 1e300)
any_int = st.integers(-LARGEST_INT, LARGEST_INT)
above_zero_int = st.integers(1, LARGEST_INT)

float_ranges = st.one_of(
    two(any_float).map(lambda ends: Float(low=ends[0], high=ends[1], default=ends[0])),
    two(above_zero).map(lambda ends: Float(low=ends[0], high=ends[1], log=True, default=ends[1])),
)

int_ranges = st.one_of(
    two(any_int).map(lambda ends: Int(low=ends[0], high=ends[1], default=ends[0])),
    two(above_zero_int).map(lambda ends: Int(low=ends[0], high=ends[1], log=True, default=ends[1])),
)

PLANE: Space = {"x": Float(low=-1.0, high=1.0, default=-0.9), "y": Float(low=1e-4, high=1.0, log=True, default=0.9)}


SWITCHES: Space = {
    "act": Choice(values=("tanh", "relu", True, 1), default="tanh"),
    "layers": Int(low=1, high=3, default=2),
    "fixed": Choice(values=(7,), default=7),
}


def defaults(space: Space) -> Params:
    return {name: parameter.default for name, parameter in space.items()}


def started(space: Space, score: float | None = 1.0, seed: int = 0, higher: bool = True) -> History:
    """A history of the baseline alone, trained with this seed."""
    trial = decided((), score, defaults(space), higher_is_better=higher)
    return (dataclasses.replace(trial, runs=(dataclasses.replace(trial.runs[0], seed=seed),)),)


def cancelled(trial: Trial, seconds: float, reported: float | None) -> Trial:
    """The trial as it would stand if it had been stopped early."""
    run = dataclasses.replace(trial.runs[0], status="cancelled", seconds=seconds, reported=reported)
    score = dataclasses.replace(trial.score, value=None, error="cancelled")
    return dataclasses.replace(trial, runs=(run,), score=score, verdict=Verdict("cancelled", "stopped early"))


def distance(params: Params) -> float:
    """A bowl with its bottom at x = 0.3, y = 0.01."""
    return float((float(params["x"]) - 0.3) ** 2 + (np.log10(float(params["y"])) / 2 + 1) ** 2)


choices = st.one_of(
    st.lists(st.sampled_from([True, 1, "a", "b", 2.5, False, "1"]), min_size=1, max_size=5, unique_by=repr),
    st.lists(st.integers(-9, 9) | st.floats(-9, 9), min_size=1, max_size=5, unique=True),
).map(lambda values: Choice(values=tuple(values), default=values[-1]))

spaces = st.dictionaries(st.sampled_from("abcd"), st.one_of(float_ranges, int_ranges, choices), max_size=4)


scores = st.one_of(st.none(), st.just("cancelled"), st.floats(-LARGEST, LARGEST))


def check(space: Space, history: History, suggestion: Suggestion) -> None:
    for name, value in suggestion.params.items():
        own = space[name].check(value)
        assert (own, type(own)) == (value, type(value))
    varied = _points.varied(space)
    point = repr(_points.point_of(varied, suggestion.params))
    assert point not in {repr(_points.point_of(varied, trial.proposal.params)) for trial in history}

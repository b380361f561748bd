"""Score: better, never larger; a missing one is worse than any."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.score import Score

always = settings(derandomize=True, deadline=None, max_examples=150)


@pytest.mark.parametrize("up", [True, False])
def test_of_two_scores_the_one_whose_mean_is_better_has_more_utility_and_a_missing_one_the_least(up: bool) -> None:
    worse, better = Score.of([1.0, 2.0], up), Score.of([5.0] if up else [-5.0], up)
    assert Score.missing("it crashed", up).utility < worse.utility < better.utility


@always
@given(values=st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30))
def test_the_standard_error_is_that_of_the_mean_over_units(values: list[float]) -> None:
    score = Score.of(values, True)
    assert score.value == pytest.approx(np.mean(values), abs=1e-9)
    assert score.se == pytest.approx(np.std(values, ddof=1) / math.sqrt(len(values)), abs=1e-6)
    assert (score.n, score.units) == (len(values), tuple(values))


# Several sources


@always
@given(
    sources=st.dictionaries(st.sampled_from("abc"), st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=9), min_size=1),
    weight=st.floats(0.1, 10),
)
def test_the_score_over_sources_and_its_standard_error_are_those_of_the_weighted_mean(
    sources: dict[str, list[float]], weight: float
) -> None:
    weights = {name: weight**at for at, name in enumerate(sources)}
    score = Score.of_sources(sources, weights, True)
    share = np.array(list(weights.values())) / sum(weights.values())
    means, errors = zip(*((np.mean(u), np.std(u, ddof=1) / math.sqrt(len(u))) for u in sources.values()), strict=True)
    assert score.value == pytest.approx(float(share @ means), abs=1e-6)
    assert score.se == pytest.approx(math.sqrt(float(share**2 @ np.square(errors))), abs=1e-6)
    assert score.also == pytest.approx({f"source/{name}": np.mean(u) for name, u in sources.items()}, abs=1e-6)
    assert score.units == tuple(itertools.chain(*sources.values()))
    assert score.n == len(score.units)


@pytest.mark.parametrize(
    ("sources", "weights", "words"),
    [({"a": [1.0]}, {"a": 1, "b": 1}, r"weights \['a', 'b'\]"), ({"a": []}, {"a": 1}, "at least one unit")],
)
def test_sources_that_are_no_score_are_refused(
    sources: dict[str, list[float]], weights: dict[str, float], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        Score.of_sources(sources, weights, True)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_unit_that_is_not_finite_is_refused_by_its_index(bad: float) -> None:
    with pytest.raises(ValueError, match=f"unit 2 .*{bad}.*finite"):
        Score.of([1.0, 2.0, bad], True)

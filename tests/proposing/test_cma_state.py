"""The state of CMA-ES in words: where the good trials are, and nothing before the first generation."""

from __future__ import annotations

import re

from environments.space import Choice, Float, Space
from tasks.proposing import cma_state
from tasks.proposing.brief import Brief
from tasks.trial import History
from tests.support.histories import tried

SPACE: Space = {
    "lr": Float(low=1e-5, high=1e-1, log=True, default=1e-3),
    "beta": Float(low=0.0, high=1.0, default=0.5),
    "act": Choice(values=("tanh", "relu"), default="tanh"),
}


def near(count: int) -> History:
    """Trials that are the better, the nearer lr is to 1e-2 and the more beta rises with it."""
    history: History = (tried((), 0.0, params={"lr": 1e-3, "beta": 0.5, "act": "tanh"}),)
    for n in range(1, count + 1):
        exponent = -5 + 4 * ((n * 7) % count) / count
        params = {"lr": 10**exponent, "beta": ((n * 3) % count) / count, "act": "relu"}
        history += (tried(history, -abs(exponent + 2), params=params),)
    return history


def test_the_mean_moves_to_where_good_trials_are() -> None:
    words = cma_state.in_words(Brief(SPACE, near(60)))
    mean = re.search(r"- lr: mean ([\d.e-]+), one standard deviation from ([\d.e-]+) to ([\d.e-]+)", words)
    assert mean is not None, words
    assert 2e-3 < float(mean[1]) < 5e-2 and float(mean[2]) <= float(mean[1]) <= float(mean[3])
    assert "step size" in words and "correlations:" in words and "act" not in words


def test_before_a_generation_or_without_an_axis_there_is_no_state() -> None:
    assert cma_state.in_words(Brief(SPACE, near(2))) == ""
    assert cma_state.in_words(Brief(SPACE, ())) == ""
    assert cma_state.in_words(Brief({"act": SPACE["act"]}, near(60))) == ""

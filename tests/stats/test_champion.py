"""What the runs of a history say of its champion, and of the noise between runs."""

from __future__ import annotations

import statistics

import pytest

from tasks.stats.champion import champion_estimate, utility
from tasks.trial import History
from tests.support.histories import tried


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_champion_is_as_good_as_its_runs_are_on_average_and_noise_is_pooled(sign: float) -> None:
    up = sign > 0
    history: History = (tried((), 80.0 * sign, 90.0 * sign, higher_is_better=up),)
    history += (tried(history, 120.0 * sign, kind="keep", reruns=((1, 110.0 * sign),), higher_is_better=up),)
    history += (tried(history, 60.0 * sign, kind="discard", higher_is_better=up),)
    estimate = champion_estimate(history)
    assert estimate is not None
    assert (estimate.level, estimate.runs) == (115.0, 2), "in utility"
    assert estimate.sd == pytest.approx(statistics.stdev((80.0, 90.0))), "two pairs that lie equally far apart"
    assert estimate.error == pytest.approx(estimate.sd / 2**0.5)
    assert utility(history, 1) == (120.0, 110.0)


def test_a_rerun_of_a_trial_that_crashed_tells_nothing_of_the_champion() -> None:
    history: History = (tried((), 80.0, 90.0),)
    history += (tried(history, None, reruns=((1, 300.0),)),)
    estimate = champion_estimate(history)
    assert estimate is not None and estimate.level == 85.0

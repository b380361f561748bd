"""Predictions: what proposers said a change would do, against what it did.

A prediction is the change of the objective that a proposal expects against the champion it knew. What happened is the
trial's score less that champion's first score; both carry the noise of a run, so single errors say little.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from environments.score import LARGEST
from tasks.numbers import number
from tasks.trial import History, Trial, best, trials_before

ENOUGH = 3
"""Predictions from which on a summary is told."""


@dataclass(frozen=True)
class PredictedEffect:
    """One prediction and its outcome, in the metric's own units."""

    trial: int
    expected: float
    measured: float

    @property
    def is_right(self) -> bool:
        """Whether the change went the way that was expected."""
        return self.expected * self.measured > 0 or self.expected == self.measured == 0


@dataclass(frozen=True)
class PredictionRecord:
    """The predictions of a campaign together."""

    count: int
    right: int
    expected: float
    """Mean of what was expected."""
    measured: float
    """Mean of what happened."""
    error: float
    """Mean absolute difference of the two."""

    @property
    def words(self) -> str:
        return (
            f"{self.right} of {self.count} predictions had the right sign; expected {number(self.expected, sign=True)} "
            f"on average, measured {number(self.measured, sign=True)} (mean error {number(self.error)})"
        )


def predictions(history: History) -> tuple[PredictedEffect, ...]:
    """The predictions of trials with a score, in the order in which these were decided.

    One that no judge could confirm tells nothing, and sums of such overflow.
    """
    found, scores = [], _scores(history)
    for trial in history:
        expected = trial.proposal.expected
        if expected is None or not abs(expected) <= LARGEST or trial.score.value is None:
            continue
        then = best(trials_before(history, trial)[: trial.proposal.seen])
        if then is not None and then.number in scores:
            found.append(PredictedEffect(trial.number, expected, trial.score.value - scores[then.number]))
    return tuple(found)


def effect(history: History, trial: Trial, then: Trial | None) -> float | None:
    """The score of a trial less that of a champion; None where one of them is missing."""
    champion = _scores(history).get(then.number) if then else None
    return None if champion is None or trial.score.value is None else trial.score.value - champion


def _scores(history: History) -> dict[int, float]:
    """The scores of full trials, by number."""
    each = ((trial.number, trial.score.value) for trial in history)
    return {number: value for number, value in each if value is not None}


def record(history: History) -> PredictionRecord | None:
    """The summary; None while there are too few for one."""
    found = predictions(history)
    if len(found) < ENOUGH:
        return None
    return PredictionRecord(
        len(found),
        sum(one.is_right for one in found),
        statistics.fmean(one.expected for one in found),
        statistics.fmean(one.measured for one in found),
        statistics.fmean(abs(one.expected - one.measured) for one in found),
    )

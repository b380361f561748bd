"""Predictions: what proposers said a change would do to the objective, against what it did.

Both are changes against the champion that the proposal knew; single ones carry the noise of two runs.
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
    """The predictions of a campaign together; means in the metric's own units."""

    count: int
    right: int
    expected: float
    measured: float
    error: float
    """Mean absolute difference of the two."""

    @property
    def words(self) -> str:
        return (
            f"{self.right} of {self.count} predictions had the right sign; expected {number(self.expected, sign=True)} "
            f"on average, measured {number(self.measured, sign=True)} (mean error {number(self.error)})"
        )


def predictions(history: History) -> tuple[PredictedEffect, ...]:
    """The predictions of trials with a score, in the order of the decisions; none that no judge could confirm."""
    found = []
    for trial in history:
        expected = trial.proposal.expected
        if expected is None or not abs(expected) <= LARGEST:
            continue
        measured = effect(history, trial, best(trials_before(history, trial)[: trial.proposal.seen]))
        if measured is not None:
            found.append(PredictedEffect(trial.number, expected, measured))
    return tuple(found)


def effect(history: History, trial: Trial, then: Trial | None) -> float | None:
    """The score of a trial less the present one of a champion; None where one of them is missing."""
    scores = {one.number: one.score.value for one in history}
    before = scores.get(then.number) if then else None
    return None if before is None or trial.score.value is None else trial.score.value - before


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

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


def effect(history: History, trial: Trial, then: Trial | None) -> float | None:
    """The score of a trial less the present one of a champion; None where one of them is missing."""
    scores = {one.number: one.score.value for one in history}
    before = scores.get(then.number) if then else None
    return None if before is None or trial.score.value is None else trial.score.value - before


def record(history: History) -> PredictionRecord | None:
    """The summary of the predictions of trials with a score, without those that no judge could confirm; None while
    there are too few.
    """
    found = list[tuple[float, float]]()
    for trial in history:
        gain = effect(history, trial, best(trials_before(history, trial)[: trial.proposal.seen]))
        if gain is not None and (expected := trial.proposal.expected) is not None and abs(expected) <= LARGEST:
            found.append((expected, gain))
    if len(found) < ENOUGH:
        return None
    expected, measured = map(statistics.fmean, zip(*found, strict=True))
    right = sum(one * other > 0 or one == other == 0 for one, other in found)
    error = statistics.fmean(abs(one - other) for one, other in found)
    return PredictionRecord(len(found), right, expected, measured, error)

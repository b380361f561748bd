"""Predictions: what proposers said a change would do to the objective, against what it did.

Both are changes against the champion that the proposal knew; single ones carry the noise of two runs.
"""

import statistics
from typing import Any

from environments.score import LARGEST
from tasks.numbers import number
from tasks.trial import History, Trial, best

ENOUGH = 3
"""Predictions from which on a summary is told."""


def effect(history: History, trial: Trial, then: Trial | None) -> float | None:
    """The score of a trial less the present one of a champion; None where one of them is missing."""
    scores = {one.number: one.score.value for one in history}
    before = scores.get(then.number) if then else None
    return None if before is None or trial.score.value is None else trial.score.value - before


def record(history: History) -> dict[str, Any] | None:
    """The predictions of trials with a score together, without those that no judge could confirm: a part of the status
    document, with means in the metric's own units, `error` that of the absolute differences. None while there are too
    few.
    """
    found = list[tuple[float, float]]()
    for trial in history:
        gain = effect(history, trial, best(tuple(one for one in history if one.order < trial.proposal.seen)))
        if gain is not None and (expected := trial.proposal.expected) is not None and abs(expected) <= LARGEST:
            found.append((expected, gain))
    if len(found) < ENOUGH:
        return None
    expected, measured = map(statistics.fmean, zip(*found, strict=True))
    right = sum(one * other > 0 or one == other == 0 for one, other in found)
    error = statistics.fmean(abs(one - other) for one, other in found)
    words = (
        f"{right} of {len(found)} predictions had the right sign; expected {number(expected, sign=True)} on average, "
        f"measured {number(measured, sign=True)} (mean error {number(error)})"
    )
    means = {"expected": expected, "measured": measured, "error": error}
    return {"count": len(found), "right": right, **means, "words": words}

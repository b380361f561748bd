"""The numbers of a campaign's picture: one point per trial, the champion estimate over time, the range of the axis."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.deciding.champion_estimate import champion_estimate
from tasks.trial import History, Trial, measured

POINTS = 250
"""Most points of the champion estimate: of a longer history every second or third trial is used."""


@dataclass(frozen=True)
class PlottedTrial:
    """A trial and the height of its mark."""

    trial: Trial
    place: int
    """In the order of decision, from 0."""
    at: float | None
    """Mean over its training runs, or the last report of a cancelled trial; None without either."""
    error: float
    """Standard error of the mean: over training runs, or over units for a single run; 0 if unknown."""
    runs: int
    """Training runs in the mean, reruns included."""


def plotted(history: History) -> tuple[PlottedTrial, ...]:
    """Every trial with its height, in the order of decision."""
    points = []
    for place, trial in enumerate(history):
        values = [score.value for score in measured(history, trial.number) if score.value is not None]
        if trial.verdict.kind == "cancelled":
            points.append(PlottedTrial(trial, place, trial.runs[-1].reported, 0.0, 1))
        elif trial.score.value is None or not values:
            points.append(PlottedTrial(trial, place, None, 0.0, len(trial.runs)))
        else:
            error = statistics.stdev(values) / math.sqrt(len(values)) if values[1:] else trial.score.se or 0.0
            points.append(PlottedTrial(trial, place, statistics.fmean(values), error, len(values)))
    return tuple(points)


def estimates(history: History) -> NDArray[np.float64]:
    """The champion estimate over time (tasks/deciding/champion_estimate.py), in the metric's own sign.

    Shape (points, 3): place of the trial after which it was made, estimate, standard deviation between training runs.
    """
    sign = 1 if all(trial.score.higher_is_better for trial in history) else -1
    stride = max(math.ceil(len(history) / POINTS), 1)
    rows = []
    for place in sorted({*range(0, len(history), stride), *range(len(history))[-1:]}):
        known = (trial for at, trial in enumerate(history) if at <= place or trial.number == 0)
        if estimate := champion_estimate((*known,)):
            rows.append((place, sign * estimate.level, estimate.sd))
    points = np.array(rows, dtype=np.float64).reshape(-1, 3)
    return points[np.isfinite(points).all(1)]


@dataclass(frozen=True)
class Window:
    """The range of heights shown; anything else is off the scale."""

    low: float
    high: float

    def __contains__(self, height: float) -> bool:
        return self.low <= height <= self.high


def visible(trials: Sequence[PlottedTrial], higher_is_better: bool, also: Sequence[float] = ()) -> Window:
    """The range to show: all heights, except those so bad that the others would lie on one line.

    Off the scale is what lies below the best three quarters by more than three times their spread; for the baseline
    and champions, whose climb is the story, by more than twenty times.

    Args:
        also: Further heights to show, such as those of fresh runs.
    """
    sign = 1.0 if higher_is_better else -1.0
    points = [(sign * point.at, point) for point in trials if point.at is not None]
    if not points:
        return Window(0.0, 1.0)
    ranked = sorted((height for height, _ in points), reverse=True)
    worst = max(len(ranked) // 4, int(1 < len(ranked) < 4))
    top, edge = ranked[0], ranked[len(ranked) - worst - 1]
    spread = (top - edge) or abs(edge) or 1.0
    # The spread of fewer than five scores says little about which of them is far out.
    reach = max(3 * spread, 5 * abs(edge) if len(ranked) < 5 else 0.0)
    story = max(20 * spread, 10 * abs(top), reach)
    shown = [sign * height for height in also if edge - sign * height <= story]
    for height, point in points:
        is_story = point.trial.number == 0 or point.trial.verdict.kind == "keep"
        if edge - height <= (story if is_story else reach):
            error = min(point.error, 1.5 * spread)
            shown += [height - error, height + error]
    pad = 0.06 * ((max(shown) - min(shown)) or abs(top) or 1.0)
    low, high = sorted((sign * (min(shown) - pad), sign * (max(shown) + pad)))
    return Window(low, high)

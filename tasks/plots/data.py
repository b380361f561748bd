"""The numbers of a campaign's picture: one point per trial, the champion estimate over time, the range of the axis."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.deciding.standing import standing
from tasks.trial import History, Trial

POINTS = 250
"""Most points of the champion estimate: of a longer history every second or third trial is used."""


@dataclass(frozen=True)
class PlottedTrial:
    """A trial and the height of its mark."""

    trial: Trial
    at: float | None
    """Mean over its training runs, or the last report of a cancelled trial; None without either."""
    error: float
    """Standard error of the mean: over training runs, or over units for a single run; 0 if unknown."""
    runs: int
    """Training runs in the mean, reruns included."""


def plotted(history: History) -> tuple[PlottedTrial, ...]:
    """Every trial with its height, in the order of decision."""
    values: dict[int, list[float]] = {}
    for trial in history:
        scores = [(trial.number, score) for score in trial.score.each]
        for number, score in scores + [(rerun.of, rerun.score) for rerun in trial.reruns]:
            if score.value is not None:
                values.setdefault(number, []).append(score.value)
    return tuple(_plotted(trial, values.get(trial.number, [])) for trial in history)


def _plotted(trial: Trial, values: list[float]) -> PlottedTrial:
    if trial.verdict.kind == "cancelled":
        return PlottedTrial(trial, trial.runs[-1].reported, 0.0, 1)
    if trial.score.value is None or not values:
        return PlottedTrial(trial, None, 0.0, len(trial.runs))
    if len(values) == 1:
        return PlottedTrial(trial, values[0], trial.score.se or 0.0, 1)
    return PlottedTrial(
        trial, statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values)), len(values)
    )


def champions(history: History) -> History:
    """The trials that became champion, oldest first."""
    return tuple(trial for trial in history if trial.verdict.kind == "keep")


@dataclass(frozen=True)
class EstimatePoint:
    """The champion estimate after the trial at place `settle`, in the metric's own sign."""

    settle: int
    value: float
    sd: float
    """Standard deviation between training runs."""


def estimates(history: History) -> tuple[EstimatePoint, ...]:
    """The champion estimate over time (tasks/deciding/standing.py); empty while no trial has a score."""
    stride = max(math.ceil(len(history) / POINTS), 1)
    sign = 1 if all(trial.score.higher_is_better for trial in history) else -1
    points = []
    for settle in sorted({*range(0, len(history), stride), *range(len(history))[-1:]}):
        estimate = standing(history[: settle + 1])
        if estimate and math.isfinite(estimate.level) and math.isfinite(estimate.sd):
            points.append(EstimatePoint(settle, sign * estimate.level, estimate.sd))
    return tuple(points)


@dataclass(frozen=True)
class Window:
    """The range of heights shown; anything else is off the scale."""

    low: float
    high: float

    def __contains__(self, height: float) -> bool:
        return self.low <= height <= self.high


def visible(history: History, higher_is_better: bool, also: Sequence[float] = ()) -> Window:
    """The range to show: all heights, except those so bad that the others would lie on one line.

    Off the scale is what lies below the best three quarters by more than three times their spread; for the baseline
    and champions, whose climb is the story, by more than twenty times.

    Args:
        also: Further heights to show, such as those of fresh runs.
    """
    sign = 1.0 if higher_is_better else -1.0
    points = [(sign * point.at, point) for point in plotted(history) if point.at is not None]
    if not points:
        return Window(0.0, 1.0)
    ranked = sorted((height for height, _ in points), reverse=True)
    worst = max(len(ranked) // 4, int(1 < len(ranked) < 4))
    top, edge = ranked[0], ranked[len(ranked) - worst - 1]
    spread = (top - edge) or abs(edge) or 1.0
    # The spread of fewer than five scores says little about which of them is far out.
    reach = max(3 * spread, 5 * abs(edge) if len(ranked) < 5 else 0.0)
    story = max(20 * spread, 10 * abs(top), reach)
    shown = [(sign * height, 0.0) for height in also if edge - sign * height <= story]
    for height, point in points:
        is_story = point.trial.number == 0 or point.trial.verdict.kind == "keep"
        if edge - height <= (story if is_story else reach):
            shown.append((height, point.error))
    # Error bars may extend the range by one and a half spreads.
    heights = [height for height, _ in shown]
    bottom = max(min(height - error for height, error in shown), edge - story, min(heights) - 1.5 * spread)
    ceiling = min(max(height + error for height, error in shown), max(heights) + 1.5 * spread)
    pad = 0.06 * ((ceiling - bottom) or abs(top) or 1.0)
    low, high = sorted((sign * (bottom - pad), sign * (ceiling + pad)))
    return Window(low, high)

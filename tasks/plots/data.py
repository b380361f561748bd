"""What the picture of a campaign shows at which height: the trials, the champion's level over time, the scale."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.deciding.standing import standing
from tasks.trial import History, Trial

FEW = 5
"""Scores below which their spread says little about which of them is far out."""
POINTS = 250
"""Of the champion's level, at most: of a longer history every second one is asked, or every third."""


@dataclass(frozen=True)
class Placed:
    """A trial at its height."""

    trial: Trial
    at: float | None
    """The mean over its training runs, or where it was when it was cancelled; None when it has no height."""
    error: float
    """Standard error of the mean: over its training runs, or over units where there is a single run; 0: none."""
    runs: int
    """Training runs that the mean is over, its reruns among them."""


def placed(history: History) -> tuple[Placed, ...]:
    """Every trial at its height, in the order of decision."""
    values: dict[int, list[float]] = {}
    for trial in history:
        own = [(trial.number, score) for score in trial.score.each]
        for number, score in own + [(rerun.of, rerun.score) for rerun in trial.reruns]:
            if score.value is not None:
                values.setdefault(number, []).append(score.value)
    return tuple(_placed(trial, values.get(trial.number, [])) for trial in history)


def _placed(trial: Trial, values: list[float]) -> Placed:
    if trial.verdict.kind == "cancelled":
        return Placed(trial, trial.runs[-1].reported, 0.0, 1)
    if trial.score.value is None or not values:
        return Placed(trial, None, 0.0, len(trial.runs))
    if len(values) == 1:
        return Placed(trial, values[0], trial.score.se or 0.0, 1)
    error = statistics.stdev(values) / math.sqrt(len(values))
    return Placed(trial, math.fsum(values) / len(values), error, len(values))


def champions(history: History) -> History:
    """The trials that became champion, in their order: each was kept, and what is kept replaces the one before."""
    return tuple(trial for trial in history if trial.verdict.kind == "keep")


@dataclass(frozen=True)
class Level:
    """What was believed of the champion when a trial had been decided, in the metric's own sign."""

    settle: int
    level: float
    sd: float
    """Standard deviation between training runs."""


def levels(history: History) -> tuple[Level, ...]:
    """The champion's level over time, luck allowed for; none while nothing has a score (tasks/deciding/standing.py)."""
    stride = max(math.ceil(len(history) / POINTS), 1)
    asked = [*range(0, len(history), stride)]
    asked += [len(history) - 1] if history and asked[-1] != len(history) - 1 else []
    sign = 1 if all(trial.score.higher_is_better for trial in history) else -1
    found = [(settle, standing(history[: settle + 1])) for settle in asked]
    known = [Level(settle, sign * one.level, one.sd) for settle, one in found if one is not None]
    return tuple(one for one in known if math.isfinite(one.level) and math.isfinite(one.sd))


@dataclass(frozen=True)
class Window:
    """The heights that are shown; worse ones are off the scale."""

    low: float
    high: float

    def __contains__(self, height: float) -> bool:
        return self.low <= height <= self.high


def visible(history: History, higher_is_better: bool, also: Sequence[float] = ()) -> Window:
    """The heights to show: all of them, unless some are so bad that the others would lie on one line.

    In terms of goodness, the worst quarter is left out, and what lies further below the rest than three times
    their spread is off the scale. A baseline or former champion may lie much further below: the climb is the story.

    Args:
        also: Heights that are no trial's and belong to the story.
    """
    sign = 1.0 if higher_is_better else -1.0
    found = sorted(((sign * p.at, p) for p in placed(history) if p.at is not None), key=lambda pair: -pair[0])
    if not found:
        return Window(0.0, 1.0)
    rest = [good for good, _ in found[: len(found) - len(found) // 4]]
    if 1 < len(found) < 4:
        rest = rest[: len(found) - 1]
    top, edge = rest[0], rest[-1]
    spread = (top - edge) or abs(edge) or 1.0
    reach = max(3 * spread, 5 * abs(edge) if len(found) < FEW else 0.0)
    story = max(20 * spread, 10 * abs(top), reach)
    seen = [
        (good, one.error)
        for good, one in found
        if edge - good <= (story if one.trial.number == 0 or one.trial.verdict.kind == "keep" else reach)
    ]
    seen += [(sign * height, 0.0) for height in also if edge - sign * height <= story]
    floor = max(edge - story, min(good for good, _ in seen) - 1.5 * spread)
    bottom = max(min(good - error for good, error in seen), floor)
    most = max([top, *(sign * height for height in also)])
    ceiling = min(max(good + error for good, error in seen), most + 1.5 * spread)
    pad = 0.06 * ((ceiling - bottom) or abs(top) or 1.0)
    low, high = sorted((sign * (bottom - pad), sign * (ceiling + pad)))
    return Window(low, high)

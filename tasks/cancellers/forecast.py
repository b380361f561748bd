"""Stop a run whose power-law forecast ends below the champion's final progress.

The law is y(t) = a + b * (1 - t**-c) / c in utility, with t the share of the budget, so a is the value at its end.
For c > 0 it saturates, c = 0 is the logarithm, c = -1 a straight line, c < -1 accelerates. Each c of a grid is fitted
by least squares, and the forecasts are mixed by their likelihood. The law's bias in this problem is estimated from
the champion's own curve, forecast from the same share of the budget.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tasks.cancellers import Canceller, trusted_runs
from tasks.numbers import number
from tasks.trial import TWENTIETHS, Curve, History, Run, best

Array = NDArray[np.float64]

EXPONENTS = np.linspace(-1.9, 2.9, 25)
"""The grid of c, without 0."""
LEAST_POINTS = 5
TAIL = 0.975
"""Quantile at which Student's t is compared with a normal."""
LEAST_NOISE = 0.01
"""Least standard deviation of a fit, as a share of the range of the points."""


class Forecast(Canceller):
    """Extrapolate a trial's progress to the end of its budget."""

    after: float = Field(default=0.3, ge=0.3, le=0.95, description="Share of the budget before the first look.")
    sds: float = Field(
        default=2.0, ge=0, le=10, description="Standard deviations of the forecast that it is given the benefit of."
    )

    def look(self, history: History, curve: Curve, higher_is_better: bool) -> str | None:
        sign = 1 if higher_is_better else -1
        rivals = champions(history)
        if not rivals or len(curve) < self.after * TWENTIETHS:
            return None
        before = self._reason(rivals, curve[:-1], sign)  # a single check is easily misled by one report
        return before and self._reason(rivals, curve, sign)

    def _reason(self, rivals: tuple[Run, ...], curve: Curve, sign: int) -> str | None:
        if (seen := forecast(curve, sign)) is None:
            return None
        ends = [sign * run.reported for run in rivals if run.reported is not None]
        end = sum(ends) / len(ends)
        early = (forecast(run.curve[: len(curve)], sign) for run in rivals)
        missed = max([0.0, *(end - one.mean for one in early if one is not None)])
        sd = math.hypot(seen.sd, missed)
        bound = seen.mean + self.sds * sd
        if bound >= end:
            return None
        return (
            f"forecast from {len(curve) / TWENTIETHS:.0%} of its budget to end at {number(sign * seen.mean)} "
            f"(sd {sd:.2g}), at best {number(sign * bound)}: the champion's progress ended at {number(sign * end)}"
        )


@dataclass(frozen=True)
class Ending:
    """The forecast value at the end of the budget, in utility."""

    mean: float
    sd: float


def champions(history: History) -> tuple[Run, ...]:
    """The champion's runs with trusted curves, reruns included."""
    champion = best(history)
    return tuple(run for trial, run in trusted_runs(history) if trial is champion)


def forecast(curve: Sequence[float | None], sign: int = 1) -> Ending | None:
    """The end of a curve, by the mixture of laws; None with too few values. `sign`: -1 if less is better."""
    points = [(place / TWENTIETHS, sign * v) for place, v in enumerate(curve, 1) if v is not None]
    if len(points) < LEAST_POINTS:
        return None
    ends, variances, squares = _fits(*np.array(points).T)
    # The likelihood of a fit whose noise is its own residual.
    weights = (squares / squares.min()) ** (-len(points) / 2)
    weights /= weights.sum()
    mean = float(weights @ ends)
    return Ending(mean, math.sqrt(weights @ (variances + (ends - mean) ** 2)))


def _fits(times: Array, values: Array) -> tuple[Array, Array, Array]:
    """For each law: its end, the variance of a report around that end, and its mean squared residual."""
    from scipy import special  # type: ignore[import-untyped]

    count, level = len(values), values.mean()
    rise = -np.expm1(-EXPONENTS[:, None] * np.log(times)) / EXPONENTS[:, None]
    middle = rise.mean(axis=1)
    away = rise - middle[:, None]
    squared = (away**2).sum(axis=1)
    slope = away @ (values - level) / squared
    left = values - level - slope[:, None] * away
    floor = LEAST_NOISE * np.ptp(values) + 1e-9 * (1.0 + np.abs(values).max())
    square = (left**2).mean(axis=1) + floor**2
    # The line takes two degrees of freedom, the exponent one; with few left, Student's t is wider than a normal.
    wider = special.stdtrit(count - 3, TAIL) / special.ndtri(TAIL)
    noise = square * count / (count - 3) * wider**2
    # At the end of the budget `rise` is 0.
    return level - slope * middle, noise * (1 + 1 / count + middle**2 / squared), square

"""Score: what a judge says of one trained program. Ordered by *better*, never by larger."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Score:
    """The judged result of one training run: a mean over units, or the reason why there is none.

    ``a > b`` means *a is better than b*, whichever way the metric points, and a missing score is worse than any
    other; so ``max(scores)`` is always right.
    """

    value: float | None
    """Mean over the units in the metric's own unit; None when the judge could not score."""
    units: tuple[float, ...] = ()
    """One result per episode or question, in the order of the judge's draws."""
    se: float | None = None
    """Standard error of the mean over units (not over training runs); None below two units."""
    n: int = 0
    """How many units the value averages."""
    higher_is_better: bool = True
    error: str | None = None
    """Why there is no score, in words for a tired person; None when there is one."""
    also: dict[str, float] = field(default_factory=dict)
    """What the judge measured besides, by metric name: shown with the score, never part of it."""

    @classmethod
    def of(cls, units: Sequence[float], higher_is_better: bool) -> Score:
        """The score of per-unit results (any length >= 1, all finite).

        Raises:
            ValueError: no unit, or one that is not a finite number.
        """
        values = tuple(float(unit) for unit in units)
        if not values:
            raise ValueError("a score needs at least one unit, got none")
        for index, value in enumerate(values):
            if not math.isfinite(value):
                raise ValueError(f"unit {index} scored {value}: only finite numbers count")
        n = len(values)
        try:
            mean = math.fsum(values) / n
            se = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1) / n) if n > 1 else None
        except OverflowError:
            raise ValueError(f"units up to {max(map(abs, values)):.3g} are too large to average") from None
        return cls(mean, values, se, n, higher_is_better)

    @classmethod
    def missing(cls, error: str, higher_is_better: bool) -> Score:
        """No score, and why."""
        return cls(None, higher_is_better=higher_is_better, error=error)

    @property
    def goodness(self) -> float:
        """The value turned so that larger is better; minus infinity when it is missing."""
        if self.value is None:
            return -math.inf
        return self.value if self.higher_is_better else -self.value

    def __lt__(self, other: Score) -> bool:
        return self.goodness < other.goodness

    def __gt__(self, other: Score) -> bool:
        return self.goodness > other.goodness

    def __le__(self, other: Score) -> bool:
        return self.goodness <= other.goodness

    def __ge__(self, other: Score) -> bool:
        return self.goodness >= other.goodness

"""CMA-ES: a normal distribution that moves to where good trials are, and takes on their shape.

At each call the whole history is told to a new `cmaes.CMA`, whoever proposed the trials (Optuna's CmaEsSampler learns
from its own alone). Only the order within a generation counts: crashes come last, cancelled trials before them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from pydantic import Field

from tasks.proposers._numeric import Numeric
from tasks.proposing.axes import Axis, Point
from tasks.proposing.brief import Brief
from tasks.proposing.observations import ASKS, Observations
from tasks.trial import Trial

SPREAD = 0.25
"""Standard deviation of the first distribution around the middle, as a share of every axis."""


class Cmaes(Numeric):
    """A Sobol design first, then CMA-ES."""

    title = "CMA-ES"
    population: int | None = Field(default=None, ge=4, le=1_000)
    """Trials of a generation; None: 4 + 3 ln(axes), as is usual."""

    def answers(self, seen: Observations, brief: Brief) -> Iterator[Point]:
        rng = np.random.default_rng(brief.seed)
        ranked = sorted(seen.decided, key=lambda one: _badness(one[0]))
        good = [point for _, point in ranked[: math.ceil(len(ranked) / 4)]]
        search = self._search(seen, brief.seed)
        for _ in range(ASKS):
            fractions = iter(search.ask().tolist() if search else ())
            yield tuple(
                axis.at(min(next(fractions), math.nextafter(1.0, 0.0)))
                if axis.is_ordered
                else _drawn(axis, index, good, rng)
                for index, axis in enumerate(seen.axes)
            )

    def _search(self, seen: Observations, seed: int) -> Any:
        """CMA-ES over the axes with an order after all whole generations that were decided; None without any axis."""
        from cmaes import CMA  # type: ignore[import-untyped]

        axes = [(index, axis) for index, axis in enumerate(seen.axes) if axis.is_ordered]
        if not axes:
            return None
        unit = np.array([[0.0, 1.0]] * len(axes))
        search = CMA(np.full(len(axes), 0.5), SPREAD, bounds=unit, seed=seed, population_size=self.population)
        size = search.population_size
        for start in range(0, len(seen.decided) - size + 1, size):
            generation = sorted(seen.decided[start : start + size], key=lambda one: _badness(one[0]))
            places = (np.array([axis.fraction(point[index]) for index, axis in axes]) for _, point in generation)
            search.tell([(place, float(rank)) for rank, place in enumerate(places)])
        return search


def _badness(trial: Trial) -> tuple[int, float]:
    """The better a trial, the smaller."""
    if trial.score.value is not None:
        return 0, -trial.score.utility
    return (1, 0.0) if trial.verdict.kind == "cancelled" else (2, 0.0)


def _drawn(axis: Axis, index: int, good: Sequence[Point], rng: np.random.Generator) -> float:
    """One of a choice's values, the more likely the more of the good points have it."""
    counts = [1 + sum(point[index] == rank for point in good) for rank in range(len(axis.choices))]
    return int(rng.choice(len(counts), p=[count / sum(counts) for count in counts]))

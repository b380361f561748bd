"""CMA-ES: a normal distribution that moves to where good trials are, and takes on their shape.

At each call the whole history is told to a new `cmaes.CMA`, whoever proposed the trials (Optuna's CmaEsSampler learns
from its own alone). Only the order within a generation counts: crashes come last, cancelled trials before them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from pydantic import Field

from tasks.proposers._numeric import Numeric, badness, with_categories
from tasks.proposing.axes import ASKS, Observations, Point
from tasks.proposing.brief import Brief

SPREAD = 0.25
"""Standard deviation of the first distribution around the middle, as a share of every axis."""


class Cmaes(Numeric):
    """A Sobol design first, then CMA-ES."""

    title = "CMA-ES"
    population: int | None = Field(default=None, ge=4, le=1_000)
    """Trials of a generation; None: 4 + 3 ln(axes), as is usual."""

    def answers(self, seen: Observations, brief: Brief) -> Iterator[Point]:
        search = self._search(seen, brief.seed)
        return with_categories(seen, (search.ask().tolist() if search else () for _ in range(ASKS)), brief.seed)

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
            generation = sorted(seen.decided[start : start + size], key=badness)
            places = (np.array([axis.fraction(point[index]) for index, axis in axes]) for _, point in generation)
            search.tell([(place, float(rank)) for rank, place in enumerate(places)])
        return search

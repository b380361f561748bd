"""CMA-ES: a normal distribution that moves to where good trials are, and takes on their shape.

At each call the whole history is told to a new `cmaes.CMA`, whoever proposed the trials (Optuna's CmaEsSampler learns
from its own alone). Only the order within a generation counts.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pydantic import Field

from tasks.proposers._numeric import Numeric
from tasks.proposing.brief import Brief
from tasks.proposing.points import ASKS, Observations, Point, places_of, points_at

SPREAD = 0.25
"""Standard deviation of the first distribution around the middle, as a share of every axis."""


class Cmaes(Numeric):
    """A Sobol design first, then CMA-ES."""

    title = "CMA-ES"
    population: int | None = Field(default=None, ge=4, le=1_000)
    """Trials of a generation; None: 4 + 3 ln(axes), as is usual."""

    def answers(self, seen: Observations, brief: Brief) -> Iterator[Point]:
        from cmaes import CMA  # type: ignore[import-untyped]

        middle, unit = np.full(len(seen.space), 0.5), np.array([[0.0, 1.0]] * len(seen.space))
        search = CMA(middle, SPREAD, bounds=unit, seed=brief.seed, population_size=self.population)
        told = [
            (np.array(places_of(seen.space, point)), -utility)
            for (_, point), utility in zip(seen.decided, seen.utilities, strict=True)
        ]
        for end in range(search.population_size, len(told) + 1, search.population_size):
            search.tell(told[end - search.population_size : end])
        return points_at(seen.space, (search.ask() for _ in range(ASKS)))

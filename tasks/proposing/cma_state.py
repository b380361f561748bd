"""The state of CMA-ES after a campaign's trials: its mean, step size and covariance, for the search and for models.

Shown to a language model, the state lets it use or overrule what numeric search has learnt (arXiv 2603.24647).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tasks.proposing.axes import Axis
from tasks.proposing.brief import Brief
from tasks.proposing.observations import Observations
from tasks.trial import Trial, Value

SPREAD = 0.25
"""Standard deviation of the first distribution around the middle, as a share of every axis."""
STRONG = 0.3
"""Correlations that are told, at least."""


def ordered(axes: Sequence[Axis]) -> list[tuple[int, Axis]]:
    """The axes with an order, by their place."""
    return [(index, axis) for index, axis in enumerate(axes) if axis.is_ordered]


def after(seen: Observations, population: int | None, seed: int) -> Any:
    """The `cmaes.CMA` over the axes with an order, after all whole generations that were decided."""
    from cmaes import CMA  # type: ignore[import-untyped]

    axes = ordered(seen.axes)
    unit = np.array([[0.0, 1.0]] * len(axes))
    search = CMA(np.full(len(axes), 0.5), SPREAD, bounds=unit, seed=seed, population_size=population)
    size = search.population_size
    for start in range(0, len(seen.decided) - size + 1, size):
        generation = sorted(seen.decided[start : start + size], key=lambda one: badness(one[0]))
        places = (np.array([axis.fraction(point[index]) for index, axis in axes]) for _, point in generation)
        search.tell([(place, float(rank)) for rank, place in enumerate(places)])
    return search


def badness(trial: Trial) -> tuple[int, float]:
    """The better a trial, the smaller."""
    if trial.score.value is not None:
        return 0, -trial.score.utility
    return (1, 0.0) if trial.verdict.kind == "cancelled" else (2, 0.0)


def in_words(brief: Brief) -> str:
    """The state, a line for each parameter and one for what belongs together; empty before the first generation."""
    seen = Observations.of(brief.space, brief.history, {}, brief.imported)
    axes = [axis for _, axis in ordered(seen.axes)]
    if not axes or not seen.scored:
        return ""
    search = after(seen, None, 0)
    if not search.generation:
        return ""
    covariance = search._C
    sigma, spread = float(search._sigma), np.sqrt(np.diag(covariance))
    lines = [f"step size {sigma:.2g} (it began at {SPREAD:g}, in parts of each range), generation {search.generation}"]
    for axis, mean, each in zip(axes, search.mean.tolist(), (sigma * spread).tolist(), strict=True):
        low, middle, high = (_value(axis, mean + side * each) for side in (-1, 0, 1))
        lines.append(f"{axis.name}: mean {middle}, one standard deviation from {low} to {high}")
    together = [
        f"{axes[one].name} and {axes[two].name} {covariance[one, two] / (spread[one] * spread[two]):+.1f}"
        for one in range(len(axes))
        for two in range(one)
        if abs(covariance[one, two]) >= STRONG * spread[one] * spread[two]
    ]
    lines.append(f"correlations: {', '.join(together) or f'none above {STRONG:g}'}")
    return "\n".join(f"- {line}" for line in lines)


def _value(axis: Axis, fraction: float) -> str:
    value: Value = axis.value(axis.at(min(max(fraction, 0.0), math.nextafter(1.0, 0.0))))
    return json.dumps(float(f"{value:.3g}") if isinstance(value, float) else value)

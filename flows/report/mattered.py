"""The parameters that mattered: their share of what the scores' variance can be explained by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from environments import Environment
from tasks.proposing.axes import Point
from tasks.proposing.observations import Observations
from tasks.trial import History, Trial

FEWEST = 12
"""Scored trials below which an importance would be luck."""
RESAMPLES = 12
MOST_TRIALS = 200
"""Of more trials this many, evenly spread, are used: forests of a thousand would take minutes."""
TREES = 8
INNER = 0.9
"""The interval's share of the resamples."""


@dataclass(frozen=True)
class Importance:
    """A parameter's share of the explained variance (fANOVA), with the interval over resampled trials."""

    name: str
    low: float
    share: float
    high: float


def scored_points(environment: Environment, history: History) -> tuple[Observations, list[tuple[Trial, Point]]]:
    """The trials as points of the space, and those of them that have a score."""
    seen = Observations.of(environment.space, history, {})
    return seen, [(trial, point) for trial, point in seen.decided if trial.score.value is not None]


def importances(environment: Environment, history: History) -> tuple[Importance, ...] | str:
    """The importance of each varied parameter, the greatest first; or why there is none."""
    seen, scored = scored_points(environment, history)
    if len(seen.axes) < 2:
        return "Fewer than two parameters were varied."
    if len(scored) < FEWEST:
        return f"Too few trials have a score to tell parameters apart: {len(scored)}, needed are {FEWEST}."
    # Evenly spread: the best alone are the lucky.
    chosen = [scored[place] for place in np.unique(np.linspace(0, len(scored) - 1, MOST_TRIALS).astype(int))]
    values = np.array([trial.score.utility for trial, _ in chosen])
    low, high = np.quantile(values, [0.25, 0.75])
    values = np.maximum(values, low - 3 * (high - low))  # one that diverged would explain everything
    if np.ptp(values) == 0:
        return "All scores are equal."
    rng, whole, draws = np.random.default_rng(0), _shares(seen, chosen, values, 0), []
    for seed in range(1, RESAMPLES + 1):
        picked = rng.integers(len(chosen), size=len(chosen))
        if np.ptp(values[picked]) > 0:
            draws.append(_shares(seen, [chosen[place] for place in picked], values[picked], seed))
    lows, highs = np.quantile([*draws, whole], [(1 - INNER) / 2, (1 + INNER) / 2], axis=0)
    found = [
        Importance(axis.name, min(float(a), share), share, max(float(b), share))
        for axis, a, share, b in zip(seen.axes, lows, map(float, whole), highs, strict=True)
    ]
    return tuple(sorted(found, key=lambda one: -one.share))


def _shares(
    seen: Observations, scored: Sequence[tuple[Trial, Point]], values: NDArray[np.float64], seed: int
) -> NDArray[np.float64]:
    """Each axis' share, in their order; from Optuna's fANOVA."""
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances
    from optuna.samplers import RandomSampler

    from tasks.proposing.optuna_study import study  # imports Optuna

    only = replace(seen, decided=tuple(scored), under_way=())
    made = study(only, [{"value": float(value)} for value in values], RandomSampler, True)
    shares = get_param_importances(made, evaluator=FanovaImportanceEvaluator(n_trees=TREES, max_depth=16, seed=seed))
    return np.array([shares.get(axis.name, 0.0) for axis in seen.axes])

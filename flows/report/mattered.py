"""The parameters that mattered: their share of what the scores' variance can be explained by."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from environments import Environment
from tasks.proposing.axes import Point
from tasks.proposing.observations import Observations
from tasks.trial import History, Trial

FEWEST = 12
"""Scored trials below which an importance would be luck."""
MOST_TRIALS = 200
"""Of more trials this many, evenly spread, are used: forests of a thousand would take minutes."""


def scored_points(environment: Environment, history: History) -> tuple[Observations, list[tuple[Trial, Point]]]:
    """The trials as points of the space, and those of them that have a score."""
    seen = Observations.of(environment.space, history, {})
    return seen, [(trial, point) for trial, point in seen.decided if trial.score.value is not None]


def importances(environment: Environment, history: History) -> dict[str, float] | str:
    """The share of each varied parameter, by Optuna's fANOVA, the greatest first; or why there is none."""
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
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances
    from optuna.samplers import RandomSampler

    from tasks.proposing.optuna_study import study  # imports Optuna

    only = replace(seen, decided=tuple(chosen), under_way=())
    made = study(only, [{"value": float(value)} for value in values], RandomSampler, True)
    shares = get_param_importances(made, evaluator=FanovaImportanceEvaluator(seed=0))
    return dict(sorted(shares.items(), key=lambda one: -one[1]))

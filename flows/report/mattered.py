"""The parameters that mattered: their share of what the scores' variance can be explained by, and their slices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from environments import Environment
from tasks.proposing.axes import Axis, Point
from tasks.proposing.observations import Observations
from tasks.trial import History, Trial

Floats = NDArray[np.float64]

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


@dataclass(frozen=True)
class Slice:
    """The scores of a campaign along one parameter."""

    axis: Axis
    trials: tuple[Trial, ...]
    at: tuple[float, ...]
    """The parameter's number in each of the trials."""


def importances(environment: Environment, history: History) -> tuple[Importance, ...] | str:
    """The importance of each varied parameter, the greatest first; or why there is none."""
    seen = Observations.of(environment.space, history, {})
    scored = [(trial, point) for trial, point in seen.decided if trial.score.value is not None]
    if len(seen.axes) < 2:
        return "Fewer than two parameters were varied."
    if len(scored) < FEWEST:
        short = "short " if any(trial.proposal.is_short for trial, _ in scored) else ""
        have = f"{short}trial has" if len(scored) == 1 else f"{short}trials have"
        return f"{len(scored)} {have} a score: too few to tell parameters apart (from {FEWEST} on)."
    chosen = [scored[place] for place in np.unique(np.linspace(0, len(scored) - 1, MOST_TRIALS).astype(int))]
    values = np.array([trial.score.utility for trial, _ in chosen])
    if np.ptp(values) == 0:
        return "All scores are equal."
    quarter, three = np.quantile(values, [0.25, 0.75])
    values = np.maximum(values, quarter - 3 * (three - quarter))  # one run that diverged would explain everything
    rng, whole, draws = np.random.default_rng(0), _shares(_only(seen, chosen), values, 0), []
    for seed in range(1, RESAMPLES + 1):
        picked = rng.integers(len(chosen), size=len(chosen))
        if np.ptp(values[picked]) > 0:
            draws.append(_shares(_only(seen, [chosen[place] for place in picked]), values[picked], seed))
    low, high = np.quantile([*draws, whole], [(1 - INNER) / 2, (1 + INNER) / 2], axis=0)
    found = [
        Importance(axis.name, min(float(a), share), share, max(float(b), share))
        for axis, a, share, b in zip(seen.axes, low, map(float, whole), high, strict=True)
    ]
    return tuple(sorted(found, key=lambda one: -one.share))


def _only(seen: Observations, decided: Sequence[tuple[Trial, Point]]) -> Observations:
    return replace(seen, decided=tuple(decided), under_way=())


def _shares(seen: Observations, values: Floats, seed: int) -> Floats:
    """Each axis' share, in their order; from Optuna's fANOVA."""
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances
    from optuna.samplers import RandomSampler

    from tasks.proposing.optuna_study import study  # imports Optuna

    made = study(seen, [{"value": float(value)} for value in values], RandomSampler, True)
    shares = get_param_importances(made, evaluator=FanovaImportanceEvaluator(n_trees=TREES, max_depth=16, seed=seed))
    return np.array([shares.get(axis.name, 0.0) for axis in seen.axes])


def slices(environment: Environment, history: History) -> tuple[Slice, ...]:
    """The scored trials along each varied parameter."""
    seen = Observations.of(environment.space, history, {})
    scored = [(trial, point) for trial, point in seen.decided if trial.score.value is not None]
    trials = tuple(trial for trial, _ in scored)
    return tuple(
        Slice(axis, trials, numbers)
        for place, axis in enumerate(seen.axes)
        if len(set(numbers := tuple(point[place] for _, point in scored))) > 1
    )

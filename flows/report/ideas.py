"""What to try next: a longer budget where the champion was still rising, a longer search where it still found better,
and untested points that a model of the scores likes best. Guesses, not measurements."""

from __future__ import annotations

import json
import math
import shlex
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from environments import Environment
from flows.report.mattered import scored_points, thinned, utilities
from tasks.describe import short_value
from tasks.numbers import number
from tasks.proposing.axes import params_of
from tasks.trial import History, best, budgets_used, trials_before

FEWEST, POINTS, CANDIDATES = 6, 3, 3072
"""Scored trials that a model of them needs, points that are told, and points that are compared."""
APART = 0.08
"""The least distance of an idea from what was tried and from the others, on axes of length 1."""
MOST = 150
"""Trials that the model is fitted to: its time grows with the cube."""
RISING = 0.1
"""A champion is still rising if the last fifth of its budget brought this share of its whole rise."""


@dataclass(frozen=True)
class Idea:
    words: str
    why: str
    command: str = ""


def ideas(
    environment: Environment, history: History, document: Mapping[str, Any], run: str, attempt: str
) -> tuple[Idea, ...]:
    """At most a handful, the most promising first.

    Args:
        document: The campaign, as `status --json` has it.
        run: The command that runs its search again under another name.
        attempt: The command that runs the champion's program once, but for `--params`.
    """
    found = (_longer_budget(environment, history, run), _longer_search(history, document, run))
    return (*filter(None, found), *_points(environment, history, attempt))


def _longer_budget(environment: Environment, history: History, run: str) -> Idea | None:
    champion = best(history)
    curve = [value for value in (champion.runs[-1].curve if champion and champion.runs else ()) if value is not None]
    if champion is None or len(curve) < 15:
        return None
    sign = 1 if champion.score.higher_is_better else -1
    whole, last = sign * (curve[-1] - curve[0]), sign * (curve[-1] - curve[-5])
    if whole <= 0 or last <= RISING * whole:
        return None
    budget = {"budget_seconds": 2 * environment.budget_seconds}
    if environment.budget_steps:
        budget["budget_steps"] = 2 * environment.budget_steps
    return Idea(
        f"A longer budget: {2 * environment.budget_seconds:g} s instead of {environment.budget_seconds:g} s.",
        f"Trial {champion.number} was still improving when its budget was used up: the last fifth of it brought "
        f"{last / whole:.0%} of its whole rise.",
        run + "".join(f" --set {key}={value:g}" for key, value in budget.items()),
    )


def _longer_search(history: History, document: Mapping[str, Any], run: str) -> Idea | None:
    """Twice the limit that ended the search, if one did."""
    champion, spec, hours = best(history), document["spec"], document["spent"]["seconds"] / 3600
    if champion is None or champion.number == 0 or len(trials_before(history, champion)) < 0.7 * len(history):
        return None
    why = f"The search was still finding better when it ended: its champion is trial {champion.number} of "
    why += f"{len(history) - 1}."
    if spec["trials"] - math.ceil(budgets_used(history)) < 1:  # `--trials` counts in whole budgets
        words = f"More trials: {2 * spec['trials']} instead of {spec['trials']}."
        longer = max(spec["hours"], round(2 * hours, 1))
        return Idea(words, why, f"{run} --trials {2 * spec['trials']} --hours {longer:g}")
    if (document["reason"] or "").startswith("no time"):
        had = round(hours, 1) if spec.get("until") else spec["hours"]  # whichever of the two ended it
        return Idea(f"More time: {2 * had:g} hours instead of {had:g}.", why, f"{run} --hours {2 * had:g}")
    return None


def _points(environment: Environment, history: History, attempt: str) -> Iterator[Idea]:
    """The best untested points by the posterior mean of a Gaussian process."""
    seen, scored = scored_points(environment, history)
    scored = thinned(scored, MOST)
    if len(scored) < FEWEST or np.ptp(values := utilities(scored)) == 0:
        return
    from scipy.stats import qmc  # type: ignore[import-untyped]
    from sklearn.exceptions import ConvergenceWarning  # type: ignore[import-untyped]
    from sklearn.gaussian_process import GaussianProcessRegressor  # type: ignore[import-untyped]
    from sklearn.gaussian_process.kernels import Matern, WhiteKernel  # type: ignore[import-untyped]

    known, tried = (
        np.array([[axis.fraction(n) for axis, n in zip(seen.axes, point, strict=True)] for _, point in some])
        for some in (scored, seen.decided)
    )
    kernel = Matern(np.full(known.shape[1], 0.5), (0.1, 10), nu=2.5) + WhiteKernel(0.2, (1e-3, 1))
    model = GaussianProcessRegressor(kernel, normalize_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a length at its bound: that axis does not matter
        model.fit(known, values)
    drawn = qmc.Sobol(known.shape[1], rng=0).random(2 * CANDIDATES // 3)
    around = known[values.argmax()] + np.random.default_rng(0).normal(0, 0.1, (CANDIDATES // 3, known.shape[1]))
    places = np.vstack([drawn, np.clip(around, 0, 1 - 1e-9)])
    means, errors = model.predict(places, return_std=True)
    sign, told = 1 if all(trial.score.higher_is_better for trial, _ in scored) else -1, 0
    for index in np.argsort(-means).tolist():
        if np.linalg.norm(places[index] - tried, axis=1).min() < APART:
            continue
        if told == POINTS:
            return
        told, tried = told + 1, np.vstack([tried, places[index]])
        point = tuple(axis.rounded(axis.at(float(f))) for axis, f in zip(seen.axes, places[index], strict=True))
        params = params_of(seen.axes, point)
        yield Idea(
            ", ".join(f"{name} = {short_value(value)}" for name, value in params.items()),
            f"Not tried yet. A Gaussian process of {len(scored)} scores expects "
            f"{number(sign * float(means[index]))} ± {number(float(errors[index]))} there.",
            f"{attempt} --params {shlex.quote(json.dumps(params))}",
        )

"""What to try tonight: untested points that a model of this campaign's scores likes best, near misses among the
edits, and a longer budget where the champion was still rising. Guesses, not measurements."""

from __future__ import annotations

import json
import math
import re
import shlex
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from environments import Environment
from tasks.deciding.champion_estimate import champion_estimate, is_barred
from tasks.describe import mean_of, short_value
from tasks.numbers import number
from tasks.proposing.axes import Point, params_of
from tasks.proposing.observations import Observations
from tasks.trial import History, Trial, best, budgets_used, trials_before

FEWEST = 6
"""Scored trials that a model of them needs."""
POINTS = 3
CANDIDATES = 2048
APART = 0.08
"""The least distance of an idea from what was tried and from the others, on axes of length 1."""
MOST = 150
"""Trials that the model is fitted to, evenly spread: its time grows with the cube, and the best alone are the lucky."""
RISING = 0.1
"""A champion is still rising if the last fifth of its budget brought this share of its whole rise."""


@dataclass(frozen=True)
class Idea:
    words: str
    why: str
    command: str = ""


def ideas(
    environment: Environment, history: History, command: str, document: Mapping[str, Any], program: str
) -> tuple[Idea, ...]:
    """At most a handful, the most promising first.

    Args:
        command: `nightshift run` with the environment and the options of the search.
        document: The campaign, as `status --json` has it.
        program: Options of `nightshift try` that run the champion's program; empty for the baseline's.
    """
    return (
        *_longer(environment, history, command, document["spec"]),
        *_more(history, command, document),
        *_points(environment, history, f"nightshift try --in {document['campaign']}{program}"),
        *_edits(history),
    )


def _longer(environment: Environment, history: History, command: str, spec: Mapping[str, Any]) -> Iterator[Idea]:
    champion = best(history)
    curve = [value for value in (champion.runs[-1].curve if champion and champion.runs else ()) if value is not None]
    if champion is None or len(curve) < 15:
        return
    sign = 1 if champion.score.higher_is_better else -1
    whole, last = sign * (curve[-1] - curve[0]), sign * (curve[-1] - curve[-5])
    if whole > 0 and last > RISING * whole:
        seconds, steps = environment.budget_seconds, environment.budget_steps
        longer, now, options = f"{2 * seconds:g} s", f"{seconds:g} s", f" --set budget_seconds={2 * seconds:g}"
        if steps:
            longer, now = f"{longer} and {2 * steps:,} steps", f"{now} and {steps:,} steps"
            options += f" --set budget_steps={2 * steps}"
        yield Idea(
            f"A longer budget: {longer} instead of {now}.",
            f"Trial {champion.number} was still improving when its budget was used up: the last fifth of it brought "
            f"{last / whole:.0%} of its whole rise.",
            re.sub(r" --set budget_(seconds|steps)=[^ ]+", "", command)
            + f"{options} --trials {spec['trials']} --hours {2 * spec['hours']:g}",
        )


def _more(history: History, command: str, document: Mapping[str, Any]) -> Iterator[Idea]:
    """Twice the limit that ended the search, if one did."""
    champion, spec, spent = best(history), document["spec"], document["spent"]["seconds"] / 3600
    trials, hours = spec["trials"], spec["hours"]
    if champion is None or champion.number == 0 or len(trials_before(history, champion)) < 0.7 * len(history):
        return
    why = f"The search was still finding better when it ended: its champion is trial {champion.number} of "
    why += f"{len(history) - 1}."
    if trials - math.ceil(budgets_used(history)) < 1:  # `--trials` counts in whole budgets
        limits = f"--trials {2 * trials} --hours {max(hours, round(2 * spent, 1)):g}"
        yield Idea(f"More trials: {2 * trials} instead of {trials}.", why, f"{command} {limits}")
    elif (document["reason"] or "").startswith("no time"):
        had = round(spent, 1) if spec.get("until") else hours  # whichever of the two ended it
        limits = f"--trials {trials} --hours {2 * had:g}"
        yield Idea(f"More time: {2 * had:g} hours instead of {had:g}.", why, f"{command} {limits}")


def _points(environment: Environment, history: History, command: str) -> Iterator[Idea]:
    """The best untested points by the posterior mean of a Gaussian process. (command: `nightshift try` without them)"""
    seen = Observations.of(environment.space, history, {})
    scored = [(trial, point) for trial, point in seen.decided if trial.score.value is not None]
    scored = [scored[place] for place in np.unique(np.linspace(0, len(scored) - 1, MOST).astype(int))] if scored else []
    values = np.array([trial.score.utility for trial, _ in scored])
    if len(scored) < FEWEST or np.ptp(values) == 0:
        return
    from scipy.stats import qmc  # type: ignore[import-untyped]
    from sklearn.exceptions import ConvergenceWarning  # type: ignore[import-untyped]
    from sklearn.gaussian_process import GaussianProcessRegressor  # type: ignore[import-untyped]
    from sklearn.gaussian_process.kernels import Matern, WhiteKernel  # type: ignore[import-untyped]

    quarter, three = np.quantile(values, [0.25, 0.75])
    values = np.maximum(values, quarter - 3 * (three - quarter))
    known = _places(seen, [point for _, point in scored])
    tried = _places(seen, [point for _, point in (*seen.decided, *seen.others)])
    model = GaussianProcessRegressor(
        Matern(np.full(known.shape[1], 0.5), (0.1, 10), nu=2.5) + WhiteKernel(0.2, (1e-3, 1)), normalize_y=True
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a length at its bound: that axis does not matter
        model.fit(known, values)
    of = " of short runs" if scored[0][0].proposal.is_short else ""
    drawn = qmc.Sobol(known.shape[1], rng=0).random(CANDIDATES)
    around = known[values.argmax()] + np.random.default_rng(0).normal(0, 0.1, (CANDIDATES // 2, known.shape[1]))
    places = np.vstack([drawn, np.clip(around, 0, 1 - 1e-9)])
    means, errors = model.predict(places, return_std=True)
    sign = 1 if all(trial.score.higher_is_better for trial, _ in scored) else -1
    chosen: list[int] = []
    for index in np.argsort(-means).tolist():
        others = np.vstack([tried, places[chosen]])
        if np.linalg.norm(places[index] - others, axis=1).min() < APART:
            continue
        chosen.append(index)
        if len(chosen) > POINTS:
            return
        point = tuple(axis.rounded(axis.at(float(f))) for axis, f in zip(seen.axes, places[index], strict=True))
        params = params_of(seen.axes, point)
        yield Idea(
            ", ".join(f"{name} = {short_value(value)}" for name, value in params.items()),
            f"Not tried yet. A Gaussian process of {len(scored)} scores{of} expects "
            f"{number(sign * float(means[index]))} ± {number(float(errors[index]))} there.",
            f"{command} --params {shlex.quote(json.dumps(params))}",
        )


def _places(seen: Observations, points: Sequence[Point]) -> npt.NDArray[np.float64]:
    """Points on axes of length 1, a row each."""
    return np.array([[axis.fraction(n) for axis, n in zip(seen.axes, point, strict=True)] for point in points])


def _edits(history: History) -> Iterator[Idea]:
    """Edits that were not kept and still scored better than the baseline by more than the luck of a run.

    Not those of the champion's own program, which have been measured on top of it, and were worse.
    """
    champion, first, estimate = best(history), mean_of(history, 0), champion_estimate(history)
    if champion is None or first is None or estimate is None:
        return
    sign = 1 if champion.score.higher_is_better else -1

    def gain(trial: Trial) -> float:
        return sign * ((trial.score.value or 0.0) - first)

    missed = [
        trial
        for trial in history
        if trial.verdict.kind == "discard" and trial.proposal.edit and trial.score.value is not None
        if gain(trial) > estimate.sd and trial.proposal.edit != champion.proposal.edit
        if trial.proposal.parent != champion.number and not is_barred(trial)
    ]
    for trial in sorted(missed, key=gain, reverse=True)[:POINTS]:
        yield Idea(
            f"The edit of trial {trial.number} on top of the champion: {trial.proposal.rationale}",
            f"It scored {number(trial.score.value)} against the baseline's {number(first)}, and was made on "
            f"{'the baseline' if trial.proposal.parent is None else f'trial {trial.proposal.parent}'}.",
        )

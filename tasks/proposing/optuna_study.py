"""Optuna's samplers as functions: a study is made from the observations, and asked."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import optuna
from optuna import Study
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.trial import TrialState, create_trial

from environments.space import Float, Int
from tasks.proposing.axes import ASKS, Axis, Observations, Point


def answers(seen: Observations, sampler: type[BaseSampler], **options: Any) -> Iterator[Point]:
    """A sampler's next points; each counts as under way when the next one is asked for."""
    made = study(seen, seen.utilities, sampler, **options)
    distributions = {axis.name: distribution(axis) for axis in seen.axes}
    for _ in range(ASKS):
        answer = made.ask(distributions).params
        yield tuple(axis.number(axis.value(answer[axis.name])) for axis in seen.axes)


def study(seen: Observations, values: Sequence[float], sampler: type[BaseSampler], **options: Any) -> Study:
    """The observations as a study that maximises, in their order.

    Args:
        values: Of the trials that are decided.
        options: The sampler's.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():  # Optuna calls options experimental, or says which version drops them
        for warning in (optuna.exceptions.ExperimentalWarning, FutureWarning):
            warnings.simplefilter("ignore", warning)
        made = optuna.create_study(sampler=sampler(**options), direction="maximize")
    distributions = {axis.name: distribution(axis) for axis in seen.axes}
    outcomes: list[dict[str, Any]] = [{"value": value} for value in values]
    outcomes += [{"state": TrialState.RUNNING}] * len(seen.under_way)
    for point, outcome in zip((*(point for _, point in seen.decided), *seen.under_way), outcomes, strict=True):
        params = dict(zip(distributions, point, strict=True))
        made.add_trial(create_trial(params=params, distributions=distributions, **outcome))
    return made


def distribution(axis: Axis) -> BaseDistribution:
    """The axis in Optuna's terms: numbers as they are, a choice by rank."""
    parameter = axis.parameter
    if isinstance(parameter, Float):
        return FloatDistribution(parameter.low, parameter.high, log=parameter.log)
    if isinstance(parameter, Int):
        return IntDistribution(parameter.low, parameter.high, log=parameter.log)
    ranks = range(len(axis.choices))
    return IntDistribution(0, ranks[-1]) if axis.is_ordered else CategoricalDistribution(tuple(ranks))

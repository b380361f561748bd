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

from environments.space import Choice, Float, Int, Parameter
from tasks.proposing.points import ASKS, Observations, Point, places_of, points_at

WIDE = 10**5
"""Integers beyond which a range is one of numbers: Optuna's Gaussian process makes a list of them."""


def answers(seen: Observations, sampler: type[BaseSampler], **options: Any) -> Iterator[Point]:
    """A sampler's next points; each counts as under way when the next one is asked for."""
    made = study(seen, seen.utilities, sampler, **options)
    distributions = {name: distribution(parameter) for name, parameter in seen.space.items()}
    for _ in range(ASKS):
        asked = zip(seen.space.values(), made.ask(distributions).params.values(), strict=True)
        point = tuple(one.ranked[answer] if isinstance(one, Choice) else answer for one, answer in asked)
        yield from points_at(seen.space, [places_of(seen.space, point)])


def study(seen: Observations, values: Sequence[float], sampler: type[BaseSampler], **options: Any) -> Study:
    """The observations as a study that maximises, in their order.

    Args:
        values: Of the trials that are decided.
        options: The sampler's.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings(action="ignore"):  # of options that are experimental, or that a version drops
        made = optuna.create_study(sampler=sampler(**options), direction="maximize")
    distributions = {name: distribution(parameter) for name, parameter in seen.space.items()}
    outcomes: list[dict[str, Any]] = [{"value": value} for value in values]
    outcomes += [{"state": TrialState.RUNNING}] * len(seen.under_way)
    for point, outcome in zip((*(point for _, point in seen.decided), *seen.under_way), outcomes, strict=True):
        told = zip(seen.space.values(), point, strict=True)
        numbers = (one.rank(value) if isinstance(one, Choice) else value for one, value in told)
        params = dict(zip(distributions, numbers, strict=True))
        made.add_trial(create_trial(params=params, distributions=distributions, **outcome))
    return made


def distribution(parameter: Parameter) -> BaseDistribution:
    """A parameter in Optuna's terms: numbers as they are, a choice by rank."""
    if isinstance(parameter, Int) and parameter.high - parameter.low < WIDE:
        return IntDistribution(parameter.low, parameter.high, log=parameter.log)
    if isinstance(parameter, Float | Int):
        return FloatDistribution(parameter.low, parameter.high, log=parameter.log)
    ranks = range(len(parameter.values))
    return IntDistribution(0, ranks[-1]) if parameter.is_ordered else CategoricalDistribution(tuple(ranks))

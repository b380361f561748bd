"""Optuna's samplers as functions: a study is made from the observations, and asked."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import optuna
from optuna import Study
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.study import StudyDirection
from optuna.trial import TrialState, create_trial

from environments.space import Float, Int
from tasks.proposing.axes import ASKS, Axis, Observations, Point


def study(
    seen: Observations,
    outcomes: Sequence[dict[str, Any]],
    sampler: type[BaseSampler],
    higher_is_better: bool,
    **options: Any,
) -> Study:
    """The observations as a study, in their order, with how each decided trial ended; `options` are the sampler's."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():  # Optuna calls options experimental, or says which version drops them
        for warning in (optuna.exceptions.ExperimentalWarning, FutureWarning):
            warnings.simplefilter("ignore", warning)
        direction = StudyDirection.MAXIMIZE if higher_is_better else StudyDirection.MINIMIZE
        made = optuna.create_study(sampler=sampler(**options), direction=direction)
    distributions = {axis.name: distribution(axis) for axis in seen.axes}
    ended = [(point, outcome) for (_, point), outcome in zip(seen.decided, outcomes, strict=True)]
    for point, outcome in ended + [(point, {"state": TrialState.RUNNING}) for point in seen.under_way]:
        params = dict(zip(distributions, point, strict=True))
        made.add_trial(create_trial(params=params, distributions=distributions, **outcome))
    return made


def ask(study: Study, axes: Sequence[Axis]) -> Iterator[Point]:
    """The study's next points; each counts as under way when the next one is asked for."""
    distributions = {axis.name: distribution(axis) for axis in axes}
    for _ in range(ASKS):
        answer = study.ask(distributions).params
        yield tuple(axis.number(axis.value(answer[axis.name])) for axis in axes)


def distribution(axis: Axis) -> BaseDistribution:
    """The axis in Optuna's terms: numbers as they are, a choice by rank."""
    parameter = axis.parameter
    if isinstance(parameter, Float):
        return FloatDistribution(parameter.low, parameter.high, log=parameter.log)
    if isinstance(parameter, Int):
        return IntDistribution(parameter.low, parameter.high, log=parameter.log)
    ranks = range(len(axis.choices))
    return IntDistribution(0, ranks[-1]) if axis.is_ordered else CategoricalDistribution(tuple(ranks))

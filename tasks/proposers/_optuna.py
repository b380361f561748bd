"""Optuna's samplers as functions: a study is made from the observations, and asked."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from environments.space import Float, Int
from tasks.proposers._axes import Axis, Point
from tasks.proposers._numeric import ASKS

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler

Outcome = tuple[Point, dict[str, Any]]
"""A point, and how it ended as `optuna.trial.create_trial` takes it."""


def study(
    axes: Sequence[Axis],
    outcomes: Iterable[Outcome],
    sampler: Callable[[], BaseSampler],
    higher_is_better: bool,
) -> Study:
    """A study in which these are the trials, in their order."""
    import optuna
    from optuna.study import StudyDirection
    from optuna.trial import create_trial

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():  # Optuna calls options experimental, or says which version drops them
        for warning in (optuna.exceptions.ExperimentalWarning, FutureWarning):
            warnings.simplefilter("ignore", warning)
        direction = StudyDirection.MAXIMIZE if higher_is_better else StudyDirection.MINIMIZE
        made = optuna.create_study(sampler=sampler(), direction=direction)
    names = [axis.name for axis in axes]
    distributions = {axis.name: distribution(axis) for axis in axes}
    for point, outcome in outcomes:
        params = dict(zip(names, point, strict=True))
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
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    parameter = axis.parameter
    if isinstance(parameter, Float):
        return FloatDistribution(parameter.low, parameter.high, log=parameter.log)
    if isinstance(parameter, Int):
        return IntDistribution(parameter.low, parameter.high, log=parameter.log)
    ranks = range(len(axis.choices))
    return IntDistribution(0, ranks[-1]) if axis.is_ordered else CategoricalDistribution(tuple(ranks))

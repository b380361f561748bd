"""Optuna's samplers as functions: a study is made from the observations, and asked."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import optuna
from optuna import Study
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from environments.space import Float, Int
from tasks.proposing.axes import Axis, Point
from tasks.proposing.observations import ASKS, Observations


class Given(FrozenTrial):
    """A trial that belongs to one study: the storage's deep copies would take most of the time of a proposal."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Given:
        return self


def study(
    seen: Observations,
    outcomes: Sequence[dict[str, Any]],
    sampler: type[BaseSampler],
    higher_is_better: bool,
    **options: Any,
) -> Study:
    """The observations as a study, in their order.

    Args:
        outcomes: How each decided trial ended: its value, or its state and intermediate values.
        options: The sampler's.
    """
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
        made.add_trial(_given(params, distributions, **outcome))
    return made


def _given(
    params: dict[str, Any],
    distributions: dict[str, BaseDistribution],
    state: TrialState = TrialState.COMPLETE,
    value: float | None = None,
    intermediate_values: dict[int, float] | None = None,
) -> Given:
    now, number = datetime.now(UTC), -1  # the study numbers its trials
    return Given(
        number, state, value, now, now if state.is_finished() else None, params, distributions, {}, {},
        intermediate_values or {}, number,
    )  # fmt: skip


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

"""Axes: the parameters of a space as numbers, and trials as points, for proposers that compute with distances."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from environments.score import Score
from environments.space import Choice, Float, Parameter, Space, Value
from tasks.proposing.brief import Pending
from tasks.stats.champion import is_barred
from tasks.trial import History, Params, Trial, best

Point = tuple[float, ...]
"""A number for every axis, in their order."""
ASKS = 8
"""Answers of a search that may be points tried before, until an untried point is drawn at random."""


@dataclass(frozen=True)
class Axis:
    """One parameter as a line of numbers: its values themselves, or the ranks of a choice's values."""

    name: str
    parameter: Parameter

    @cached_property
    def choices(self) -> tuple[Value, ...]:
        """A choice's values by rank, numbers in their order, others as they were listed; of anything else none."""
        if not isinstance(self.parameter, Choice):
            return ()
        values = self.parameter.values
        return tuple(sorted(values, key=float)) if self.is_ordered else values

    @property
    def is_ordered(self) -> bool:
        """Whether a greater number means more of something: of a choice, whether it is one between numbers."""
        values = self.parameter.values if isinstance(self.parameter, Choice) else ()
        return not any(isinstance(value, bool | str) for value in values)

    def number(self, value: Value) -> float:
        """The value's number. Raises ValueError when the parameter does not take it."""
        checked = self.parameter.check(value)
        if isinstance(self.parameter, Choice):
            return [repr(choice) for choice in self.choices].index(repr(checked))  # by repr, since True == 1
        return float(checked) if isinstance(self.parameter, Float) else int(checked)

    def value(self, number: float) -> Value:
        """The value of a number; one that rounding carried beyond an end stands for that end."""
        if isinstance(self.parameter, Choice):
            return self.choices[int(number)]
        return self.parameter.check(min(max(number, self.parameter.low), self.parameter.high))

    def at(self, fraction: float) -> float:
        """The number at `fraction` (0..1) of the scale, of which whole numbers have equal shares."""
        if isinstance(self.parameter, Choice):
            return min(int(fraction * len(self.choices)), len(self.choices) - 1)
        return self.parameter.at(fraction)

    def fraction(self, number: float) -> float:
        """A number's position on the scale, 0 to 1; the inverse of `at`, but for rounding."""
        if isinstance(self.parameter, Choice):
            return (number + 0.5) / len(self.choices)
        return self.parameter.fraction(number)

    def rounded(self, number: float) -> float:
        """A float's number to a millionth of its scale: BLAS kernels differ in last digits from one CPU to another."""
        return self.at(round(self.fraction(number), 6)) if isinstance(self.parameter, Float) else number

    def some(self, count: int) -> Sequence[float]:
        """So many of its numbers or more, or all of them."""
        if isinstance(self.parameter, Choice):
            return range(len(self.choices))
        low, high = self.parameter.low, self.parameter.high
        return self.parameter.grid(count) if isinstance(self.parameter, Float) else range(int(low), int(high) + 1)


def varied(space: Space) -> tuple[Axis, ...]:
    """The axes of the parameters that have more than one value."""
    axes = (Axis(name, parameter) for name, parameter in space.items())
    return tuple(axis for axis in axes if len(axis.choices) != 1)


def point_of(axes: Sequence[Axis], params: Mapping[str, Value]) -> Point | None:
    """The point of parameters; None when a value is missing or outside its range."""
    try:
        return tuple(axis.number(params[axis.name]) for axis in axes)
    except (KeyError, ValueError):
        return None


def params_of(axes: Sequence[Axis], point: Point) -> Params:
    return {axis.name: axis.value(number) for axis, number in zip(axes, point, strict=True)}


def places_of(axes: Sequence[Axis], point: Point) -> list[float]:
    """A point's position on each scale, 0 to 1."""
    return [axis.fraction(number) for axis, number in zip(axes, point, strict=True)]


def points_at(axes: Sequence[Axis], places: Iterable[Iterable[float]]) -> Iterator[Point]:
    """The points at these positions."""
    for row in places:
        yield tuple(axis.at(float(place)) for axis, place in zip(axes, row, strict=True))


def untried(axes: Sequence[Axis], tried: AbstractSet[Point], seed: int) -> Point | None:
    """A point that was not tried, drawn at random; None when all of them were."""
    rng, enough = random.Random(seed), len(tried) + 1  # of so many different points, one was not tried
    lines = [axis.some(enough) for axis in axes]
    drawn = [rng.sample(line, min(len(line), enough)) for line in lines]
    return next((point for point in itertools.product(*drawn) if point not in tried), None)


@dataclass(frozen=True)
class Observations:
    """The trials so far, as points of the space; what lies outside of it counts only in `made`.

    A trial counts whoever proposed it and whatever its program was. One that was refused whatever its score, such as
    for a guarded metric that fell, counts as one without a score.
    """

    axes: tuple[Axis, ...]
    decided: tuple[tuple[Trial, Point], ...]
    """Those that a search learns from, in the order in which they were decided."""
    under_way: tuple[Point, ...]
    made: int
    """Proposals other than the baseline."""
    program: str | None
    """The champion's edit, with which the next point will run."""

    @classmethod
    def of(cls, space: Space, history: History, pending: Pending) -> Observations:
        axes, champion = varied(space), best(history)
        points = ((_without(trial), point_of(axes, trial.proposal.params)) for trial in history)
        under_way = (point_of(axes, proposal.params) for proposal in pending.values())
        return cls(
            axes,
            tuple((trial, point) for trial, point in points if point is not None),
            tuple(point for point in under_way if point is not None),
            len(pending) + sum(trial.number > 0 for trial in history),
            champion.proposal.edit if champion else None,
        )

    @cached_property
    def tried(self) -> set[Point]:
        """The points under way, and those decided with the champion's program; with another program a point is new."""
        here = (point for trial, point in self.decided if trial.proposal.edit == self.program)
        return {*self.under_way, *here}

    @property
    def scored(self) -> list[Trial]:
        return [trial for trial, _ in self.decided if trial.score.value is not None]

    @cached_property
    def utilities(self) -> list[float]:
        """What a search is told of each decided trial, higher is better; at least one of them has a score.

        No score lies below Tukey's outer fence (the lower quartile less three times the distance of the quartiles), so
        that one run that diverged to -1e6 does not make all others equal. A crash has the worst score so far, so that
        its surroundings are avoided, a cancelled trial the lower quartile.
        """
        scored = [trial.score.utility for trial in self.scored]
        low, high = (float(value) for value in np.quantile(scored, [0.25, 0.75]))
        worst = max(min(scored), low - 3 * (high - low))

        def of(trial: Trial) -> float:
            if trial.score.value is not None:
                return max(trial.score.utility, worst)
            return low if trial.verdict.kind == "cancelled" else worst

        return [of(trial) for trial, _ in self.decided]


def _without(trial: Trial) -> Trial:
    """The trial, without its score where it was refused whatever that was."""
    missing = Score.missing(trial.verdict.reason, trial.score.higher_is_better)
    return replace(trial, score=missing) if is_barred(trial) else trial

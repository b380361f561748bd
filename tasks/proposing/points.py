"""Points: the trials of a history in a space, and their places on its scales, for searches that learn from scores."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from environments.space import Choice, Float, Int, Space, Value
from tasks.proposing.brief import Pending
from tasks.stats.champion import is_barred
from tasks.trial import History, Trial, best

Point = tuple[Value, ...]
"""A value for each of some parameters, in their order. Points are told apart by `repr`, since True == 1."""
ASKS = 8
"""Answers of a search that may be points tried before, until an untried point is drawn at random."""


def varied(space: Space) -> Space:
    """The parameters that have more than one value."""
    return {name: one for name, one in space.items() if not isinstance(one, Choice) or len(one.values) > 1}


def point_of(space: Space, params: Mapping[str, Value]) -> Point | None:
    """The point of parameters; None when a value is missing or outside its range."""
    try:
        return tuple(parameter.check(params[name]) for name, parameter in space.items())
    except (KeyError, ValueError):
        return None


def places_of(space: Space, point: Point) -> list[float]:
    """A point's position on each scale, 0 to 1."""
    return [parameter.fraction(value) for parameter, value in zip(space.values(), point, strict=True)]


def points_at(space: Space, places: Iterable[Iterable[float]]) -> Iterator[Point]:
    """The points at these positions, floats to a millionth of their scale: BLAS kernels differ in last digits from one
    CPU to another.
    """
    for row in places:
        pairs = zip(space.values(), map(float, row), strict=True)
        yield tuple(one.at(round(place, 6) if isinstance(one, Float) else place) for one, place in pairs)


def untried(space: Space, tried: AbstractSet[str], seed: int) -> Point | None:
    """A point that was not tried, drawn at random; None when all of them were."""
    rng, enough = random.Random(seed), len(tried) + 1  # of so many different points, one was not tried
    drawn = list[list[Value]]()
    for one in space.values():
        line: Sequence[Value] = range(one.low, one.high + 1) if isinstance(one, Int) else one.grid(enough)
        drawn.append(rng.sample(line, min(len(line), enough)))
    return next((point for point in itertools.product(*drawn) if repr(point) not in tried), None)


@dataclass(frozen=True)
class Observations:
    """The trials so far, as points of the space; what lies outside of it counts only in `made`.

    A trial counts whoever proposed it and whatever its program was. One that was refused whatever its score, such as
    for a guarded metric that fell, counts as one without a score.
    """

    space: Space
    """The parameters that vary."""
    decided: tuple[tuple[Trial, Point], ...]
    """Those that a search learns from, in the order in which they were decided."""
    under_way: tuple[Point, ...]
    made: int
    """Proposals other than the baseline."""
    program: str | None
    """The champion's edit, with which the next point will run."""

    @classmethod
    def of(cls, space: Space, history: History, pending: Pending) -> Observations:
        space, champion = varied(space), best(history)
        points = ((trial, point_of(space, trial.proposal.params)) for trial in history)
        under_way = (point_of(space, proposal.params) for proposal in pending.values())
        return cls(
            space,
            tuple((trial, point) for trial, point in points if point is not None),
            tuple(point for point in under_way if point is not None),
            len(pending) + sum(trial.number > 0 for trial in history),
            champion.proposal.edit if champion else None,
        )

    @cached_property
    def tried(self) -> set[str]:
        """The points under way, and those decided with the champion's program; with another program a point is new."""
        here = (point for trial, point in self.decided if trial.proposal.edit == self.program)
        return set(map(repr, (*self.under_way, *here)))

    @property
    def scored(self) -> list[tuple[Trial, Point]]:
        return [one for one in self.decided if one[0].score.value is not None and not is_barred(one[0])]

    @cached_property
    def utilities(self) -> list[float]:
        """What a search is told of each decided trial, higher is better; at least one of them has a score.

        No score lies below Tukey's outer fence (the lower quartile less three times the distance of the quartiles), so
        that one run that diverged to -1e6 does not make all others equal. A crash has the worst score so far, so that
        its surroundings are avoided, a cancelled trial the lower quartile.
        """
        scored = [trial.score.utility for trial, _ in self.scored]
        low, high = (float(value) for value in np.quantile(scored, [0.25, 0.75]))
        worst = max(min(scored), low - 3 * (high - low))

        def of(trial: Trial) -> float:
            if trial.score.value is None or is_barred(trial):
                return low if trial.verdict.kind == "cancelled" else worst
            return max(trial.score.utility, worst)

        return [of(trial) for trial, _ in self.decided]

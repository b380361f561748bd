"""The base of proposers that learn from scores alone: observations, a Sobol design first, and no point twice."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import ClassVar

import numpy as np
from pydantic import Field

from tasks.numbers import number
from tasks.proposers import Proposer
from tasks.proposing.axes import Axis, Observations, Point, params_of, point_of, untried
from tasks.proposing.brief import Brief, Suggestion
from tasks.trial import Trial


class Numeric(Proposer):
    """A Sobol design first, then a search that is made anew from the history at each call.

    No point is tried twice with the same program: a second score would be another draw of its luck. The best trials of
    another tool, none of which was measured here, are the first points of the design.
    """

    title: ClassVar[str]
    """The search's name in a rationale."""
    startup: int = Field(default=4, ge=1, le=1_000)
    """Points of the Sobol design before the search takes over; the design goes on while no trial has a score."""

    @abstractmethod
    def answers(self, seen: Observations, brief: Brief) -> Iterator[Point]:
        """The next points of the search, best first. There are an axis and a trial with a score."""

    def is_warm(self, brief: Brief) -> bool:
        """Whether the search needs no design."""
        return False

    def propose(self, brief: Brief) -> Suggestion | None:
        refused = len(brief.refusals)
        seen = Observations.of(brief.space, brief.history, brief.pending)
        spare = untried(seen.axes, seen.tried, brief.seed + refused)
        if not seen.axes or spare is None:
            return None
        elsewhere: dict[Point, str] = {}
        is_new = seen.made < self.startup and not self.is_warm(brief)
        if is_new or not seen.scored:
            elsewhere = best_elsewhere(seen.axes, brief, self.startup)
            # One design for the whole campaign, by the baseline's seed; `brief.seed` is each trial's own.
            answers = design(seen.axes, brief.campaign_seed, 2 * (seen.made + self.startup + refused))
            why = f"Sobol point {seen.made + 1} of {self.startup}" if is_new else "a Sobol point: no trial has a score"
        else:
            answers, why = self.answers(seen, brief), self._rationale(seen)
        rounded = (
            tuple(axis.rounded(number) for axis, number in zip(seen.axes, answer, strict=True)) for answer in answers
        )
        point = _first(itertools.chain(elsewhere, rounded), seen.tried, refused)
        if point is None:
            point, why = spare, f"a random point: {why} came only to points tried before"
        return Suggestion(params_of(seen.axes, point), elsewhere.get(point, why))

    def _rationale(self, seen: Observations) -> str:
        best = max(seen.scored, key=lambda trial: trial.score.utility)
        trials = "1 scored trial" if len(seen.scored) == 1 else f"{len(seen.scored)} scored trials"
        return f"{self.title} on {trials}, best {number(best.score.value)} (trial {best.number})"


def best_elsewhere(axes: Sequence[Axis], brief: Brief, most: int) -> dict[Point, str]:
    """The best trials of another tool, best first, each with the reason to try it here."""
    sign = -1.0 if brief.problem.higher_is_better else 1.0
    scored = [(sign * one.score, place, one) for place, one in enumerate(brief.imported, 1) if one.score is not None]
    made: dict[Point, str] = {}
    for _, place, one in sorted(scored, key=lambda each: each[0]):
        if (point := point_of(axes, one.params)) is not None and len(made) < most:
            why = f"one of the best of {len(scored)} imported trials, with {number(one.score)} there: number {place}"
            made.setdefault(point, why)
    return made


def _first(answers: Iterable[Point], tried: AbstractSet[Point], refused: int) -> Point | None:
    """The first new answer after those that were refused: the same brief gives the same answers again."""
    seen = set(tried)
    for answer in answers:  # one at a time: an answer may take long
        if answer not in seen and len(seen) - len(tried) == refused:
            return answer
        seen.add(answer)
    return None


def design(axes: Sequence[Axis], seed: int, count: int) -> Iterator[Point]:
    """The first points, at least `count`, of this seed's scrambled Sobol sequence."""
    from scipy.stats import qmc  # type: ignore[import-untyped]

    sobol = qmc.Sobol(len(axes), scramble=True, rng=seed)
    for row in sobol.random_base2(math.ceil(math.log2(count))).tolist():
        yield tuple(axis.at(fraction) for axis, fraction in zip(axes, row, strict=True))


def badness(one: tuple[Trial, Point]) -> tuple[int, float]:
    """The better a trial, the smaller; a crash comes last, a cancelled trial before it."""
    trial = one[0]
    if trial.score.value is not None:
        return 0, -trial.score.utility
    return (1, 0.0) if trial.verdict.kind == "cancelled" else (2, 0.0)


def with_categories(seen: Observations, fractions: Iterable[Iterable[float]], seed: int) -> Iterator[Point]:
    """Points of a search over the axes with an order, from its fractions of them.

    Of any other choice a value is drawn as often as it occurs in the best quarter of the trials, each once more than
    that.
    """
    rng, ranked = np.random.default_rng(seed), sorted(seen.decided, key=badness)
    good = [point for _, point in ranked[: math.ceil(len(ranked) / 4)]]

    def drawn(axis: Axis, index: int) -> float:
        counts = [1 + sum(point[index] == rank for point in good) for rank in range(len(axis.choices))]
        return int(rng.choice(len(counts), p=[count / sum(counts) for count in counts]))

    for row in fractions:
        ordered = iter(row)
        yield tuple(
            axis.at(min(next(ordered), math.nextafter(1.0, 0.0))) if axis.is_ordered else drawn(axis, index)
            for index, axis in enumerate(seen.axes)
        )

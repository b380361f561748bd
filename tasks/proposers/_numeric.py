"""The base of proposers that learn from scores alone: observations, a Sobol design first, and no point twice."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import ClassVar

from pydantic import Field

from tasks.numbers import number
from tasks.proposers import Proposer
from tasks.proposing.axes import Axis, Point, params_of, untried
from tasks.proposing.brief import Brief, Suggestion
from tasks.proposing.observations import Observations


class Numeric(Proposer):
    """A Sobol design first, then a search that is made anew from the history at each call.

    No point is tried twice with the same program, nor the baseline's: a second score of the same point is another
    draw of its luck, not a find. Once every point of a discrete space was tried, there is nothing left to try.
    """

    ranks: ClassVar[bool] = True
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
        is_design = not seen.scored or (seen.made < self.startup and not self.is_warm(brief))
        if is_design:
            # One design for the whole campaign, by the baseline's seed; `brief.seed` is each trial's own.
            answers = design(seen.axes, brief.history[0].runs[0].seed, 2 * (seen.made + self.startup + refused))
        else:
            answers = self.answers(seen, brief)
        rounded = (
            tuple(axis.rounded(number) for axis, number in zip(seen.axes, answer, strict=True)) for answer in answers
        )
        point, why = _first(rounded, seen.tried, refused), self._rationale(seen, is_design)
        if point is None:
            point, why = spare, f"a random point: {why} came only to points tried before"
        return Suggestion(params_of(seen.axes, point), why)

    def _rationale(self, seen: Observations, is_design: bool) -> str:
        if is_design and seen.made < self.startup:
            return f"Sobol point {seen.made + 1} of {self.startup}"
        if is_design:
            return f"Sobol point {seen.made + 1}, as no trial has a score yet"
        best = max(seen.scored, key=lambda trial: trial.score.utility)
        trials = "1 scored trial" if len(seen.scored) == 1 else f"{len(seen.scored)} scored trials"
        return f"{self.title} on {trials}, best {number(best.score.value)} (trial {best.number})"


def _first(answers: Iterable[Point], tried: AbstractSet[Point], refused: int) -> Point | None:
    """The first new answer after those that were refused: the same brief gives the same answers again."""
    known = set(tried)
    for answer in answers:  # one at a time: an answer may take long
        if answer not in known and len(known) - len(tried) == refused:
            return answer
        known.add(answer)
    return None


def design(axes: Sequence[Axis], seed: int, count: int) -> Iterator[Point]:
    """The first points, at least `count`, of this seed's scrambled Sobol sequence."""
    from scipy.stats import qmc  # type: ignore[import-untyped]

    sobol = qmc.Sobol(len(axes), scramble=True, rng=seed)
    for row in sobol.random_base2(math.ceil(math.log2(count))).tolist():
        yield tuple(axis.at(fraction) for axis, fraction in zip(axes, row, strict=True))

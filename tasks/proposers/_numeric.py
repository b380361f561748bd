"""The base of proposers that learn from scores alone: observations, a Sobol design first, and no point twice."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import ClassVar

from pydantic import Field

from environments.space import Space
from tasks.numbers import number
from tasks.proposers import Proposer
from tasks.proposing.brief import Brief, Suggestion
from tasks.proposing.points import Observations, Point, point_of, points_at, untried


class Numeric(Proposer):
    """A Sobol design first, then a search that is made anew from the history at each call.

    No point is tried twice with the same program: a second score would be another draw of its luck. The best trials of
    another tool, none of which was measured here, are the first points of the design.
    """

    title: ClassVar[str]
    """The search's name in a rationale."""
    starts_warm: ClassVar[bool] = False
    """Whether it learns from trials of earlier campaigns, and then needs no design."""
    startup: int = Field(default=4, ge=1, le=1_000)
    """Points of the Sobol design before the search takes over; the design goes on while no trial has a score."""

    @abstractmethod
    def answers(self, seen: Observations, brief: Brief) -> Iterator[Point]:
        """The next points of the search, best first. There are an axis and a trial with a score."""

    def starts(self, space: Space, brief: Brief) -> dict[str, tuple[Point, str]]:
        """The first points by their `repr`, each with the reason to try it: the best trials of another tool."""
        made: dict[str, tuple[Point, str]] = {}
        for place, one in brief.ranked:
            point = point_of(space, one.params)
            if one.score is not None and point is not None and len(made) < self.startup:
                why = f"one of the best of {len(brief.imported)} imported trials, with {number(one.score)} there"
                made.setdefault(repr(point), (point, f"{why}: number {place}"))
        return made

    def propose(self, brief: Brief) -> Suggestion | None:
        refused = len(brief.refusals)
        seen = Observations.of(brief.space, brief.history, brief.pending)
        spare = untried(seen.space, seen.tried, brief.seed + refused)
        if not seen.space or spare is None:
            return None
        is_new = seen.made < self.startup
        starts = self.starts(seen.space, brief) if is_new or not seen.scored else {}
        if (is_new and not (self.starts_warm and brief.earlier)) or not seen.scored:
            # One design for the whole campaign, by the baseline's seed; `brief.seed` is each trial's own.
            answers = design(seen.space, brief.campaign_seed, 2 * (seen.made + self.startup + refused))
            why = f"Sobol point {seen.made + 1} of {self.startup}" if is_new else "a Sobol point: no trial has a score"
        else:
            answers, why = self.answers(seen, brief), self._rationale(seen)
        point = _first(itertools.chain((start for start, _ in starts.values()), answers), seen.tried, refused)
        if point is None:
            point, why = spare, f"a random point: {why} came only to points tried before"
        return Suggestion(dict(zip(seen.space, point, strict=True)), starts.get(repr(point), (point, why))[1])

    def _rationale(self, seen: Observations) -> str:
        best = max((trial for trial, _ in seen.scored), key=lambda trial: trial.score.utility)
        trials = "1 scored trial" if len(seen.scored) == 1 else f"{len(seen.scored)} scored trials"
        return f"{self.title} on {trials}, best {number(best.score.value)} (trial {best.number})"


def _first(answers: Iterable[Point], tried: AbstractSet[str], refused: int) -> Point | None:
    """The first new answer after those that were refused: the same brief gives the same answers again."""
    seen = set(tried)
    for answer in answers:  # one at a time: an answer may take long
        if repr(answer) not in seen and len(seen) - len(tried) == refused:
            return answer
        seen.add(repr(answer))
    return None


def design(space: Space, seed: int, count: int) -> Iterator[Point]:
    """The first points, at least `count`, of this seed's scrambled Sobol sequence."""
    from scipy.stats import qmc  # type: ignore[import-untyped]

    sobol = qmc.Sobol(len(space), scramble=True, rng=seed)
    return points_at(space, sobol.random_base2(math.ceil(math.log2(count))))

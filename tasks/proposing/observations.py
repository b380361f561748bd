"""A campaign's trials as points of the search space."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from environments.score import Score
from environments.space import Space
from tasks.proposing.axes import Axis, Point, point_of, varied
from tasks.proposing.brief import Pending
from tasks.stats.champion import is_barred
from tasks.trial import History, Trial, best

ASKS = 8
"""Answers of a search that may be points tried before, until an untried point is drawn at random."""


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


def _without(trial: Trial) -> Trial:
    """The trial, without its score where it was refused whatever that was."""
    missing = Score.missing(trial.verdict.reason, trial.score.higher_is_better)
    return replace(trial, score=missing) if is_barred(trial) else trial

"""A campaign's trials as points of the search space, after those of another tool.

Another judge, machine or set of questions measured the imported ones, so their level is not ours, though their order is
likely to be. All are moved by the same amount, so that the one that lies nearest to the baseline has its score.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from environments.earlier_trials import EarlierTrial
from environments.score import Score
from environments.space import Space
from tasks.proposing.axes import Axis, Point, point_of, varied
from tasks.proposing.brief import Pending
from tasks.stats.champion import is_barred
from tasks.trial import History, Proposal, Trial, Verdict, baseline, best

ASKS = 8
"""Answers of a search that may be points tried before, until an untried point is drawn at random."""
MOST = 500
"""Imported trials that a search learns from, the newest ones: it processes all of them at each turn."""
PROPOSER = "imported"


@dataclass(frozen=True)
class Observations:
    """The trials so far, as points of the space; what lies outside of it counts only in `made`.

    A trial counts whoever proposed it and whatever its program was. One that was refused whatever its score, such as
    for a guarded metric that fell, counts as one without a score.
    """

    axes: tuple[Axis, ...]
    decided: tuple[tuple[Trial, Point], ...]
    """Those that a search learns from, imported ones first, in the order in which they were decided."""
    under_way: tuple[Point, ...]
    made: int
    """Proposals other than the baseline."""
    program: str | None
    """The champion's edit, with which the next point will run."""

    @classmethod
    def of(
        cls, space: Space, history: History, pending: Pending, imported: Sequence[EarlierTrial] = ()
    ) -> Observations:
        axes, champion = varied(space), best(history)
        points = ((_without(trial), point_of(axes, trial.proposal.params)) for trial in history)
        under_way = (point_of(axes, proposal.params) for proposal in pending.values())
        return cls(
            axes,
            (*observed(axes, imported, history), *((trial, point) for trial, point in points if point is not None)),
            tuple(point for point in under_way if point is not None),
            len(pending) + sum(trial.number > 0 for trial in history),
            champion.proposal.edit if champion else None,
        )

    @cached_property
    def tried(self) -> set[Point]:
        """The points under way, and those decided with the champion's program; with another program a point is new."""
        here = [(trial, point) for trial, point in self.decided if not is_imported(trial)]
        return {*self.under_way, *(point for trial, point in here if trial.proposal.edit == self.program)}

    @property
    def scored(self) -> list[Trial]:
        return [trial for trial, _ in self.decided if trial.score.value is not None]

    @property
    def imported(self) -> list[tuple[Trial, Point]]:
        """Those of another tool that have a score, and that a search learns from."""
        return [(trial, point) for trial, point in self.decided if is_imported(trial) and trial.score.value is not None]


def _without(trial: Trial) -> Trial:
    """The trial, without its score where it was refused whatever that was."""
    missing = Score.missing(trial.verdict.reason, trial.score.higher_is_better)
    return replace(trial, score=missing) if is_barred(trial) else trial


def is_imported(trial: Trial) -> bool:
    """Whether a trial of a search's observations was run by another tool."""
    return trial.number < 0


def observed(axes: Sequence[Axis], imported: Sequence[EarlierTrial], history: History) -> list[tuple[Trial, Point]]:
    """The imported trials that have a value for every axis, as trials without runs; the n-th has the number -n."""
    points = ((number, one, point_of(axes, one.params)) for number, one in enumerate(imported, 1))
    complete = [(number, one, point) for number, one, point in points if point is not None][-MOST:]
    if not complete or not history:
        return []
    by = _difference(axes, [(one.score, point) for _, one, point in complete if one.score is not None], history)
    return [(_trial(number, one, by, history[0].score.higher_is_better), point) for number, one, point in complete]


def _trial(number: int, one: EarlierTrial, by: float, higher_is_better: bool) -> Trial:
    score, verdict = Score.missing("it failed there", higher_is_better), Verdict("crash", "it failed there")
    if one.score is not None:
        score = Score(one.score + by, n=1, higher_is_better=higher_is_better)
        verdict = Verdict("discard", "measured by another tool")
    proposal = Proposal(dict(one.params), rationale=one.note, proposer=PROPOSER)
    return Trial(-number, 1, -number, proposal, (), score, verdict)


def _difference(axes: Sequence[Axis], scored: Sequence[tuple[float, Point]], history: History) -> float:
    """The baseline's score less that of the imported trial that is nearest to it; 0 if either is missing."""
    first = baseline(history)
    start = point_of(axes, first.proposal.params) if first else None
    if first is None or first.score.value is None or start is None or not scored:
        return 0.0

    def distance(one: tuple[float, Point]) -> float:
        """In parts of each axis; two categories are as far apart as its ends."""
        return math.fsum(
            (axis.fraction(a) - axis.fraction(b)) ** 2 if axis.is_ordered else float(a != b)
            for axis, a, b in zip(axes, start, one[1], strict=True)
        )

    return first.score.value - min(scored, key=distance)[0]

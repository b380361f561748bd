"""Imported trials as points of the search space, with their scores moved to the level of this campaign.

Another judge, another machine or other questions measured them, so their level is not ours, though their order is
likely to be. They are therefore moved, all by the same amount, so that the one that lies nearest to the baseline has
the baseline's score.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from environments.earlier_trials import EarlierTrial
from environments.score import Score
from tasks.proposing.axes import Axis, Point, point_of
from tasks.trial import History, Proposal, Trial, Verdict, baseline

MOST = 500
"""Imported trials that a search learns from, the newest ones: it processes all of them at each turn."""
PROPOSER = "imported"


def is_imported(trial: Trial) -> bool:
    """Whether a trial of a search's observations was run by another tool."""
    return trial.number < 0


def observed(axes: Sequence[Axis], imported: Sequence[EarlierTrial], history: History) -> list[tuple[Trial, Point]]:
    """The imported trials that have a value for every axis, as trials without runs; the n-th has the number -n."""
    points = ((number, one, point_of(axes, one.params)) for number, one in enumerate(imported, 1))
    complete = [(number, one, point) for number, one, point in points if point is not None][-MOST:]
    if not complete or not history:
        return []
    higher_is_better = history[0].score.higher_is_better
    by = _difference(axes, [(one.score, point) for _, one, point in complete if one.score is not None], history)
    return [(_trial(number, one, by, higher_is_better), point) for number, one, point in complete]


def _trial(number: int, one: EarlierTrial, by: float, higher_is_better: bool) -> Trial:
    proposal = Proposal(dict(one.params), rationale=one.note, proposer=PROPOSER)
    if one.score is None:
        score, verdict = Score.missing("it failed there", higher_is_better), Verdict("crash", "it failed there")
    else:
        score = Score(one.score + by, n=1, higher_is_better=higher_is_better)
        verdict = Verdict("discard", "measured by another tool")
    return Trial(-number, 1, -number, proposal, (), score, verdict)


def _difference(axes: Sequence[Axis], scored: Sequence[tuple[float, Point]], history: History) -> float:
    """The baseline's score less the mean of the imported trials that are nearest to it; 0 if either is missing."""
    first = baseline(history)
    point = point_of(axes, first.proposal.params) if first else None
    if first is None or first.score.value is None or point is None or not scored:
        return 0.0
    far = [(_distance(axes, point, other), score) for score, other in scored]
    least = min(distance for distance, _ in far)
    near = [score for distance, score in far if distance == least]
    return first.score.value - math.fsum(near) / len(near)


def _distance(axes: Sequence[Axis], one: Point, other: Point) -> float:
    """In parts of each axis; two categories are as far apart as its ends."""
    parts = (
        abs(axis.fraction(a) - axis.fraction(b)) if axis.is_ordered else float(a != b)
        for axis, a, b in zip(axes, one, other, strict=True)
    )
    return math.fsum(part * part for part in parts)

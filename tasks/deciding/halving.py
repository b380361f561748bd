"""Short budgets first: successive halving over two budgets, as a function of the history.

New points of the search space train for a share of the budget, which buys more of them. Of every few of these *short*
trials, the best one that was not yet taken is *promoted*: trained afresh, under a fresh seed, for the whole budget.
Scores of two budgets are never compared. A short trial is compared with short ones only and is never kept; champion,
noise, guards and certificate know trials in full only (tasks.trial.in_full).

It pays where a short run ranks points about as a whole one does.
See Jamieson and Talwalkar (2016) for successive halving, Li et al. (2020) for deciding after every trial.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from environments.score import Score
from tasks.trial import History, Proposal, Trial, best

SHORT_PART = 0.75
"""Part of all budgets that goes to short trials. Half finds less in simulated campaigns with a certificate at their
end (benchmarks/decisions.py): a single full run tells little more, and the certificate judges the best one anyway."""
EPSILON = 1e-6


@dataclass(frozen=True)
class Rung:
    """The next trial, as far as budgets go."""

    share: float = 1.0
    """Of the training budget."""
    promotes: int | None = None
    """The short trial whose point and program run in full; None: a new point."""


def next_rung(
    history: History,
    share: float,
    pending: Mapping[int, Proposal] | None = None,
    left: float = math.inf,
    each: int | None = None,
) -> Rung:
    """Whether the next trial is a promotion, or a new point, and for which share of the budget.

    Args:
        share: Of the budget, of new points; 1 runs all of them in full.
        pending: Trials that are under way or wait, by number.
        left: Whole budgets that the search has left, those under way included. No short trial begins that could not
            be promoted any more.
        each: Short trials to every promotion; by default so many that SHORT_PART of all budgets goes to them.
    """
    if share >= 1:
        return Rung()
    under_way = [proposal for number, proposal in (pending or {}).items() if number]  # the baseline is no trial
    program = _program(history)
    rest = unpromoted(history, under_way)
    short = len(_short(history, program))
    promoted = sum(one.promotes is not None and one.edit == program for one in _proposals(history, under_way))
    left -= sum(one.share for one in under_way)
    is_last = left < 1 + share - EPSILON
    if rest and (is_last or promoted < short // (each or short_ones(share))):
        return Rung(promotes=rest[0].number)
    return Rung() if is_last else Rung(share)


def short_ones(share: float) -> int:
    """Short trials to every promotion.

    >>> [short_ones(share) for share in (0.1, 0.3, 0.5)]
    [30, 10, 6]
    """
    return max(round(SHORT_PART / (1 - SHORT_PART) / share), 2)


def unpromoted(history: History, under_way: Iterable[Proposal] = ()) -> tuple[Trial, ...]:
    """Short trials with a score that may be promoted, the best first.

    With another program than the champion's a point is another one.
    """
    taken = {one.promotes for one in _proposals(history, under_way)}
    every = _short(history, _program(history))
    left = (trial for trial in every if trial.score.value is not None and trial.number not in taken)
    return tuple(sorted(left, key=lambda trial: -trial.score.utility))


def standing(history: History, proposal: Proposal, score: Score) -> tuple[int, int]:
    """The rank of a short trial after `history`, from 1, and how many have run for as long, itself included."""
    alike = (trial for trial in history if trial.proposal.share == proposal.share)
    scores = [trial.score for trial in alike if trial.proposal.edit == proposal.edit]
    return 1 + sum(one > score for one in scores), 1 + len(scores)


def words(share: float, rank: int, count: int) -> str:
    """The verdict on a short trial.

    >>> words(0.3, 2, 9)
    'run for 30% of the budget: rank 2 of 9 so far; only a full run can be kept'
    """
    among = f"rank {rank} of {count} so far" if count > 1 else "the first"
    return f"run for {share:.0%} of the budget: {among}; only a full run can be kept"


def promotions(history: History) -> Mapping[int, Trial]:
    """The trials that ran short ones in full, the first of each, by the number of the short one."""
    return {trial.proposal.promotes: trial for trial in history[::-1] if trial.proposal.promotes is not None}


def _short(history: History, program: str | None) -> History:
    return tuple(trial for trial in history if trial.proposal.is_short and trial.proposal.edit == program)


def _program(history: History) -> str | None:
    """The champion's edit."""
    champion = best(history)
    return champion.proposal.edit if champion else None


def _proposals(history: History, under_way: Iterable[Proposal]) -> list[Proposal]:
    return [*(trial.proposal for trial in history), *under_way]

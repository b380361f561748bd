"""The champion estimate of a history (tasks/deciding/level_filter.py)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence

from tasks.deciding.level_filter import Estimate, Observation, estimate
from tasks.deciding.statistics import pooled
from tasks.trial import History, Proposal, Trial, baseline, measured, measured_each

MISREPORTED = "reported"
"""Evidence of a verdict that the judge contradicts what the trial reported."""
NOT_LEARNED = {"untrained", MISREPORTED}
"""Evidence of a discard for another reason than the score, which may be that of no training, and tells no effect."""
GUARD_FELL = "guard_fell"
"""Evidence of a discard because a guarded metric fell."""


def champion_estimate(history: History) -> Estimate | None:
    """The champion estimate; None without a score."""
    found = reference(history)
    if found is None:
        return None
    others = (trial for trial in history if trial.number != found.number)
    return estimate(_first(found), _seen(others, found))


def gain(history: History) -> float | None:
    """Expected gain of the champion over the baseline; None without a score."""
    found, level = reference(history), champion_estimate(history)
    return None if found is None or level is None else level.level - statistics.fmean(_first(found))


def _first(found: Trial) -> tuple[float, ...]:
    """The baseline's first runs, in utility."""
    again = [rerun.score.utility for rerun in found.reruns if rerun.score.value is not None]
    return (*(score.utility for score in found.score.each if score.value is not None), *again)


def run_sd(history: History) -> float:
    """Standard deviation between runs, pooled over the programs that ran several times; 0 if none did."""
    each = measured_each(history)
    scores = (each[trial.number] for trial in history)
    found = pooled([score.utility for score in some if score.value is not None] for some in scores)
    return found.sd if found else 0.0


def reference(history: History) -> Trial | None:
    """The baseline, or the first trial with a score if the baseline has none."""
    return next((trial for trial in (baseline(history), *history) if trial and trial.score.value is not None), None)


def utility(history: History, number: int) -> tuple[float, ...]:
    """Every score of a trial, one per training run, reruns included; larger is better."""
    return tuple(score.utility for score in measured(history, number) if score.value is not None)


def _seen(others: Iterable[Trial], first: Trial) -> Iterator[Observation]:
    champion, program = first.number, first.proposal.edit
    for trial in others:
        for rerun in trial.reruns:
            if rerun.of == champion and rerun.score.value is not None:
                yield Observation("same", rerun.score.utility)
        scores = (*trial.score.each, *(rerun.score for rerun in trial.reruns if rerun.of == trial.number))
        values = [score.utility for score in scores if score.value is not None]
        is_kept = trial.verdict.kind == "keep"
        counts = trial.verdict.kind == "discard" and not NOT_LEARNED & trial.verdict.evidence.keys()
        if values and (is_kept or counts):
            yield _observed(values, is_kept and not trial.verdict.simpler, is_point(trial.proposal, program))
        if is_kept:
            champion, program = trial.number, trial.proposal.edit


def _observed(values: Sequence[float], is_champion: bool, is_point: bool) -> Observation:
    """A trial's result. A simpler program counts as equal to the one before: the threshold does not move."""
    mean = math.fsum(values) / len(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    if is_point:
        return Observation("record" if is_champion else "point", mean, len(values), squares)
    return Observation("kept" if is_champion else "left", mean, len(values), squares)


def has_edits(history: History) -> bool:
    """Whether a trial edited the program; if none did, it is a search of parameters alone."""
    return any(trial.proposal.edit is not None for trial in history)


def is_barred(trial: Trial) -> bool:
    """Whether a trial was refused whatever its score: nobody is to search beside it."""
    return trial.verdict.kind == "discard" and bool((NOT_LEARNED | {GUARD_FELL}) & trial.verdict.evidence.keys())


def is_point(proposal: Proposal, program: str | None) -> bool:
    """Whether a proposal changes parameters alone: its program is the champion's, whose edit is `program`."""
    return proposal.edit == program

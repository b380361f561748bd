"""Reuse of the baseline's runs of the search in a certificate, where nothing drifted since.

They were made hours before the fresh runs. A machine that is faster by then trains both arms further, so that any
champion would beat them. Their spread is used always, since it does not depend on that. They count as runs of the
baseline only if drift would have shown and did not: under a time budget it shows in the steps that the baseline's own
program completes. Fresh runs of the baseline that score clearly better than its earlier ones exclude these too, which
can only make the test stricter.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from environments.score import Score
from tasks.deciding.statistics import welch
from tasks.deciding.values import BASELINE_RUNS
from tasks.trial import History, Run, machines_of

PACE = 0.05
"""Largest relative difference of the steps in a budget that is no drift."""
RISE = 0.1
"""A smaller p, that the baseline scores as well as before, is drift."""


@dataclass(frozen=True)
class Searched:
    """A run of the baseline before the certificate."""

    run: Run
    score: Score
    spread_only: bool = False
    """Whether it was made apart from the campaign's first runs; then it tells the noise, not the mean."""


@dataclass(frozen=True)
class Reuse:
    counted: tuple[Searched, ...] = ()
    """Runs that count as runs of the baseline."""
    spread: tuple[tuple[float, ...], ...] = ()
    """Utilities of the others, in groups; they tell the noise."""
    refused: str = ""
    """Why none counts; empty if some do, or if there are none."""


def searched(history: History) -> tuple[Searched, ...]:
    """Every run of the baseline that has a score, in order."""
    first = next((trial for trial in history if trial.number == 0), None)
    if first is None:
        return ()
    runs = first.runs if len(first.runs) == len(first.score.each) else first.runs[-1:] * len(first.score.each)
    own = [Searched(run, score) for run, score in zip(runs, first.score.each, strict=True)]
    again = [one for trial in history for one in trial.reruns if one.of == 0]
    own += [Searched(one.run, one.score, spread_only=True) for one in again]
    return tuple(one for one in own if one.score.value is not None)


def reuse(before: Sequence[Searched], fresh: Sequence[tuple[Run, Score]], apart: str = "") -> Reuse:
    """The use of earlier runs of the baseline, given its fresh runs with a score.

    Args:
        apart: Why earlier scores do not compare with fresh ones, whatever the machine; empty if they do.
    """
    own = [one for one in before if not one.spread_only][:BASELINE_RUNS]
    why = apart or (drift([(one.run, one.score) for one in own], fresh) if own else "")
    counted = tuple(own) if own and not why else ()
    return Reuse(counted, spreads([one for one in before if one not in counted]), why)


def spreads(runs: Sequence[Searched]) -> tuple[tuple[float, ...], ...]:
    """Utilities of the runs in groups of two or more that differ only in their seed."""
    groups: dict[bool, list[float]] = {}
    for one in runs:
        groups.setdefault(one.spread_only, []).append(one.score.utility)
    return tuple(tuple(values) for values in groups.values() if len(values) > 1)


def drift(before: Sequence[tuple[Run, Score]], fresh: Sequence[tuple[Run, Score]]) -> str:
    """Why earlier runs of a program do not compare with fresh ones; empty if they do."""
    if len(machines_of(run for run, _ in (*before, *fresh))) > 1:
        return "they are from several machines"
    steps = [[run.steps for run, _ in runs if run.steps] for runs in (before, fresh)]
    if not fresh or len(steps[0]) < len(before) or len(steps[1]) < len(fresh):
        return "they report no steps, in which a change of the machine's speed would show"
    pace = statistics.fmean(steps[1]) / statistics.fmean(steps[0]) - 1
    if abs(pace) > PACE:
        return f"the baseline now makes {abs(pace):.0%} {'more' if pace > 0 else 'fewer'} steps in the same budget"
    old, new = ([score.utility for _, score in runs] for runs in (before, fresh))
    if len(old) > 1 and len(new) > 1 and welch(new, old).p < RISE:
        return "the baseline now scores better than in the search"
    return ""

"""The time that a program may spend under judgement in a campaign, given what its baseline has needed there."""

from __future__ import annotations

from collections.abc import Iterator

from environments.effort import ELSEWHERE_TIMES, Allowance
from environments.score import Score
from tasks.trial import History, Run, is_from


def allowance(history: History, machine: str, budget_seconds: float) -> Allowance | None:
    """The allowance on a machine; None while no run of the baseline tells what is needed.

    Runs of the baseline on this machine count. Without any those of others do, on machines that may be faster.
    """
    known = [(run.machine, score.effort) for run, score in _baseline(history) if score.effort]
    here = [effort for where, effort in known if is_from(where, machine)]
    if needs := here or [effort.times(ELSEWHERE_TIMES) for _, effort in known]:
        return Allowance.of(needs, budget_seconds)
    return None


def _baseline(history: History) -> Iterator[tuple[Run, Score]]:
    """Every judged run of the baseline."""
    for trial in history:
        if trial.number == 0:
            yield from zip(trial.runs, trial.score.each, strict=False)  # the last run may have crashed
        yield from ((rerun.run, rerun.score) for rerun in trial.reruns if rerun.of == 0)

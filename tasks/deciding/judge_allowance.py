"""The time that a program may spend under judgement in a campaign, given what it and the baseline have needed there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from environments.effort import ELSEWHERE_TIMES, OWN_ANSWER_TIMES, Allowance, Effort
from environments.score import Score
from tasks.trial import History, Run


def allowance(history: History, machine: str, budget_seconds: float, number: int | None = None) -> Allowance | None:
    """The allowance on a machine; None while no run tells what is needed.

    Runs of the baseline on this machine count. Without any those of others do, on machines that may be faster.

    Args:
        number: The trial that is run again. A champion with a control has been judged within half of what it needs
            without training (tasks/control.py), so its own need counts, within what the search has granted.
    """
    needs = _needs(history, machine, 0)
    granted = Allowance.of(needs, budget_seconds) if needs else None
    known = [trial for trial in history if trial.number == number and trial.verdict.kind == "keep"]
    has_control = any("untrained" in trial.verdict.evidence for trial in known)
    if has_control and (own := _needs(history, machine, number)):
        return replace(Allowance.of(own, budget_seconds, OWN_ANSWER_TIMES), most=granted)
    return granted


def _needs(history: History, machine: str, number: int | None) -> list[Effort]:
    known = [(run.machine, score.effort) for run, score in _judged(history, number) if score.effort]
    here = [effort for where, effort in known if machine == where or "" in (machine, where)]
    return here or [effort.times(ELSEWHERE_TIMES) for _, effort in known]


def _judged(history: History, number: int | None) -> Iterator[tuple[Run, Score]]:
    """Every judged run of a trial."""
    for trial in history:
        if trial.number == number:
            yield from zip(trial.runs, trial.score.each, strict=False)  # the last run may have crashed
        yield from ((rerun.run, rerun.score) for rerun in trial.reruns if rerun.of == number)

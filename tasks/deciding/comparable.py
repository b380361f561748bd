"""Which scores compare: the history as seen from one machine, and in full budgets.

Under a time budget a faster machine trains further, so scores of different machines do not compare. A trial is
compared with trials of its own machine, and with others as far as they were rerun there. Baseline and champion are
rerun there before anything is compared with them: the champion is the threshold, and noise, guards and gain are
computed from the baseline. Runs without a recorded machine count for every machine.

Short trials (tasks/deciding/halving.py) compare only with one another, so nobody who asks for comparable trials sees
them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from environments.score import Score
from tasks.deciding.values import BASELINE_RUNS, JudgedTrial
from tasks.trial import History, Rerun, Run, Trial, Verdict, best, in_full, is_from, scored_runs

STRAYS = 3
"""Reruns of one trial that may land on other machines before it is given up."""


def comparable(history: History, machine: str) -> History:
    """The history as far as it compares with full runs on `machine`; the baseline stays, if need be without a score."""
    return _seen(history, machine, ())[0]


def compared(history: History, tried: JudgedTrial) -> tuple[History, JudgedTrial]:
    """The history as seen from the machine of a trial's last run, and the trial's own runs of that machine."""
    machine = tried.runs[-1].machine
    seen, left = _seen(history, machine, tried.reruns)
    runs, score = _own(tried.runs, tried.score, machine)
    return seen, replace(tried, runs=runs, score=score, reruns=left)


def unmeasured(history: History, tried: JudgedTrial) -> int | None:
    """The trial that must be rerun on the machine of `tried` first; None also if its rerun failed there."""
    machine = tried.runs[-1].machine
    first = next((trial for trial in in_full(history) if trial.score.value is not None), None)
    for trial in (first, best(history)):
        if trial is None or not is_elsewhere(trial, machine):
            continue
        again = [rerun for rerun in _again(history, tried.reruns, machine) if rerun.of == trial.number]
        if len(again) < _needed(trial) and all(rerun.score.value is not None for rerun in again):
            return trial.number
    return None


def strays(tried: JudgedTrial) -> int:
    """Reruns of a trial that landed on another machine than the trial."""
    return sum(not is_from(rerun.run.machine, tried.runs[-1].machine) for rerun in tried.reruns)


def is_elsewhere(trial: Trial, machine: str) -> bool:
    """Whether a trial's own score does not compare with those of a machine."""
    return bool(trial.runs) and not any(is_from(run.machine, machine) for run in scored_runs(trial))


def _seen(history: History, machine: str, fresh: tuple[Rerun, ...]) -> tuple[History, tuple[Rerun, ...]]:
    """The history as seen from a machine, and the pending trial's reruns that are left for it.

    The score of a trial that did not run there is that of its first reruns there, which then no longer count for the
    trial that asked for them.
    """
    history = in_full(history)
    runs = (run for trial in history for run in (*trial.runs, *(rerun.run for rerun in trial.reruns)))
    if all(is_from(run.machine, machine) for run in (*runs, *(rerun.run for rerun in fresh))):
        return history, fresh
    again = _again(history, fresh, machine)
    moved = {
        trial.number: [rerun for rerun in again if rerun.of == trial.number][: _needed(trial)]
        for trial in history
        if is_elsewhere(trial, machine)
    }
    taken = {id(rerun) for some in moved.values() for rerun in some}

    def left(reruns: tuple[Rerun, ...]) -> tuple[Rerun, ...]:
        return tuple(one for one in reruns if is_from(one.run.machine, machine) and id(one) not in taken)

    seen = (
        _measured_again(trial, moved[trial.number], left(trial.reruns))
        if trial.number in moved
        else _part(trial, machine, left(trial.reruns))
        for trial in history
    )
    return tuple(trial for trial in seen if trial is not None), left(fresh)


def _measured_again(trial: Trial, again: list[Rerun], left: tuple[Rerun, ...]) -> Trial | None:
    """A trial of another machine with the scores of its reruns; the baseline also without any."""
    known = [rerun for rerun in again if rerun.score.value is not None]
    if known:
        score = Score.over([rerun.score for rerun in known])
        runs = tuple(rerun.run for rerun in known)
        # The trial that it is simpler than may be missing there: so it sets the threshold itself.
        return replace(trial, runs=runs, score=score, verdict=replace(trial.verdict, simpler=False), reruns=left)
    if trial.number:
        return None
    missing = Score.missing("it did not run on this machine", trial.score.higher_is_better)
    return replace(trial, score=missing, verdict=Verdict("crash", str(missing.error)), reruns=left)


def _part(trial: Trial, machine: str, left: tuple[Rerun, ...]) -> Trial:
    runs, score = _own(trial.runs, trial.score, machine)
    return replace(trial, runs=runs, score=score, reruns=left)


def _own(runs: tuple[Run, ...], score: Score, machine: str) -> tuple[tuple[Run, ...], Score]:
    here = [is_from(run.machine, machine) for run in runs]
    if all(here) or not any(here) or len(score.each) != len(runs):
        return runs, score
    each = [one for one, known in zip(score.each, here, strict=True) if known]
    return tuple(run for run, known in zip(runs, here, strict=True) if known), Score.over(each, fewest=1)


def _again(history: History, fresh: Iterable[Rerun], machine: str) -> list[Rerun]:
    every = (*(rerun for trial in history for rerun in trial.reruns), *fresh)
    return [rerun for rerun in every if is_from(rerun.run.machine, machine)]


def _needed(trial: Trial) -> int:
    """How many reruns replace a trial: as many as it had runs; like a baseline if a calibration ran in its place."""
    known = sum(rerun.calibrated for rerun in trial.reruns)
    return max(len(trial.runs), min(known, BASELINE_RUNS))

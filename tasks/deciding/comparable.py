"""What compares: a campaign's history as one machine sees it.

Under a budget of time another machine trains further, or less far, so its scores say nothing of this one's. A trial is
compared with what ran where it ran itself: trials of that machine, and those of others as far as they were measured
again there. The baseline and the champion are measured again before anything is compared with them: the champion
because it is the bar, the baseline because the noise, the guards and the gain are reckoned from it. Runs of before
this was noted are taken for runs of any machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from environments.score import Score
from tasks.deciding.values import BASELINE_RUNS, JudgedTrial
from tasks.trial import History, Rerun, Run, Trial, Verdict, best, is_from

STRAYS = 3
"""Runs of one trial that may land on other machines, where there are several, before it is given up."""


def comparable(history: History, machine: str) -> History:
    """The history as `machine` sees it: what can be compared with a run there.

    The baseline always stands in it, without a score if it has none there.
    """
    return _seen(history, machine, ())[0]


def compared(history: History, tried: JudgedTrial) -> tuple[History, JudgedTrial]:
    """The history as the machine sees it on which a trial ran last, and what of the trial itself compares there."""
    machine = tried.runs[-1].machine
    seen, left = _seen(history, machine, tried.reruns)
    runs, score = _own(tried.runs, tried.score, machine)
    return seen, replace(tried, runs=runs, score=score, reruns=left)


def unmeasured(history: History, tried: JudgedTrial) -> int | None:
    """The trial that has to run again where `tried` ran, before that can be compared; None when there is none.

    One that fails there is not asked for again: what is left is compared with the others.
    """
    machine = tried.runs[-1].machine
    first = next((trial for trial in history if trial.score.value is not None), None)
    for trial in (first, best(history)):
        if trial is None or _ran_on(trial, machine):
            continue
        again = [rerun for rerun in _again(history, tried.reruns, machine) if rerun.of == trial.number]
        if len(again) < _needed(trial) and all(rerun.score.value is not None for rerun in again):
            return trial.number
    return None


def strays(tried: JudgedTrial) -> int:
    """How many reruns of a trial landed on another machine than the trial."""
    return sum(not is_from(rerun.run.machine, tried.runs[-1].machine) for rerun in tried.reruns)


def is_elsewhere(trial: Trial, machine: str) -> bool:
    """Whether a trial's own score does not compare with those of a machine."""
    return not _ran_on(trial, machine)


def _seen(history: History, machine: str, fresh: tuple[Rerun, ...]) -> tuple[History, tuple[Rerun, ...]]:
    """The history as a machine sees it, and of the reruns of a trial to come those that are left to it.

    A trial that did not run there has for its score what the first reruns of it there say, which therefore count no
    more where they were made.
    """
    runs = (run for trial in history for run in (*trial.runs, *(rerun.run for rerun in trial.reruns)))
    if all(is_from(run.machine, machine) for run in (*runs, *(rerun.run for rerun in fresh))):
        return history, fresh
    again = _again(history, fresh, machine)
    moved = {
        trial.number: [rerun for rerun in again if rerun.of == trial.number][: _needed(trial)]
        for trial in history
        if not _ran_on(trial, machine)
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
    """A trial of another machine as its reruns have it; the baseline also without any."""
    known = [rerun for rerun in again if rerun.score.value is not None]
    if known:
        score = Score.over([rerun.score for rerun in known])
        # What it was simpler than may not be there: it is the bar itself.
        verdict = replace(trial.verdict, simpler=False)
        return replace(
            trial, runs=tuple(rerun.run for rerun in known), score=score, verdict=verdict, reruns=left
        )
    if trial.number:
        return None
    missing = Score.missing("it did not run on this machine", trial.score.higher_is_better)
    return replace(trial, score=missing, verdict=Verdict("crash", str(missing.error)), reruns=left)


def _part(trial: Trial, machine: str, left: tuple[Rerun, ...]) -> Trial:
    """What of a trial was measured on a machine."""
    runs, score = _own(trial.runs, trial.score, machine)
    return replace(trial, runs=runs, score=score, reruns=left)


def _own(runs: tuple[Run, ...], score: Score, machine: str) -> tuple[tuple[Run, ...], Score]:
    """The runs that were made on a machine, and their score."""
    here = [is_from(run.machine, machine) for run in runs]
    if all(here) or not any(here) or len(score.each) != len(runs):
        return runs, score
    each = [one for one, known in zip(score.each, here, strict=True) if known]
    return tuple(run for run, known in zip(runs, here, strict=True) if known), Score.over(each)


def _ran_on(trial: Trial, machine: str) -> bool:
    return not trial.runs or any(is_from(run.machine, machine) for run in trial.runs)


def _again(history: History, fresh: Iterable[Rerun], machine: str) -> list[Rerun]:
    """Every rerun that was made on a machine, in the order in which they were decided on."""
    every = (*(rerun for trial in history for rerun in trial.reruns), *fresh)
    return [rerun for rerun in every if is_from(rerun.run.machine, machine)]


def _needed(trial: Trial) -> int:
    """How often a trial is measured again: as often as it ran; where a calibration ran in its place, as a baseline."""
    known = sum(rerun.calibrated for rerun in trial.reruns)
    return max(len(trial.runs), min(known, BASELINE_RUNS))

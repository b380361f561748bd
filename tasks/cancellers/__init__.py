"""Early stopping: whether a run should end before its budget does, judged by its progress so far. One file each.

Progress is compared with progress, never with a judged score: training returns may differ from judged ones. And a
report is a claim. So earlier runs count only if their final report agrees with their judged score (`trusted`).

A canceller keeps no state; its fields are its options. To add one, put a file like this into the folder; its name is
the name used in a campaign:

    class Mute(Canceller):
        \"\"\"Stop a run that has reported nothing by the middle of its budget.\"\"\"

        def look(self, history: History, curve: Curve, higher_is_better: bool) -> str | None:
            silent = len(curve) >= TWENTIETHS // 2 and not any(value is not None for value in curve)
            return f"nothing reported after {len(curve) / TWENTIETHS:.0%} of the budget" if silent else None
"""

from __future__ import annotations

import math
import statistics
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from pydantic import BaseModel, ConfigDict

from environments.score import Score
from tasks.trial import Curve, History, Run, Trial, measured

SPREADS = 2
"""A report agrees with a judgement within this many standard errors of the noise between runs."""
ROUNDING = 1e-9


class Canceller(BaseModel, ABC):
    """Decides whether a run should go on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @abstractmethod
    def look(self, history: History, curve: Curve, higher_is_better: bool) -> str | None:
        """Why a run with this curve should stop now, with the numbers; None to continue.

        A curve of length n means that n twentieths of the budget have passed. Called once for each, as soon as
        anything was reported. Equal arguments must give equal answers, in any process.
        """


def trusted_runs(history: History) -> tuple[tuple[Trial, Run], ...]:
    """Finished runs whose curve is trusted, reruns included, each with the trial whose program it ran."""
    believed = trusted(history)
    return tuple(
        (trial, run) for trial, run, _ in _finished(history) if trial.number in believed and _said(run)
    )


def trusted(history: History) -> set[int]:
    """Trials whose final report agrees with their judged score, within the noise between runs.

    Others are not used: a program may report anything, and an honest one reports a sampling policy where the judge
    may play the most likely action. Where the two differ, progress does not predict the score.
    """
    gaps: dict[int, list[float]] = {}
    for trial, run, score in _finished(history):
        if score.value is not None and run.reported is not None:
            gaps.setdefault(trial.number, []).append(score.value - run.reported)
    noise = SPREADS * between_runs(history)
    return {number for number, found in gaps.items() if _are_noise(found, noise)}


def _are_noise(gaps: Sequence[float], noise: float) -> bool:
    allowed = noise / math.sqrt(len(gaps)) + ROUNDING * max(map(abs, gaps))
    return abs(statistics.fmean(gaps)) <= allowed


def _said(run: Run) -> bool:
    return any(value is not None for value in run.curve)


def between_runs(history: History) -> float:
    """Standard deviation of the judged scores of the baseline's runs; 0 with fewer than two."""
    values = [score.value for score in measured(history, 0) if score.value is not None]
    return statistics.stdev(values) if len(values) > 1 else 0.0


def _finished(history: History) -> Iterator[tuple[Trial, Run, Score]]:
    """Every finished run, with its trial and its own score."""
    by_number = {trial.number: trial for trial in history}
    for trial in history:
        each = trial.score.each
        if len(each) == len(trial.runs):
            yield from ((trial, run, s) for run, s in zip(trial.runs, each, strict=True) if _ended(run))
        for rerun in trial.reruns:
            if rerun.of in by_number and _ended(rerun.run):
                yield by_number[rerun.of], rerun.run, rerun.score


def _ended(run: Run) -> bool:
    return run.status == "finished"

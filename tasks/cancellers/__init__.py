"""Cancellers: whether a run should end before its budget does, judged by its progress so far. One file each.

Progress is compared with progress, never with a judged score: what a sampling policy reports of its training differs
from what the judge makes of it, by as much as there is to gain. And a report is a claim, so an earlier run's progress
counts only where its end agrees with its judged score as well as other runs' do (`trusted_runs`).

A canceller keeps nothing; its fields are its options, checked before anything starts. To add one, put a file like
this into the folder; its name is the name used in a campaign:

    class Mute(Canceller):
        \"\"\"Cancel what has reported nothing by the middle of its budget.\"\"\"

        def look(self, history: History, curve: Curve, higher_is_better: bool) -> str | None:
            silent = len(curve) >= TWENTIETHS // 2 and not any(value is not None for value in curve)
            return f"nothing reported after {len(curve) / TWENTIETHS:.0%} of the budget" if silent else None
"""

from __future__ import annotations

import statistics
from abc import ABC, abstractmethod
from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict

from environments.score import Score
from tasks.trial import Curve, History, Run, Trial, measured

SPREADS = 3
"""Robust standard deviations within which the difference between judgement and report is that of other runs."""
NORMAL = 1.4826
"""Standard deviations of a normal distribution to its median absolute deviation."""


class Canceller(BaseModel, ABC):
    """Decides whether a run should go on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @abstractmethod
    def look(self, history: History, curve: Curve, higher_is_better: bool) -> str | None:
        """Why a run whose curve this is so far should end now, in words with the numbers; None to go on.

        A curve of length n says that n twentieths of the budget have passed. It is asked once for each of them, as
        soon as anything was reported. The same arguments must give the same answer, in any process.
        """


def trusted_runs(history: History) -> tuple[tuple[Trial, Run], ...]:
    """Finished runs whose curve can be believed, reruns among them, each with the trial whose program it ran.

    The judged score minus the run's last report is mostly the same for all runs of a problem, and not zero. A run is
    trusted when its difference lies within three robust standard deviations of the median one (by the median absolute
    deviation, but no less than the standard deviation between the baseline's runs).
    """
    judged = [
        (trial, run, score.value - run.reported)
        for trial, run, score in _finished(history)
        if score.value is not None and run.reported is not None
    ]
    if not judged:
        return ()
    gaps = [gap for _, _, gap in judged]
    usual = statistics.median(gaps)
    spread = max(NORMAL * statistics.median(abs(gap - usual) for gap in gaps), between_runs(history))
    rounding = 1e-9 * max(abs(gap) for gap in gaps)
    return tuple(
        (trial, run)
        for trial, run, gap in judged
        if abs(gap - usual) <= SPREADS * spread + rounding and any(value is not None for value in run.curve)
    )


def between_runs(history: History) -> float:
    """Standard deviation between the judged scores of the baseline's runs; 0 below two of them."""
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

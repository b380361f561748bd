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
from collections.abc import Iterator
from decimal import Decimal

from pydantic import BaseModel, ConfigDict

from environments.score import Score
from tasks.trial import Curve, History, Run, Trial, measured

SPREADS = 2
"""A report agrees with a judgement within this many standard errors of the noise between runs."""
ROUNDING = 1e-9
FEWEST_SCORES = 3
"""Different scores from which the digits to which a judge rounds are read."""
MOST_DIGITS = 6
"""After the point. With more, scores are not rounded."""


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
        (trial, run)
        for trial, run, _ in _finished(history)
        if trial.number in believed and any(value is not None for value in run.curve)
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
    values = [score.value for score in measured(history, 0) if score.value is not None]
    noise = SPREADS * statistics.stdev(values) if len(values) > 1 else 0.0

    rounded = _rounded_to({score.value for _, _, score in _finished(history) if score.value is not None})

    def allowed(found: list[float]) -> float:
        return noise / math.sqrt(len(found)) + max(ROUNDING * max(map(abs, found)), rounded)

    return {number for number, found in gaps.items() if abs(statistics.fmean(found)) <= allowed(found)}


def _rounded_to(scores: set[float]) -> float:
    """The step of a judge that rounds its scores, or cuts them off; 0 if it does not, or too few are known.

    A report that is not rounded agrees with the score only to this step.
    """
    if len(scores) < FEWEST_SCORES:
        return 0.0
    exponents = (Decimal(repr(score)).normalize().as_tuple().exponent for score in scores)
    digits = max(-exponent if isinstance(exponent, int) else MOST_DIGITS + 1 for exponent in exponents)
    return 10.0 ** -max(digits, 0) if digits <= MOST_DIGITS else 0.0


def _finished(history: History) -> Iterator[tuple[Trial, Run, Score]]:
    by_number = {trial.number: trial for trial in history}
    for trial in history:
        each = trial.score.each
        own = zip(trial.runs, each, strict=True) if len(each) == len(trial.runs) else ()
        every = [(trial, run, score) for run, score in own]
        every += [(by_number[r.of], r.run, r.score) for r in trial.reruns if r.of in by_number]
        yield from (one for one in every if one[1].status == "finished")

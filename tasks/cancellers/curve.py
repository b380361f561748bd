"""Stop a run whose progress lags behind, where the remaining time is better spent on the next trial.

Progress is compared at the same share of the budget. An edit is compared with the champion: its curve is one noisy
run, so its level is estimated from all trials, like its score (tasks/deciding/level_filter.py). The rest of the budget
goes to whichever is expected to gain more: this run, or the next trial. Where progress predicts little, little is
stopped. An edit that is ahead of the champion, or hardly behind, is never stopped.

In a search that changes parameters alone a run is compared with all points before it, and the best of them by
progress go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pydantic import Field

from tasks.cancellers import Canceller, trusted
from tasks.deciding.champion_estimate import has_edits, reference
from tasks.deciding.level_filter import Estimate, Observation, estimate
from tasks.numbers import number
from tasks.trial import TWENTIETHS, Curve, History, Run, Trial, best

FEWEST = 3
"""Points that go on before any is stopped."""


class ByCurve(Canceller):
    """Compare a trial's progress once with the champion's."""

    fraction: float = Field(default=0.4, ge=0.1, le=0.9, description="Share of the budget at which to look.")

    behind: float = Field(
        default=0.5, ge=0, le=10, description="Run sds behind the champion's progress that are no reason yet."
    )
    best: float = Field(
        default=0.4, gt=0, le=1, description="Share of the points that go on in a search that changes only parameters."
    )

    def look(self, history: History, curve: Curve, higher_is_better: bool) -> str | None:
        at = round(self.fraction * TWENTIETHS) - 1
        if len(curve) != at + 1 or (value := curve[at]) is None:
            return None
        sign = 1 if higher_is_better else -1
        if not has_edits(history):
            return self._outside(history, at, sign, value)
        level = progress(history, at, sign)
        if level is None or sign * value >= level.level - self.behind * level.sd:
            return None  # at no cost to the run
        idea = level.idea(sign * value)
        if idea.promise >= level.worth_going_on(self.fraction):
            return None
        return (
            f"{number(value)} at {self.fraction:.0%} of its budget, where the champion's progress was "
            f"{number(sign * level.level)} (sd between runs {level.sd:.2g}): a gain is unlikely ({idea.gains:.0%})"
        )

    def _outside(self, history: History, at: int, sign: int, value: float) -> str | None:
        """Why a point does not go on: too many before it made better progress; None if it does."""
        champion, believed = best(history), trusted(history)
        if champion is None or champion.number not in believed:
            return None
        points = (trial for trial in history if trial.number and trial.verdict.kind != "crash")
        counts = (trial.runs[0] for trial in points if trial.number in believed or trial.verdict.kind == "cancelled")
        # Parameters alone do not inflate reports, so these need not be capped at the final ones.
        curves = (run.curve for run in counts if at < len(run.curve))
        known = [sign * seen for curve in curves if (seen := curve[at]) is not None]
        ahead = sum(seen > sign * value for seen in known)
        if len(known) < FEWEST or ahead < self.best * (len(known) + 1):
            return None
        return (
            f"{value:.4g} at {self.fraction:.0%} of its budget: {ahead} of {len(known)} trials before it were further, "
            f"and only the best {self.best:.0%} go on"
        )


def progress(history: History, at: int, sign: int) -> Estimate | None:
    """Estimate of the champion's progress at a twentieth of the budget; None if its reports belie its score."""
    first, champion, believed = reference(history), best(history), trusted(history)
    if first is None or champion is None or champion.number not in believed:
        return None
    own = (*first.runs, *(rerun.run for rerun in first.reruns))
    values = [value for run in own if (value := _value(run, at, sign)) is not None]
    if len(values) < 2:
        return None
    others = (trial for trial in history if trial.number != first.number)
    return estimate(tuple(values), _seen(others, at, sign, believed))


def _seen(others: Iterable[Trial], at: int, sign: int, believed: set[int]) -> Iterator[Observation]:
    for trial in others:
        run = trial.runs[0]
        value = _value(run, at, sign)
        counts = run.status == "cancelled" or trial.number in believed
        if value is not None and counts and trial.verdict.kind != "crash":
            kept = trial.verdict.kind == "keep" and not trial.verdict.simpler
            yield Observation("kept" if kept else "left", value)


def _value(run: Run, at: int, sign: int) -> float | None:
    """A run's progress in utility, at most its final value: an inflated report must not stop rivals."""
    value = run.curve[at] if at < len(run.curve) else None
    if value is None or run.status != "finished" or run.reported is None:
        return None if value is None else sign * value
    return min(sign * value, sign * run.reported)

"""Stop a run whose progress is not among the best, where the rest of its time is better spent on the next trial.

Progress is compared once, at the same share of the budget, with that of every earlier trial, stopped ones included:
the reports of one program that inflates its own move the threshold by one rank at most.
"""

import numpy as np
from pydantic import Field

from tasks.cancellers import Canceller
from tasks.numbers import number
from tasks.trial import TWENTIETHS, Curve, History


class ByCurve(Canceller):
    """Let the best of the trials go on, by their progress early in the budget."""

    fraction: float = Field(default=0.2, ge=0.05, le=0.95, description="Share of the budget at which to look.")
    best: float = Field(default=0.2, gt=0, le=1, description="Share of the trials that go on.")
    first: int = Field(default=4, ge=1, description="Trials that go on before any is stopped.")

    def look(self, history: History, curve: Curve, higher_is_better: bool) -> str | None:
        at = max(round(self.fraction * TWENTIETHS), 1) - 1
        if len(curve) != at + 1 or (value := curve[at]) is None:
            return None
        sign = 1 if higher_is_better else -1
        tried = (trial for trial in history if trial.number and trial.runs and trial.verdict.kind != "crash")
        curves = (trial.runs[0].curve for trial in tried)
        known = [sign * seen for one in curves if at < len(one) and (seen := one[at]) is not None]
        if len(known) < self.first or sign * value >= (bar := float(np.quantile(known, 1 - self.best))):
            return None
        return (
            f"{number(value)} at {self.fraction:.0%} of its budget, where the best {self.best:.0%} of the {len(known)} "
            f"trials before it had {number(sign * bar)} or better"
        )

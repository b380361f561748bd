"""Stop a run that one of Optuna's pruners would prune.

The study is rebuilt from the history at each check, from the curves of finished runs. A step is a twentieth of the
budget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from tasks.cancellers import Canceller
from tasks.numbers import number
from tasks.trial import TWENTIETHS, Curve, History

if TYPE_CHECKING:
    from optuna import Study
    from optuna import Trial as OptunaTrial

REDUCTION = 3
"""Of so many runs at a rung, the ladders let one go on."""


class Pruner(Canceller):
    """Ask Optuna."""

    kind: Literal["median", "successive_halving", "hyperband"] = Field(
        default="median", description="Which of Optuna's pruners."
    )
    warmup: int = Field(
        default=6, ge=1, lt=TWENTIETHS,
        description="Twentieths of the budget before which nothing is cancelled; the first rung of a ladder.",
    )  # fmt: skip

    def look(self, history: History, curve: Curve, higher_is_better: bool) -> str | None:
        import optuna

        if all(value is None for value in curve):
            return None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        pruners = {
            "median": optuna.pruners.MedianPruner(n_warmup_steps=self.warmup),
            "successive_halving": optuna.pruners.SuccessiveHalvingPruner(self.warmup, REDUCTION),
            "hyperband": optuna.pruners.HyperbandPruner(self.warmup, TWENTIETHS, REDUCTION),
        }
        study = optuna.create_study(
            study_name="curves",  # Hyperband chooses brackets by the study's name
            sampler=optuna.samplers.RandomSampler(seed=0),  # nothing is sampled
            pruner=pruners[self.kind],
            direction="maximize" if higher_is_better else "minimize",
        )
        every = (run for trial in history for run in (*trial.runs, *(rerun.run for rerun in trial.reruns)))
        earlier = [run for run in every if run.status == "finished" and any(value is not None for value in run.curve)]
        for run in earlier:
            study.tell(self._report(study, run.curve)[0], run.reported)
        _, pruned = self._report(study, curve)
        if not pruned:
            return None
        value = next(value for value in reversed(curve) if value is not None)
        return (
            f"{number(value)} at {len(curve) / TWENTIETHS:.0%} of its budget: Optuna's {self.kind} pruner ends it, "
            f"by {len(earlier)} earlier runs"
        )

    def _report(self, study: Study, curve: Curve) -> tuple[OptunaTrial, bool]:
        """Start a trial with this curve; returns it, and whether it would be pruned now."""
        trial, pruned = study.ask(), False
        for step, value in enumerate(curve, 1):
            if value is not None:
                trial.report(value, step)
                # Successive halving stores the rungs that a trial reached when it is asked.
                if step == len(curve) or self.kind != "median":
                    pruned = trial.should_prune()
        return trial, pruned

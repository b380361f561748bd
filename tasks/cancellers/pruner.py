"""Stop a run that one of Optuna's pruners would prune.

The study is rebuilt from the history at each check, from the curves of finished runs. A step is a twentieth of the
budget. See Akiba et al. (2019) for the pruners, Jamieson and Talwalkar (2016) for successive halving, Li et al. (2018)
for Hyperband.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from tasks.cancellers import Canceller
from tasks.numbers import number
from tasks.trial import TWENTIETHS, Curve, History

if TYPE_CHECKING:
    from optuna import Study
    from optuna import Trial as OptunaTrial
    from optuna.pruners import BasePruner


class Pruner(Canceller):
    """Ask Optuna."""

    kind: Literal["median", "successive_halving", "hyperband"] = Field(
        default="median", description="Which of Optuna's pruners."
    )
    warmup: int = Field(
        default=6, ge=1, lt=TWENTIETHS,
        description="Twentieths of the budget before which nothing is cancelled; the first rung of a ladder.",
    )  # fmt: skip
    startup: int = Field(default=5, ge=1, description="Finished runs before median cancels anything.")
    reduction: int = Field(default=3, ge=2, description="Of so many runs at a rung, the ladders let one go on.")

    def model_post_init(self, _: Any) -> None:
        self._pruner()  # import Optuna now, not while a run is timed

    def look(self, history: History, curve: Curve, higher_is_better: bool) -> str | None:
        import optuna

        if all(value is None for value in curve):
            return None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study(
            study_name="curves",  # Hyperband chooses brackets by the study's name
            sampler=optuna.samplers.RandomSampler(seed=0),  # nothing is sampled
            pruner=self._pruner(),
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
            f"by {len(earlier)} earlier run{'' if len(earlier) == 1 else 's'}"
        )

    def _pruner(self) -> BasePruner:
        from optuna import pruners

        if self.kind == "median":
            return pruners.MedianPruner(self.startup, self.warmup)
        if self.kind == "successive_halving":
            return pruners.SuccessiveHalvingPruner(self.warmup, self.reduction)
        return pruners.HyperbandPruner(self.warmup, TWENTIETHS, self.reduction)

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

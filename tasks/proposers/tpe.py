"""TPE: Optuna's tree-structured Parzen estimator, asked anew for every trial.

A crash has the worst score so far, so that its surroundings are avoided; a cancelled trial is pruned at the last value
that it reported; one under way is running, which TPE counts among the bad ones ("constant liar").
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tasks.proposers._numeric import Numeric
from tasks.proposing.axes import Observations, Point
from tasks.proposing.brief import Brief
from tasks.trial import Trial

if TYPE_CHECKING:
    from optuna import Study


class Tpe(Numeric):
    """A Sobol design first, then multivariate TPE."""

    title = "TPE"

    def answers(self, seen: Observations, brief: Brief) -> Iterator[Point]:
        from tasks.proposing.optuna_study import ask  # not before it is needed: it loads Optuna

        return ask(study_of(seen, brief.seed), seen.axes)


def study_of(seen: Observations, seed: int) -> Study:
    """The observations as a study of Optuna's; at least one trial has a score."""
    from optuna.samplers import TPESampler

    from tasks.proposing.optuna_study import study

    worst = min(seen.scored, key=lambda trial: trial.score.utility).score
    outcomes = [_outcome(trial, worst.value) for trial, _ in seen.decided]
    options = {"multivariate": True, "n_startup_trials": 0, "constant_liar": True, "gamma": good_ones, "seed": seed}
    return study(seen, outcomes, TPESampler, worst.higher_is_better, **options)


def good_ones(trials: int) -> int:
    """The number of trials that count as good: the best quarter, 25 at most.

    Optuna's own tenth would be a single one until the eleventh trial, and with noisy scores that is the luckiest.
    """
    return min(math.ceil(trials / 4), 25)


def _outcome(trial: Trial, worst: float | None) -> dict[str, Any]:
    from optuna.trial import TrialState

    if trial.verdict.kind != "cancelled":
        return {"value": worst if trial.score.value is None else trial.score.value}
    run = trial.runs[-1]
    # Among the pruned, Optuna prefers what got further, then what reported more. The clock is the engine's own.
    last = {} if run.reported is None else {int(run.seconds): run.reported}
    return {"state": TrialState.PRUNED, "intermediate_values": last}

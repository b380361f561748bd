"""GP: Bayesian optimisation, Optuna's Gaussian process asked anew for every trial.

The process is told the scores, none of them below Tukey's outer fence (the lower quartile less three times the distance
of the quartiles), so that one run that diverged to -1e6 does not make all others equal. A crash has the worst score so
far, a cancelled trial the lower quartile. It needs PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from optuna.samplers import GPSampler

from tasks.proposers._numeric import Numeric
from tasks.proposing.axes import Observations, Point
from tasks.proposing.brief import Brief
from tasks.proposing.optuna_study import ask, study
from tasks.trial import Trial


class Gp(Numeric):
    """A Sobol design first, then a Gaussian process with expected improvement."""

    title = "GP"

    def answers(self, seen: Observations, brief: Brief) -> Iterator[Point]:
        torch.set_num_threads(1)  # how many there are must not decide what is proposed
        outcomes = [{"value": value} for value in utility([trial for trial, _ in seen.decided])]
        return ask(study(seen, outcomes, GPSampler, True, seed=brief.seed, n_startup_trials=1), seen.axes)


def utility(trials: Sequence[Trial]) -> list[float]:
    """The utility of each trial; higher is better."""
    scored = [trial.score.utility for trial in trials if trial.score.value is not None]
    low, high = (float(value) for value in np.quantile(scored, [0.25, 0.75]))
    worst = max(min(scored), low - 3 * (high - low))

    def of(trial: Trial) -> float:
        if trial.score.value is not None:
            return max(trial.score.utility, worst)
        return low if trial.verdict.kind == "cancelled" else worst

    return [of(trial) for trial in trials]

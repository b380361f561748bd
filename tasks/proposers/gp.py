"""GP: Bayesian optimisation, Optuna's Gaussian process asked anew for every trial. It needs PyTorch."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from optuna.samplers import GPSampler

from tasks.proposers._numeric import Numeric
from tasks.proposing.brief import Brief
from tasks.proposing.optuna_study import answers
from tasks.proposing.points import Observations, Point


class Gp(Numeric):
    """A Sobol design first, then a Gaussian process with expected improvement."""

    title = "GP"

    def answers(self, seen: Observations, brief: Brief) -> Iterator[Point]:
        torch.set_num_threads(1)  # how many there are must not decide what is proposed
        return answers(seen, GPSampler, seed=brief.seed, n_startup_trials=1)

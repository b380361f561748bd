"""TPE: Optuna's tree-structured Parzen estimator, asked anew for every trial.

A trial under way is running, which TPE counts among the bad ones ("constant liar").
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tasks.proposers._numeric import Numeric
from tasks.proposing.brief import Brief
from tasks.proposing.points import Observations, Point


class Tpe(Numeric):
    """A Sobol design first, then multivariate TPE."""

    title = "TPE"

    def answers(self, seen: Observations, brief: Brief) -> Iterator[Point]:
        from optuna.samplers import TPESampler  # not before it is needed: it takes its time to load

        from tasks.proposing.optuna_study import answers

        options = {"multivariate": True, "n_startup_trials": 0, "constant_liar": True, "gamma": good_ones}
        return answers(seen, TPESampler, seed=brief.seed, **options)


def good_ones(trials: int) -> int:
    """The number of trials that count as good: the best quarter, 25 at most.

    Optuna's own tenth would be a single one until the eleventh trial, and with noisy scores that is the luckiest.
    """
    return min(math.ceil(trials / 4), 25)

"""GP: Bayesian optimisation, Optuna's Gaussian process asked anew for every trial.

After the Sobol design a Gaussian process with noise is fitted to all observations, and the next point
is the one with the largest expected improvement (its logarithm). It is told the scores themselves, none of them below
Tukey's outer fence (the lower quartile less three times the distance of the quartiles), so that one run that diverged
to -1e6 does not make all others equal. Ranks in place of scores did no better.

    a trial with a score    COMPLETE
    a crash                 COMPLETE with the worst score so far
    a cancelled trial       COMPLETE with the lower quartile: it was stopped since it was not among the good ones
    one that is under way   RUNNING: the next point is chosen to help whatever its score
    one outside the space   left out

A choice between numbers is searched as a scale, by rank; one with texts or booleans as categories. It needs PyTorch,
and takes a quarter of a second where `tpe` takes hundredths.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from environments.plugins import Refused
from tasks.proposers._axes import Point
from tasks.proposers._numeric import Numeric, Observations
from tasks.proposers._optuna import ask, study
from tasks.proposing.brief import Brief, RemainingBudget
from tasks.trial import Trial

if TYPE_CHECKING:
    from optuna import Study
    from optuna.samplers import GPSampler


class Gp(Numeric):
    """A Sobol design first, then a Gaussian process with expected improvement."""

    title = "GP"

    def preflight(self, left: RemainingBudget = RemainingBudget()) -> None:
        """Refuse where PyTorch is missing."""
        _single_threaded()

    def answers(self, seen: Observations, brief: Brief) -> Iterator[Point]:
        _single_threaded()
        return ask(study_of(seen, brief.seed), seen.axes)


def study_of(seen: Observations, seed: int) -> Study:
    """The observations as a study of Optuna's; at least one trial has a score."""
    from optuna.trial import TrialState

    told = goodness([trial for trial, _ in seen.decided])
    outcomes = [(point, {"value": value}) for (_, point), value in zip(seen.decided, told, strict=True)]
    outcomes += [(point, {"state": TrialState.RUNNING}) for point in seen.under_way]
    return study(seen.axes, outcomes, lambda: _sampler(seed), higher_is_better=True)


def goodness(trials: Sequence[Trial]) -> list[float]:
    """The utility of each trial; higher is better."""
    import numpy as np

    scored = [trial.score.goodness for trial in trials if trial.score.value is not None]
    low, high = (float(value) for value in np.quantile(scored, [0.25, 0.75]))
    worst = max(min(scored), low - 3 * (high - low))

    def of(trial: Trial) -> float:
        if trial.score.value is not None:
            return max(trial.score.goodness, worst)
        return low if trial.verdict.kind == "cancelled" else worst

    return [of(trial) for trial in trials]


def _sampler(seed: int) -> GPSampler:
    from optuna.samplers import GPSampler

    return GPSampler(seed=seed, n_startup_trials=1)


def _single_threaded() -> None:
    """Load PyTorch, on one thread: how many there are must not decide what is proposed.

    Raises:
        Refused: it is not installed.
    """
    try:
        import torch
    except ModuleNotFoundError as missing:
        raise Refused(
            "proposer 'gp' needs the package 'torch': install it, or choose 'tpe' or 'cmaes', which do without"
        ) from missing
    torch.set_num_threads(1)

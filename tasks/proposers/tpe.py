"""TPE: Optuna's tree-structured Parzen estimator, asked anew for every trial.

The first points are those of a scrambled Sobol design, which spreads them evenly; from then on multivariate TPE looks
where good trials are dense and bad ones are rare. Optuna's study is rebuilt from the history at each call. In it is

    a trial with a score    COMPLETE
    a crash                 COMPLETE with the worst score so far, so that its surroundings are avoided
    a cancelled trial       PRUNED with the last value that it reported
    one that is under way   RUNNING, which TPE counts among the bad ones ("constant liar"): no score is made up
    one outside the space   left out

A choice between numbers is searched as a scale, by rank; one with texts or booleans as categories. That, the default
of `startup` and the share of good trials were chosen by the figures of benchmarks/proposers.py.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic import Field

from environments.space import Float, Int, Space
from tasks.proposers import Pending, Proposer, Suggestion
from tasks.proposers._axes import Axis, Point, params_of, point_of, untried, varied
from tasks.trial import History, Trial

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution

ASKS = 8
"""How many answers of TPE may have been tried before, until an untried point is drawn without it."""


class Tpe(Proposer):
    """A Sobol design first, then multivariate TPE.

    No point is tried twice, nor the baseline's: a second score of the same point is another draw of its luck, not a
    find. Once every point of a discrete space was tried, there is nothing left to try.
    """

    startup: int = Field(default=4, ge=1, le=1_000)
    """Points of the Sobol design before TPE takes over; the design goes on while no trial has a score."""

    def propose(self, space: Space, history: History, pending: Pending, seed: int) -> Suggestion | None:
        seen = _Seen.of(space, history, pending)
        spare = untried(seen.axes, seen.tried, seed)
        if not seen.axes or spare is None:
            return None
        if seen.made < self.startup or not seen.scored:
            # The baseline's seed is one for all trials of a campaign, and so is the design; `seed` is each trial's own.
            answers = _design(seen.axes, history[0].runs[0].seed, 2 * (seen.made + self.startup))
        else:
            answers = _ask(_study(seen, seed), seen.axes)
        point = next((answer for answer in answers if answer not in seen.tried), None)
        why = self._rationale(seen)
        if point is None:
            point, why = spare, f"a random point: {why} came only to points tried before"
        return Suggestion(params_of(seen.axes, point), why)

    def _rationale(self, seen: _Seen) -> str:
        if seen.made < self.startup:
            return f"Sobol point {seen.made + 1} of {self.startup}"
        if not seen.scored:
            return f"Sobol point {seen.made + 1}, as no trial has a score yet"
        best = max(seen.scored, key=lambda trial: trial.score.goodness)
        trials = "1 scored trial" if len(seen.scored) == 1 else f"{len(seen.scored)} scored trials"
        return f"TPE on {trials}, best {best.score.value:.4g} (trial {best.number})"


@dataclass(frozen=True)
class _Seen:
    """What was proposed so far, as points of the space; what lies outside it counts only as made."""

    axes: tuple[Axis, ...]
    decided: tuple[tuple[Trial, Point], ...]
    under_way: tuple[Point, ...]
    made: int
    """Proposals other than the baseline."""

    @classmethod
    def of(cls, space: Space, history: History, pending: Pending) -> _Seen:
        axes = varied(space)
        decided = ((trial, point_of(axes, trial.proposal.params)) for trial in history)
        under_way = (point_of(axes, proposal.params) for proposal in pending.values())
        return cls(
            axes,
            tuple((trial, point) for trial, point in decided if point is not None),
            tuple(point for point in under_way if point is not None),
            sum(number > 0 for number in (*pending, *(trial.number for trial in history))),
        )

    @cached_property
    def tried(self) -> set[Point]:
        return {*self.under_way, *(point for _, point in self.decided)}

    @property
    def scored(self) -> list[Trial]:
        return [trial for trial, _ in self.decided if trial.score.value is not None]


def _design(axes: Sequence[Axis], seed: int, count: int) -> Iterator[Point]:
    """The first points, at least `count`, of this seed's scrambled Sobol sequence."""
    from scipy.stats import qmc  # type: ignore[import-untyped]

    sobol = qmc.Sobol(len(axes), scramble=True, rng=seed)
    for row in sobol.random_base2(math.ceil(math.log2(count))).tolist():
        yield tuple(axis.at(fraction) for axis, fraction in zip(axes, row, strict=True))


def _study(seen: _Seen, seed: int) -> Study:
    """What was seen, as a study of Optuna's; at least one trial has a score."""
    import optuna
    from optuna.study import StudyDirection
    from optuna.trial import TrialState, create_trial

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with (
        warnings.catch_warnings()
    ):  # Optuna 4 calls some of these options experimental, Optuna 5 says 6 drops `gamma`
        for warning in (optuna.exceptions.ExperimentalWarning, FutureWarning):
            warnings.simplefilter("ignore", warning)
        sampler = optuna.samplers.TPESampler(
            multivariate=True, n_startup_trials=0, constant_liar=True, gamma=good_ones, seed=seed
        )
    worst = min(seen.scored, key=lambda trial: trial.score.goodness).score
    direction = StudyDirection.MAXIMIZE if worst.higher_is_better else StudyDirection.MINIMIZE
    study = optuna.create_study(sampler=sampler, direction=direction)
    names = [axis.name for axis in seen.axes]
    distributions = {axis.name: distribution(axis) for axis in seen.axes}
    outcomes = [(point, _outcome(trial, worst.value)) for trial, point in seen.decided]
    outcomes += [(point, {"state": TrialState.RUNNING}) for point in seen.under_way]
    for point, outcome in outcomes:
        params = dict(zip(names, point, strict=True))
        study.add_trial(create_trial(params=params, distributions=distributions, **outcome))
    return study


def good_ones(trials: int) -> int:
    """How many of so many trials TPE takes for good: the best quarter, 25 at most.

    Optuna's own tenth would be a single one until the eleventh trial, and with noisy scores that is the luckiest.
    """
    return min(math.ceil(trials / 4), 25)


def _outcome(trial: Trial, worst: float | None) -> dict[str, Any]:
    """How a decided trial ended, in Optuna's terms."""
    from optuna.trial import TrialState

    if trial.verdict.kind != "cancelled":
        return {"value": worst if trial.score.value is None else trial.score.value}
    run = trial.runs[-1]
    # Among the pruned, Optuna prefers what got further, then what reported more. The clock is the engine's own.
    last = {} if run.reported is None else {int(run.seconds): run.reported}
    return {"state": TrialState.PRUNED, "intermediate_values": last}


def _ask(study: Study, axes: Sequence[Axis]) -> Iterator[Point]:
    """What TPE would try; each answer counts as under way when the next one is asked for."""
    distributions = {axis.name: distribution(axis) for axis in axes}
    for _ in range(ASKS):
        answer = study.ask(distributions).params
        yield tuple(axis.number(axis.value(answer[axis.name])) for axis in axes)


def distribution(axis: Axis) -> BaseDistribution:
    """The axis in Optuna's terms: numbers as they are, a choice by rank."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    parameter = axis.parameter
    if isinstance(parameter, Float):
        return FloatDistribution(parameter.low, parameter.high, log=parameter.log)
    if isinstance(parameter, Int):
        return IntDistribution(parameter.low, parameter.high, log=parameter.log)
    ranks = range(len(axis.choices))
    return IntDistribution(0, ranks[-1]) if axis.is_ordered else CategoricalDistribution(tuple(ranks))

"""TPE: an even start, then a search that learns; what a history becomes in Optuna; never a point twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from environments.space import Choice, Float, Int, Space
from tasks.proposers import tpe
from tasks.proposers.tpe import Tpe
from tasks.proposing.brief import Brief
from tasks.proposing.observations import Observations
from tasks.store.seeds import derive
from tasks.trial import History, Params, Proposal
from tests.support.histories import decided
from tests.support.lazy import LazyModule
from tests.support.spaces import PLANE, cancelled, started

if TYPE_CHECKING:
    import optuna
else:
    optuna = LazyModule("optuna")


def ask(space: Space, history: History, pending: dict[int, Proposal] | None = None, **options: Any) -> Params:
    """What is proposed next; the seed is as the engine would draw it, or the one in the options."""
    seed = options.pop("seed", derive(0, "propose", len(history) + len(pending or {}), 1))
    suggestion = Tpe(**options).propose(Brief(space, history, pending or {}, seed))
    assert suggestion is not None
    return suggestion.params


def study_of(space: Space, history: History, pending: dict[int, Proposal] | None = None) -> optuna.Study:
    return tpe.study_of(Observations.of(space, history, pending or {}), seed=0)


def test_the_start_is_one_design_for_a_campaign_and_another_for_the_next() -> None:
    designs = []
    for seed in (1, 1, 2):
        history = started(PLANE, seed=seed)
        for number in range(1, 5):  # each trial with a seed of its own, which the design must not look at
            history += (decided(history, 1.0, ask(PLANE, history, seed=1000 * seed + number)),)
        designs.append([trial.proposal.params for trial in history[1:]])
    assert designs[0] == designs[1] != designs[2]


def test_the_design_goes_on_while_nothing_has_a_score() -> None:
    history = started(PLANE, score=None)
    for _ in range(5):
        history += (decided(history, None, ask(PLANE, history, startup=2)),)
    suggestion = Tpe(startup=2).propose(Brief(PLANE, history, {}, seed=1))
    assert suggestion and "Sobol" in suggestion.rationale
    assert len({repr(trial.proposal.params) for trial in history}) == 6


def test_a_history_becomes_a_study_trial_by_trial() -> None:
    history: History = started(PLANE, 3.0)
    for score in (9.0, 1.0, None, 4.0, 5.0):
        history += (decided(history, score, {"x": len(history) / 10, "y": 0.5}),)
    early, mute = cancelled(history[4], 7.9, 2.5), cancelled(history[5], 3.0, None)
    pending = {6: Proposal({"x": 0.6, "y": 0.5}), 7: Proposal({"x": 9.9, "y": 0.5})}
    study = study_of(PLANE, (*history[:4], early, mute), pending)
    told = [(trial.state, trial.params["x"], trial.value) for trial in study.trials]
    assert told[:4] == [
        (optuna.trial.TrialState.COMPLETE, -0.9, 3.0),
        (optuna.trial.TrialState.COMPLETE, 0.1, 9.0),
        (optuna.trial.TrialState.COMPLETE, 0.2, 1.0),
        (optuna.trial.TrialState.COMPLETE, 0.3, 1.0),  # a crash, as bad as the worst
    ]
    assert told[6:] == [(optuna.trial.TrialState.RUNNING, 0.6, None)]
    pruned = study.get_trials(states=(optuna.trial.TrialState.PRUNED,))
    assert [trial.intermediate_values for trial in pruned] == [{7: 2.5}, {}]
    assert study.direction.name == "MAXIMIZE"
    assert study.sampler._constant_liar  # type: ignore[attr-defined]  # else what is under way would not count


@pytest.mark.parametrize("outside", [{"x": 5.0}, {"y": -1.0}, {"x": "much"}, {"x": float("nan")}, {"y": None}])
def test_a_trial_outside_the_space_is_left_out_and_stops_nothing(outside: dict[str, Any]) -> None:
    params = {name: value for name, value in ({"x": 0.1, "y": 0.1} | outside).items() if value is not None}
    history = started(PLANE)
    history += (decided(history, 99.0, params),)
    assert len(study_of(PLANE, history).trials) == 1
    suggestion = Tpe(startup=1).propose(Brief(PLANE, history, {}, seed=0))
    assert suggestion and suggestion.rationale == "TPE on 1 scored trial, best 1 (trial 0)"


def test_parameters_become_the_distributions_that_they_are() -> None:
    space: Space = {
        "log": Float(low=1e-4, high=1e-2, log=True, default=1e-3),
        "plain": Float(low=-1.0, high=1.0, default=0.0),
        "count": Int(low=2, high=10, default=2),
        "size": Int(low=16, high=512, log=True, default=64),
        "ordered": Choice(values=(0.99, 0.9, 0.999), default=0.9),
        "act": Choice(values=("tanh", "relu"), default="relu"),
        "flag": Choice(values=(False, True), default=False),
        "fixed": Choice(values=("only",), default="only"),
    }
    (trial,) = study_of(space, started(space)).trials
    assert trial.distributions == {
        "log": optuna.distributions.FloatDistribution(1e-4, 1e-2, log=True),
        "plain": optuna.distributions.FloatDistribution(-1.0, 1.0),
        "count": optuna.distributions.IntDistribution(2, 10),
        "size": optuna.distributions.IntDistribution(16, 512, log=True),
        "ordered": optuna.distributions.IntDistribution(0, 2),
        "act": optuna.distributions.CategoricalDistribution((0, 1)),
        "flag": optuna.distributions.CategoricalDistribution((0, 1)),
    }
    assert (trial.params["ordered"], trial.params["act"], trial.params["flag"]) == (0, 1, 0)


@pytest.mark.parametrize("space", [{}, {"only": Choice(values=(3,), default=3)}], ids=["empty", "fixed"])
def test_where_nothing_varies_there_is_nothing_to_try(space: Space) -> None:
    assert Tpe().propose(Brief(space, started(space), {}, seed=0)) is None

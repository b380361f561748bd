"""CMA-ES and the Gaussian process, and what they share with TPE: what a history tells them, and never a point twice."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.plugins import Refused
from environments.space import Choice, Float, Space
from tasks.propose import load
from tasks.proposers._numeric import Numeric
from tasks.proposers.cmaes import Cmaes
from tasks.proposers.random_search import RandomSearch
from tasks.proposers.tpe import Tpe
from tasks.proposing.brief import Brief
from tasks.proposing.points import Observations
from tasks.stats.champion import GUARD_FELL
from tasks.task_key import derive
from tasks.trial import History, Params, Verdict
from tests.support.histories import decided
from tests.support.lazy import LazyModule
from tests.support.spaces import PLANE, SWITCHES, cancelled, check, defaults, distance, scores, spaces, started

gp, learning = LazyModule("tasks.proposers.gp"), LazyModule("tasks.proposers.learned")

every_search = pytest.mark.parametrize("search", ["Tpe", "Cmaes", "Gp"], indirect=True)


@pytest.fixture
def search(request: pytest.FixtureRequest) -> type[Numeric]:
    known: type[Numeric] | None = {"Tpe": Tpe, "Cmaes": Cmaes}.get(request.param)
    return known or gp.Gp


def walked(search: Numeric | RandomSearch, space: Space, trials: int, seed: int, higher: bool = True) -> History:
    """A campaign in which the score is how near a trial comes to the bottom of the bowl, or how far it is from it."""
    sign = -1.0 if higher else 1.0
    history = started(space, sign * distance(defaults(space)), seed, higher)
    for number in range(1, trials + 1):
        suggestion = search.propose(Brief(space, history, {}, derive(seed, "propose", number, 1)))
        assert suggestion is not None
        params = defaults(space) | suggestion.params
        history += (decided(history, sign * distance(params), params, higher_is_better=higher),)
    return history


@pytest.mark.slow
@pytest.mark.parametrize("higher", [True, False], ids=["maximise", "minimise"])
@every_search
def test_a_search_comes_nearer_to_the_best_point_than_random_search(search: type[Numeric], higher: bool) -> None:
    seeds = range(1 if search.title == "GP" else 10)  # which takes its time
    ours = [walked(search(), PLANE, 30, seed, higher) for seed in seeds]
    chance = [walked(RandomSearch(), PLANE, 30, seed) for seed in range(10)]
    nearest = [
        np.mean([min(distance(trial.proposal.params) for trial in history) for history in histories])
        for histories in (ours, chance)
    ]
    assert nearest[0] < nearest[1] / 1.5


@every_search
def test_a_small_space_is_tried_out_once_and_then_there_is_nothing_left(search: type[Numeric]) -> None:
    history, seen = started(SWITCHES), {repr(defaults(SWITCHES))}
    while (suggestion := search(startup=8).propose(Brief(SWITCHES, history, {}, seed=len(history)))) is not None:
        params = defaults(SWITCHES) | suggestion.params
        assert repr(params) not in seen
        seen.add(repr(params))
        history += (decided(history, None if len(history) % 4 == 1 else len(history) % 3, params),)
    assert len(seen) == 4 * 3


@pytest.mark.parametrize("evidence", [GUARD_FELL, "untrained"])
def test_a_score_that_was_refused_for_something_else_counts_as_none(evidence: str) -> None:
    history = walked(RandomSearch(), PLANE, 2, seed=4)
    refused = dataclasses.replace(history[2], verdict=Verdict("discard", "for another reason", None, {evidence: 1}))
    seen = Observations.of(PLANE, (*history[:2], refused), {})
    assert [trial for trial, _ in seen.scored] == [*history[:2]] and len(seen.decided) == 3


@every_search
def test_the_design_goes_on_while_nothing_has_a_score_and_where_nothing_varies_there_is_none(
    search: type[Numeric],
) -> None:
    history = started(PLANE, score=None)
    for _ in range(6):
        suggestion = search(startup=2).propose(Brief(PLANE, history))
        assert suggestion and "Sobol" in suggestion.rationale
        history += (decided(history, None, suggestion.params),)
    assert len({repr(trial.proposal.params) for trial in history}) == 7
    fixed: Space = {"only": Choice(values=(3,), default=3)}
    assert search().propose(Brief({}, started({}))) is search().propose(Brief(fixed, started(fixed))) is None


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # Optuna, in spaces of 10^14
@pytest.mark.parametrize("search", [Tpe, Cmaes])
@settings(derandomize=True, deadline=None, max_examples=20)
@given(space=spaces, outcomes=st.lists(scores, max_size=12), higher=st.booleans(), seed=st.integers(0, 2**31 - 1))
def test_whatever_happened_a_search_proposes_something_new_in_the_space(
    search: type[Numeric], space: Space, outcomes: list[float | str | None], higher: bool, seed: int
) -> None:
    history = started(space, 1.0, seed, higher)
    for outcome in outcomes:
        suggestion = search(startup=2).propose(Brief(space, history, {}, seed))
        if suggestion is None:
            break
        check(space, history, suggestion)
        score = None if isinstance(outcome, str) else outcome
        trial = decided(history, score, defaults(space) | suggestion.params, higher_is_better=higher)
        history += (cancelled(trial, 3.2, None) if isinstance(outcome, str) else trial,)


# Learned: a policy that learns from everybody's trials, and nothing kept between calls.

LINE: Space = {"x": Float(low=0.0, high=1.0, default=0.5)}


def led(history: History, truth: Callable[[Params], float | None], count: int, earlier: History = ()) -> History:
    """The history after so many trials that it proposed."""
    for _ in range(count):
        seed = derive(history[0].runs[0].seed, "propose", len(history), 1)
        suggestion = learning.Learned(startup=4).propose(Brief(LINE, history, seed=seed, earlier=earlier))
        assert suggestion is not None
        history += (decided(history, truth(suggestion.params), suggestion.params),)
    return history


def test_an_earlier_campaign_helps_from_the_first_trial_on() -> None:
    def truth(params: Params) -> float:
        return -abs(float(params["x"]) - 0.85)

    def found(seed: int, earlier: History) -> float:
        return max(truth(trial.proposal.params) for trial in led(started(LINE, -0.35, seed), truth, 3, earlier))

    past = led(started(LINE, -0.35, 99), truth, 20)
    with_past = [found(seed, past) for seed in range(2)]
    assert min(with_past) > -0.05 and np.mean(with_past) > np.mean([found(seed, ()) for seed in range(2)])


def test_without_torch_it_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "tasks.proposers.learned", raising=False)
    with pytest.raises(Refused, match=r"'torch'.*install"):
        load("learned", {})

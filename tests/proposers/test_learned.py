"""Learned: gradients that are right, a policy that learns from everybody's trials, and nothing kept between calls."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from environments.space import Choice, Float, Space
from tasks.proposers import Brief, Left, Refusal
from tasks.proposers._policy import (
    Batch,
    Learner,
    Settings,
    Shape,
    forward,
    fresh,
    log_probabilities,
    loss_and_gradients,
)
from tasks.proposers.learned import CRASH, Learned, campaigns, rewards
from tasks.store.seeds import derive
from tasks.trial import History, Params, Proposal, Verdict
from tests.support.histories import decided

LINE: Space = {"x": Float(low=0.0, high=1.0, default=0.5)}
PAIR: Space = {
    "x": Float(low=0.0, high=1.0, default=0.1),
    "act": Choice(values=("a", "b", "c"), default="a"),
}


def begun(space: Space, score: float | None, seed: int = 0) -> History:
    """The baseline alone, trained with this seed."""
    trial = decided((), score, {name: parameter.default for name, parameter in space.items()})
    return (dataclasses.replace(trial, runs=(dataclasses.replace(trial.runs[0], seed=seed),)),)


def others(space: Space, truth: Callable[[Params], float | None], count: int, seed: int) -> History:
    """A campaign whose every trial was a random draw."""
    rng = np.random.default_rng(seed)
    history = begun(space, truth({name: parameter.default for name, parameter in space.items()}), seed)
    for _ in range(count):
        params = {name: parameter.sample(rng) for name, parameter in space.items()}
        history += (decided(history, truth(params), params),)
    return history


def led(
    history: History, truth: Callable[[Params], float | None], count: int, earlier: History = ()
) -> History:
    """The history after so many trials that it proposed."""
    for _ in range(count):
        seed = derive(history[0].runs[0].seed, "propose", len(history), 1)
        suggestion = Learned(startup=4).propose(Brief(LINE, history, seed=seed, earlier=earlier))
        assert suggestion is not None
        history += (decided(history, truth(suggestion.params), suggestion.params),)
    return history


def slope(params: Params) -> float:
    return float(params["x"])


def some_batch(shape: Shape, rng: np.random.Generator, count: int = 9) -> Batch:
    picks = np.stack([rng.integers(size, size=count) for size in shape.groups], axis=1)
    states, leaning, steps = (
        rng.normal(size=(count, size)) for size in (shape.features, shape.outputs, shape.steps)
    )
    return Batch(states, leaning, steps, picks)


@pytest.mark.parametrize(
    "name", ["hidden", "hidden_bias", "action", "action_bias", "log_deviation", "value", "value_bias"]
)
def test_the_gradients_are_those_of_finite_differences(name: str) -> None:
    rng, shape = np.random.default_rng(1), Shape(features=4, steps=2, groups=(3, 2))
    weights = {
        key: value + 0.3 * rng.normal(size=value.shape) for key, value in fresh(shape, 5, 0.8, rng).items()
    }
    batch, settings = some_batch(shape, rng), Settings(1e-3, entropy_coefficient=0.1)
    # Some ratios lie within the clip range, some beyond either end.
    before = log_probabilities(shape, weights, forward(weights, batch)[1], batch) + np.linspace(-0.5, 0.5, 9)
    advantages, returns = rng.normal(size=9), rng.normal(size=9)

    def loss(at: np.ndarray) -> float:
        return loss_and_gradients(shape, weights | {name: at}, batch, before, advantages, returns, settings)[
            0
        ]

    _, gradients = loss_and_gradients(shape, weights, batch, before, advantages, returns, settings)
    for index in np.ndindex(weights[name].shape):
        moved = np.zeros_like(weights[name])
        moved[index] = 1e-6
        slope = (loss(weights[name] + moved) - loss(weights[name] - moved)) / 2e-6
        assert gradients[name][index] == pytest.approx(slope, abs=1e-7)


def test_an_action_that_was_moved_beyond_the_clip_range_moves_no_further() -> None:
    rng, shape = np.random.default_rng(0), Shape(features=3, steps=1, groups=(2,))
    weights, batch = fresh(shape, 4, 1.0, rng), some_batch(shape, rng, 1)
    now = log_probabilities(shape, weights, forward(weights, batch)[1], batch)
    settings = Settings(1e-3, entropy_coefficient=0.0)

    def pull(ratio: float, advantage: float) -> float:
        given = batch, now - np.log(ratio), np.array([advantage]), np.zeros(1), settings
        return float(np.abs(loss_and_gradients(shape, weights, *given)[1]["action_bias"]).max())

    assert pull(1.3, 1.0) == pull(0.7, -1.0) == 0.0
    assert min(pull(1.1, 1.0), pull(0.7, 1.0), pull(1.3, -1.0)) > 0.0


def mean_of(learned: Learned, brief: Brief) -> float:
    """Where the policy would go on average, as a step from the champion."""
    learner, now = learned.trained(brief)
    nothing = np.zeros((1, 1)), np.zeros((1, 0), dtype=np.int64)
    _, outputs, _ = forward(learner.weights, Batch(now.state[None], now.leaning[None], *nothing))
    return float(outputs[0, 0] - now.leaning[0])


def test_the_policy_leans_to_where_the_gains_were_whoever_proposed_the_trials() -> None:
    def with_others(sign: int, seed: int) -> float:
        rng, history = np.random.default_rng(seed), begun(LINE, 0.0, seed)
        for x in rng.uniform(0.2, 0.8, size=40).tolist():
            trial = decided(history, sign * (x - 0.5), {"x": x})
            history += (dataclasses.replace(trial, verdict=Verdict("discard", "so the champion stays")),)
        return mean_of(Learned(), Brief(LINE, history))

    assert np.mean([with_others(1, seed) for seed in range(5)]) > 0.01
    assert np.mean([with_others(-1, seed) for seed in range(5)]) < -0.01


def test_ppo_moves_probability_to_the_better_end_of_a_bandit() -> None:
    def share_above_the_middle(seed: int) -> float:
        rng, shape = np.random.default_rng(seed), Shape(features=1, steps=1, groups=(3,))
        learner = Learner(shape, fresh(shape, 8, 0.2, rng), Settings(3e-3))
        state, leaning = np.ones(1), np.array([0.5, 0.0, 0.0, 0.0])
        for _ in range(15):
            drawn = [learner.draw(state, leaning, rng) for _ in range(16)]
            steps, picks = (np.stack([action[part] for action in drawn]) for part in (0, 1))
            batch = Batch(np.ones((16, 1)), np.tile(leaning, (16, 1)), steps, picks)
            learner.update(batch, [float(step[0]) + float(pick[0] == 2) for step, pick in drawn])
        last = [learner.draw(state, leaning, rng) for _ in range(200)]
        return float(np.mean([step[0] > 0.5 and pick[0] == 2 for step, pick in last]))

    assert np.mean([share_above_the_middle(seed) for seed in range(5)]) > 0.4, "a sixth before"


def test_it_finds_the_better_region_of_a_line_without_noise() -> None:
    def truth(params: Params) -> float:
        return -abs(float(params["x"]) - 0.85)

    histories = [led(begun(LINE, -0.35, seed), truth, 24) for seed in range(5)]
    late = [float(trial.proposal.params["x"]) for history in histories for trial in history[-12:]]
    assert np.mean([0.7 < x < 1.0 for x in late]) > 0.5, "three tenths of the line"


def test_the_same_brief_gives_the_same_policy_from_scratch_and_another_seed_another() -> None:
    history = others(PAIR, slope, 20, seed=3)
    brief = Brief(PAIR, history, seed=7, left=Left(trials=10))
    (one, _), (same, _) = Learned().trained(brief), Learned().trained(brief)
    assert all(np.array_equal(one.weights[name], same.weights[name]) for name in one.weights)
    other, _ = Learned().trained(dataclasses.replace(brief, history=(*begun(PAIR, 0.1, 4), *history[1:])))
    assert not np.array_equal(one.weights["hidden"], other.weights["hidden"])
    assert Learned().propose(brief) == Learned().propose(brief)


def test_a_trial_that_it_was_refused_is_not_suggested_again() -> None:
    brief = Brief(PAIR, others(PAIR, slope, 12, seed=3), seed=7)
    once = Learned().propose(brief)
    again = Learned().propose(dataclasses.replace(brief, refusals=(Refusal("much like trial 3"),)))
    assert once and again and once.params != again.params


def test_a_lucky_score_is_worth_no_more_than_a_good_one_and_a_crash_is_a_loss() -> None:
    history = begun(LINE, 0.0)
    for score in (-1.0, 1.0, 0.5, None, 1e6, -2.0):
        history += (decided(history, score, {"x": 0.3}),)
    worth = rewards(history)
    assert worth[0] == 0.0 and worth[1] < 0.0 < worth[2]
    assert worth[3] < 0.0, "less than the champion of its time, although more than the baseline"
    assert worth[4] == CRASH and max(worth) <= 1.0 and min(worth) >= -1.0
    stopped = dataclasses.replace(history[1], verdict=Verdict("cancelled", "behind"))
    assert -1.0 < rewards((history[0], stopped))[1] < 0.0


def test_a_category_that_crashes_is_avoided() -> None:
    def truth(params: Params) -> float | None:
        return None if params["act"] == "b" else 0.5 + 0.1 * (params["act"] == "c")

    def share_of_b(seed: int) -> float:
        learner, now = Learned().trained(Brief(PAIR, others(PAIR, truth, 40, seed)))
        rng = np.random.default_rng(0)
        return float(np.mean([learner.draw(now.state, now.leaning, rng)[1][0] == 1 for _ in range(200)]))

    untrained = 1 / (2 + np.exp(1.5))
    assert np.mean([share_of_b(seed) for seed in range(5)]) < untrained


def test_an_earlier_campaign_helps_from_the_first_trial_on() -> None:
    def truth(params: Params) -> float:
        return -abs(float(params["x"]) - 0.85)

    def found(seed: int, earlier: History) -> float:
        return max(truth(trial.proposal.params) for trial in led(begun(LINE, -0.35, seed), truth, 3, earlier))

    past = led(begun(LINE, -0.35, 99), truth, 20)
    with_past = [found(seed, past) for seed in range(5)]
    assert min(with_past) > -0.05 and np.mean(with_past) > np.mean([found(seed, ()) for seed in range(5)])


def test_each_earlier_campaign_is_measured_against_its_own_champion() -> None:
    low, high = others(LINE, slope, 12, 1), others(LINE, lambda params: 1000 + slope(params), 12, 1)
    assert campaigns((*low, *high)) == (low, high)
    assert np.sign(rewards(low)).tolist() == np.sign(rewards(high)).tolist()
    assert campaigns(()) == ()


def test_points_under_way_are_not_proposed_again_and_a_space_that_is_used_up_ends_it() -> None:
    space: Space = {"act": Choice(values=("a", "b", "c"), default="a")}
    brief = Brief(space, begun(space, 1.0), {1: Proposal({"act": "b"})}, seed=1)
    suggestion = Learned(startup=1).propose(brief)
    assert suggestion and suggestion.params == {"act": "c"}
    assert Learned().propose(brief.beside(2, suggestion)) is None
    assert Learned().propose(Brief({}, begun(LINE, 1.0))) is None

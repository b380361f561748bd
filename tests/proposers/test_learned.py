"""Learned: a policy that learns from everybody's trials, and nothing kept between calls."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest

from environments.plugins import Refused
from environments.space import Float, Space
from tasks import propose
from tasks.proposing.brief import Brief
from tasks.task_key import derive
from tasks.trial import History, Params, Verdict
from tests.support.histories import decided
from tests.support.lazy import LazyModule

if TYPE_CHECKING:
    import torch

    from tasks.proposers import learned as learning
else:
    torch, learning = LazyModule("torch"), LazyModule("tasks.proposers.learned")

LINE: Space = {"x": Float(low=0.0, high=1.0, default=0.5)}


def begun(space: Space, score: float | None, seed: int = 0) -> History:
    """The baseline alone, trained with this seed."""
    trial = decided((), score, {name: parameter.default for name, parameter in space.items()})
    return (dataclasses.replace(trial, runs=(dataclasses.replace(trial.runs[0], seed=seed),)),)


def led(history: History, truth: Callable[[Params], float | None], count: int, earlier: History = ()) -> History:
    """The history after so many trials that it proposed."""
    for _ in range(count):
        seed = derive(history[0].runs[0].seed, "propose", len(history), 1)
        suggestion = learning.Learned(startup=4).propose(Brief(LINE, history, seed=seed, earlier=earlier))
        assert suggestion is not None
        history += (decided(history, truth(suggestion.params), suggestion.params),)
    return history


def slope(params: Params) -> float:
    return float(params["x"])


def mean_of(learned: learning.Learned, brief: Brief) -> float:
    """The policy's mean, as a step from the champion."""
    policy, champion = learned.trained(brief)
    with torch.no_grad():
        return float(policy(champion[None]).mean[0, 0] - champion[0])


@pytest.mark.slow
def test_the_policy_leans_to_where_the_gains_were_whoever_proposed_the_trials() -> None:
    def with_others(sign: int, seed: int) -> float:
        rng, history = np.random.default_rng(seed), begun(LINE, 0.0, seed)
        for x in rng.uniform(0.2, 0.8, size=40).tolist():
            trial = decided(history, sign * (x - 0.5), {"x": x})
            history += (dataclasses.replace(trial, verdict=Verdict("discard", "so the champion stays")),)
        return mean_of(learning.Learned(), Brief(LINE, history))

    assert np.mean([with_others(1, seed) for seed in range(5)]) > 0.01
    assert np.mean([with_others(-1, seed) for seed in range(5)]) < -0.01


def test_an_earlier_campaign_helps_from_the_first_trial_on() -> None:
    def truth(params: Params) -> float:
        return -abs(float(params["x"]) - 0.85)

    def found(seed: int, earlier: History) -> float:
        return max(truth(trial.proposal.params) for trial in led(begun(LINE, -0.35, seed), truth, 3, earlier))

    past = led(begun(LINE, -0.35, 99), truth, 20)
    with_past = [found(seed, past) for seed in range(2)]
    assert min(with_past) > -0.05 and np.mean(with_past) > np.mean([found(seed, ()) for seed in range(2)])


def test_without_torch_it_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "tasks.proposers.learned", raising=False)
    with pytest.raises(Refused, match=r"'torch'.*install"):
        propose.load("learned", {})

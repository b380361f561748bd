"""The SAC trainer: its densities and targets against numbers known otherwise, and the program as the engine starts it."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import pytest
from numpy.typing import NDArray

import _program
from tests.support import trainer_process as trainer_programs
from tests.support.lazy import LazyModule
from tests.support.trainer_process import progress

if TYPE_CHECKING:
    import torch

    from tasks.trainers import sac
else:
    torch, sac = LazyModule("torch"), LazyModule("tasks.trainers.sac")


class Endless(gym.Env[NDArray[np.float64], Any]):
    """Pays 1 per step, whatever is done; after two steps it terminates or is cut off. Refuses alien actions."""

    def __init__(
        self, terminates: bool = True, action_space: gym.Space[Any] | None = None,
        observation_space: gym.Space[Any] | None = None,
    ) -> None:  # fmt: skip
        self.terminates = terminates
        self.observation_space = observation_space or gym.spaces.Box(-9, 9, (1,), np.float64)
        self.action_space = action_space or gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1), {}

    def step(self, action: Any) -> tuple[NDArray[np.float64], float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(np.asarray(action)), f"{action!r} is not in {self.action_space}"
        self.count += 1
        over = self.count == 2
        return np.full(1, float(self.count)), 1.0, over and self.terminates, over, {}


gym.register("SacEndless-v0", entry_point=Endless, disable_env_checker=True)  # type: ignore[arg-type]


def config(out: Path, id: str = "Pendulum-v1", **more: Any) -> dict[str, Any]:
    return trainer_programs.config(out, id, **more)


def train(settings: dict[str, Any]) -> sac.Policy:
    """Train in this process, and read the checkpoint back."""
    _program.training(settings, sac.train)
    return _program.load(Path(settings["out"]), sac.Policy, sac.Shape)


program = partial(trainer_programs.program, sac)


def policy_for(observations: int, actions: int) -> sac.Policy:
    torch.manual_seed(0)
    return sac.Policy(sac.Shape(observations, actions, hidden=16))


def test_densities_of_squashed_actions_agree_with_torch() -> None:
    policy, observations = policy_for(3, 2), torch.randn(50, 3)
    actions, logs = policy.sample(observations)
    mean, log_std = policy.gaussian(observations)
    bell: Any = torch.distributions.Normal(mean, log_std.exp())
    squashed: Any = torch.distributions.TransformedDistribution(
        bell, [torch.distributions.transforms.TanhTransform(cache_size=0)]
    )
    torch.testing.assert_close(logs, squashed.log_prob(actions).sum(-1), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("terminates", "first", "second"), [(True, 1.5, 1.0), pytest.param(False, 2.0, 2.0, marks=pytest.mark.slow)]
)
def test_the_critics_learn_that_a_cut_off_life_goes_on_and_a_terminated_one_does_not(
    terminates: bool, first: float, second: float
) -> None:
    # At a discount of 1/2, two steps of 1 are worth 1.5 and the last of them 1; a life without end is worth 2.
    torch.manual_seed(0)
    params = sac.Params(gamma=0.5, tau=0.05, learning_rate=3e-3, hidden=16)
    learner = sac.Learner(policy_for(1, 1), params, capacity=100)
    with torch.no_grad():
        learner.log_temperature.fill_(-20.0)  # entropy is worth nothing, so that values are returns
    for step in range(100):
        at, ends = float(step % 2), float(terminates and step % 2)
        action = torch.rand(1, 1) * 2 - 1
        then = torch.tensor([[at + 1 if terminates else 1 - at]])
        learner.memory.add(torch.tensor([[at]]), action, then, torch.tensor([[1.0, ends]]))
    for _ in range(400):
        sac.improve(learner, params)
    values = learner.critics(torch.tensor([[0.0], [1.0]]), torch.zeros(2, 1))
    assert values.flatten().tolist() == pytest.approx([first, second] * 2, abs=0.15)


@pytest.mark.parametrize("terminates", [True, False])
def test_a_remembered_transition_leads_to_where_the_episode_ended(
    tmp_path: Path, terminates: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[Any] = []
    monkeypatch.setattr(sac.Memory, "add", lambda memory, *parts: rows.append(torch.cat(parts, -1)[0]))
    settings = config(
        tmp_path,
        "SacEndless-v0",
        steps=10,
        params={"random_steps": 9, "updates_per_step": 0.0},
        kwargs={"terminates": terminates},
    )
    train(settings)
    where, _, later, rewards, terminated = torch.stack(rows).split(1, -1)
    assert where[:, 0].tolist() == [0, 1] * 5
    assert later[:, 0].tolist() == [1, 2] * 5  # never the 0 of the next episode's start
    assert rewards[:, 0].tolist() == [1] * 10
    assert terminated[:, 0].tolist() == [0, int(terminates)] * 5
    assert progress(tmp_path)[-1]["metrics"]["return/mean"] == 2.0


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.Box(np.full((2, 2), -0.1), np.full((2, 2), 0.3), dtype=np.float64),
        gym.spaces.Box(-2, 2, (), np.float32),
    ],
)
def test_actions_arrive_inside_the_action_space(tmp_path: Path, space: gym.Space[Any]) -> None:
    params = {"random_steps": 50, "batch": 8, "learning_rate": 0.1}
    train(config(tmp_path, "SacEndless-v0", steps=100, params=params, kwargs={"action_space": space}))


LABELLED = gym.spaces.Dict({"count": gym.spaces.Box(0, 9)})


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"id": "CartPole-v1"}, "actions are Discrete(2); SAC needs a Box of floats with finite bounds"),
        ({"id": "SacEndless-v0", "kwargs": {"observation_space": LABELLED}}, "observations are Dict"),
    ],
)
def test_a_problem_it_cannot_train_is_refused_with_the_reason(
    tmp_path: Path, more: dict[str, Any], reason: str
) -> None:
    with pytest.raises(_program.Refused, match=re.escape(reason)):
        train(config(tmp_path, **more))


@pytest.mark.slow
def test_it_learns_to_swing_a_pendulum_up_as_judged(tmp_path: Path) -> None:
    good = {"learning_rate": 3e-3, "tau": 0.02, "batch": 64, "random_steps": 500, "hidden": 32}
    train(config(tmp_path / "out", steps=3000, params=good))
    judged = partial(trainer_programs.judged, sac, tmp_path, tmp_path / "out", "Pendulum-v1", other_episodes=4)
    score, again = judged(episodes=8), judged(episodes=8)
    assert score.value is not None and score.value > -700  # a random policy has -1200, sd 300 over episodes
    assert (again.units, again.also) == (score.units, score.also)
    assert score.also["return/sampled"] != score.value

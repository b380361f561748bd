"""The processes that play for the PPO trainer: what they give back, how they fail, and how they end."""

from __future__ import annotations

import importlib.util
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

import _program
from tests.support import trainer_process as trainer_programs
from tests.support.lazy import LazyModule

if TYPE_CHECKING:
    import torch

    from tasks.trainers import ppo
else:
    torch, ppo = LazyModule("torch"), LazyModule("tasks.trainers.ppo")


class Fragile(gym.Env[NDArray[np.float32], Any]):
    """Breaks at its hundredth step in any process but `spared`: it raises, or is killed."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, spared: int, killed: bool) -> None:
        self.spared, self.killed, self.count = spared, killed, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        self.count += 1
        if self.count == 100 and os.getpid() != self.spared:
            if self.killed:
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("the hundredth step is too much")
        return np.zeros(1, np.float32), 1.0, False, False, {}


gym.register("Fragile-v0", entry_point=Fragile, disable_env_checker=True)  # type: ignore[arg-type]


def config(out: Path, id: str = "CartPole-v1", **more: Any) -> dict[str, Any]:
    return trainer_programs.config(out, id, **{"cores": 2, **more})


def train(settings: dict[str, Any]) -> ppo.Agent:
    _program.training(settings, ppo.train)
    return _program.load(Path(settings["out"]), ppo.Agent, ppo.Shape)


@pytest.mark.parametrize("killed", [False, True])
def test_what_goes_wrong_in_a_fork_ends_training_and_says_what_it_was(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], killed: bool
) -> None:
    before = psutil.Process().children()
    with pytest.raises(_program.Failed, match="one of the processes that play has ended"):
        train(config(tmp_path, "Fragile-v0", steps=4000, kwargs={"spared": os.getpid(), "killed": killed}))
    assert killed or "the hundredth step is too much" in capfd.readouterr().err
    assert not (tmp_path / "policy.pt").exists()
    assert psutil.Process().children() == before


def test_nobody_waits_for_a_fork_longer_than_the_budget() -> None:
    def prepare(number: int, count: int) -> Callable[..., Any]:
        return lambda budget: time.sleep(600 * number) or number

    began = time.monotonic()
    with _program.Workers(2, prepare) as workers:
        assert workers(_program.Budget(0.2, 0)) is None
    assert time.monotonic() - began < 5


def test_two_processes_play_what_one_plays_where_no_action_is_drawn(tmp_path: Path) -> None:
    params, batches = ppo.Params(num_envs=5), []
    for cores in (1, 2):
        settings = config(tmp_path, cores=cores)
        agent = ppo.build({"id": "CartPole-v1"}, params)
        weights = {name: tensor.numpy() for name, tensor in agent.state_dict().items()}
        weights["actor.4.bias"] = np.array([50.0, -50.0])  # so strong that only one action is ever drawn
        with _program.Workers(cores, partial(ppo.player, settings, params, agent)) as workers:
            shares = [workers(_program.Budget(60, 0), weights, 32) for _ in range(2)]
        batches.append([[np.concatenate(parts, 1) for parts in zip(*share or (), strict=True)] for share in shares])
    lanes = [0, 2, 4, 1, 3]
    for alone, together in zip(*batches, strict=True):
        assert all(np.array_equal(part[:, lanes], other) for part, other in zip(alone, together, strict=True))
    assert all(batch[-1].any() for batch in batches[0])  # episodes ended, and others began


@pytest.mark.filterwarnings("ignore:.*precision lowered by casting:UserWarning")
@pytest.mark.skipif(not importlib.util.find_spec("envpool"), reason="EnvPool is not installed")
@pytest.mark.parametrize(("id", "limit"), [("CartPole-v1", 30), ("Pendulum-v1", 200)])
def test_envpool_gives_rollouts_of_real_steps_like_gymnasium(id: str, limit: int) -> None:
    problem = {"id": id, "max_episode_steps": limit}
    pool, agent = _program.Pool(problem, [1, 2, 3]), ppo.build(problem, ppo.Params())
    parts = ppo.rollout(pool, agent, 3 * limit, _program.Budget(60, 0))
    assert parts is not None
    seen, _, later, rewards, terminated, ended = parts
    # Where an episode goes on, the next row begins where this one led to; where it ended, anywhere else.
    goes_on = ended[:-1] == 0
    assert np.array_equal((seen[1:] == later[:-1]).all(-1), goes_on)
    assert (rewards != 0).all()  # a reset is no row
    for lane in range(3):
        ends = np.flatnonzero(ended[:, lane])
        lengths = np.diff([-1, *ends])
        assert len(ends) >= 3
        assert (lengths <= limit).all()
        assert (lengths[terminated[ends, lane] == 0] == limit).all()
    assert len({tuple(first) for first in seen[0].tolist()}) == 3

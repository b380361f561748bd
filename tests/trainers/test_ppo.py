"""The PPO trainer: estimates against numbers worked out by hand, and the program as the engine starts it."""

from __future__ import annotations

import json
import re
import signal
import time
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
    from torch import nn

    from tasks.trainers import ppo
else:
    torch, nn, ppo = LazyModule("torch"), LazyModule("torch.nn"), LazyModule("tasks.trainers.ppo")


class Ticks(gym.Env[NDArray[np.float64], Any]):
    """Counts: it starts at 50, then shows and pays 1, 2, ... and ends at `length`, terminated or cut off.

    The start is far from any count, so that a value taken from the wrong side of a reset stands out.
    """

    def __init__(
        self, length: int = 2, terminates: bool = True, action_space: gym.Space[Any] | None = None, pay: float = 1.0,
        observation_space: gym.Space[Any] | None = None,
    ) -> None:  # fmt: skip
        self.length, self.terminates, self.pay = length, terminates, pay
        self.observation_space = observation_space or gym.spaces.Box(-100, 100, (1,), np.float64)
        self.action_space = action_space or gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        self.count = 0
        return np.array([50.0]), {}

    def step(self, action: Any) -> tuple[NDArray[np.float64], float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(np.asarray(action)), f"{action!r} is not in {self.action_space}"
        self.count += 1
        over = self.count == self.length
        return np.array([float(self.count)]), self.pay * self.count, over and self.terminates, over, {}


gym.register("Ticks-v0", entry_point=Ticks, disable_env_checker=True)  # type: ignore[arg-type]


def config(out: Path, id: str = "CartPole-v1", **more: Any) -> dict[str, Any]:
    return trainer_programs.config(out, id, **more)


def train(settings: dict[str, Any]) -> ppo.Agent:
    """Train in this process, and read the checkpoint back."""
    _program.training(settings, ppo.train)
    return _program.load(Path(settings["out"]), ppo.Agent, ppo.Shape)


program = partial(trainer_programs.program, ppo)


def agent_for(observations: int, actions: int, discrete: bool, **more: Any) -> ppo.Agent:
    torch.manual_seed(0)
    shape = {"start": 0, "hidden": 16, "normalize_observations": False, **more}
    return ppo.Agent(ppo.Shape(observations, actions, discrete, **shape))


def advantages(gamma: float, gae_lambda: float, **lists: Any) -> Any:
    """The estimates of one list per lane; the parts of a rollout that they do not read stay empty."""
    parts = {name: torch.tensor(lanes, dtype=torch.float32).T for name, lanes in lists.items()}
    empty = {name: torch.empty(0) for name in ("observations", "actions", "later")}
    values, next_values = parts.pop("values"), parts.pop("next_values")
    params = ppo.Params(gamma=gamma, gae_lambda=gae_lambda)
    return ppo.gae(ppo.Rollout(**empty, **parts), values, next_values, params).T.tolist()


def test_gae_gives_the_numbers_worked_out_by_hand() -> None:
    # Errors of the uninterrupted lane: 1+2/2-1=1, 2+4/2-2=2, 3+8/2-4=3; each adds a quarter of what follows it.
    # Terminated after the second step: 2-2=0, and nothing flows back. Cut off there in a state worth 6: 2+6/2-2=3.
    estimates = advantages(
        gamma=0.5, gae_lambda=0.5, rewards=[[1, 2, 3]] * 3, values=[[1, 2, 4]] * 3,
        next_values=[[2, 4, 8], [2, 99, 8], [2, 6, 8]],
        terminated=[[0, 0, 0], [0, 1, 0], [0, 0, 0]], ended=[[0, 0, 0], [0, 1, 0], [0, 1, 0]],
    )  # fmt: skip
    assert estimates == [[1.6875, 2.75, 3.0], [1.0, 0.0, 3.0], [1.75, 3.0, 3.0]]


@pytest.mark.parametrize("terminates", [True, False])
def test_a_rollout_holds_real_steps_only_and_where_a_cut_off_episode_ended(terminates: bool) -> None:
    problem = {"id": "Ticks-v0", "kwargs": {"terminates": terminates}}
    lanes, agent = ppo.Lanes(problem, [0, 1]), ppo.build(problem, ppo.Params())
    carry = np.zeros((2, 2))
    parts = ppo.rollout(lanes, agent, 5, _program.Budget(60, 0))
    assert parts is not None
    batch = ppo.Rollout(*map(torch.from_numpy, parts))
    returns = ppo.so_far(batch, carry, gamma=0.5)
    for lane in (0, 1):
        assert batch.observations[:, lane, 0].tolist() == [50, 1, 50, 1, 50]
        assert batch.later[:, lane, 0].tolist() == [1, 2, 1, 2, 1]
        assert batch.rewards[:, lane].tolist() == [1, 2, 1, 2, 1]  # no row of reward 0 for the reset
        assert returns[:, :, lane].tolist() == [[1, 1], [3, 2.5], [1, 1], [3, 2.5], [1, 1]]
        assert batch.ended[:, lane].tolist() == [0, 1, 0, 1, 0]
        assert batch.terminated[:, lane].tolist() == ([0, 1, 0, 1, 0] if terminates else [0] * 5)
    assert carry.tolist() == [[1.0, 1.0], [1.0, 1.0]]  # of the episodes that go on


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.Discrete(3, start=5),
        gym.spaces.Box(np.full((2, 2), -0.1), np.full((2, 2), 0.1), dtype=np.float64),
        gym.spaces.Box(-1, np.inf, (), np.float32),
    ],
)
def test_actions_arrive_inside_the_action_space(tmp_path: Path, space: gym.Space[Any]) -> None:
    settings = config(tmp_path, "Ticks-v0", steps=512, kwargs={"action_space": space})
    train(settings | {"params": {"num_steps": 16}})  # Ticks itself refuses an action that is not in its space


def test_log_probabilities_and_entropies_agree_with_torch() -> None:
    observations = torch.randn(7, 3)
    agent = agent_for(3, 4, discrete=True)
    actions = agent.choose(observations)
    log_probs, entropies = agent.log_prob(observations, actions)
    choices: Any = torch.distributions.Categorical(logits=agent.actor(observations))
    torch.testing.assert_close(log_probs, choices.log_prob(actions))
    torch.testing.assert_close(entropies, choices.entropy())

    agent = agent_for(3, 2, discrete=False)
    nn.init.normal_(agent.log_std)
    actions = agent.choose(observations)
    log_probs, entropies = agent.log_prob(observations, actions)
    bell: Any = torch.distributions.Normal(agent.actor(observations), agent.log_std.exp())
    torch.testing.assert_close(log_probs, bell.log_prob(actions).sum(-1))
    torch.testing.assert_close(entropies, bell.entropy().sum(-1))


def test_a_checkpoint_holds_tensors_numbers_and_strings_and_gives_the_same_agent_back(tmp_path: Path) -> None:
    out = tmp_path / "out"
    agent = train(config(out, "Pendulum-v1", steps=500, params={"num_steps": 16, "normalize_observations": True}))
    saved = torch.load(out / "policy.pt", weights_only=True)
    assert {type(value) for value in saved.values()} <= {torch.Tensor, int, float, bool, str}
    assert saved["step"] == 496  # whole steps of 8 environments only
    assert agent.moments.count.item() == 496
    assert agent.moments.mean.abs().sum().item() > 0
    assert (agent.low.item(), agent.high.item()) == (-2.0, 2.0)
    assert sorted(path.name for path in out.iterdir()) == ["policy.pt", "progress.jsonl"]


def test_the_same_seed_gives_the_same_policy_and_another_seed_another(tmp_path: Path) -> None:
    policies = []
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        train(config(tmp_path / name, seed=seed, steps=1024))
        policies.append((tmp_path / name / "policy.pt").read_bytes())
    assert policies[0] == policies[1] != policies[2]
    lines = progress(tmp_path / "one")
    assert lines[0] == {"ready": True}
    assert lines[-1]["step"] == lines[-1]["step_target"] == 1024
    assert 8 < lines[-1]["metrics"]["return/mean"] < 500


def test_sigterm_saves_and_exits_cleanly(tmp_path: Path) -> None:
    out = tmp_path / "out"
    started = program(tmp_path, config(out, budget_seconds=600.0))
    while started.poll() is None and not ((out / "progress.jsonl").exists() and len(progress(out)) > 1):
        time.sleep(0.05)
    started.send_signal(signal.SIGTERM)
    _, errors = started.communicate(timeout=20)
    assert started.returncode == 0, errors.decode()
    assert _program.load(out, ppo.Agent, ppo.Shape).shape.actions == 2


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"learning_rat": 1e-3}, "unknown parameter 'learning_rat'; known are learning_rate, num_envs, num_steps"),
        ({"gamma": 1.5}, "gamma must be finite and from 0 to 1, got 1.5"),
        ({"num_envs": 64}, "num_envs is 64, more than the 32 steps of the budget"),
    ],
)
def test_a_parameter_it_cannot_use_is_refused_with_the_reason(
    params: dict[str, Any],
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config(tmp_path / "out", steps=32, params=params)))
    monkeypatch.chdir(tmp_path)
    assert _program.main([], ppo.train, ppo.act) == 2
    assert reason in capsys.readouterr().err
    assert progress(tmp_path / "out") == []


@pytest.mark.parametrize(
    ("which", "space", "reason"),
    [
        ("observation_space", gym.spaces.Dict({"count": gym.spaces.Box(0, 9)}), "observations are Dict"),
        ("action_space", gym.spaces.MultiBinary(3), "actions are MultiBinary(3)"),
    ],
)
def test_a_problem_it_cannot_train_is_refused_with_the_reason(
    tmp_path: Path, which: str, space: gym.Space[Any], reason: str
) -> None:
    with pytest.raises(_program.Refused, match=re.escape(reason)):
        train(config(tmp_path, "Ticks-v0", kwargs={which: space}))


@pytest.mark.slow
def test_a_good_configuration_masters_cartpole_as_judged(tmp_path: Path) -> None:
    good = {"learning_rate": 2e-3, "epochs": 10, "minibatches": 8}
    train(config(tmp_path / "out", steps=20_000, params=good))
    score = trainer_programs.judged(ppo, tmp_path, tmp_path / "out", "CartPole-v1", episodes=10, other_episodes=4)
    assert score.value is not None and score.value > 400

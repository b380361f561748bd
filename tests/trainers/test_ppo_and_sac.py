"""The trainers PPO and SAC: estimates against numbers worked out by hand, the processes that play for PPO, and that both
train, refuse and end alike. That trainers import nothing of ours, `lint-imports` checks."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
import pytest

import _program
from tests.support import trainer_process
from tests.support.lazy import LazyModule
from tests.support.trainer_process import config, progress, train

torch, nn = LazyModule("torch"), LazyModule("torch.nn")
ppo, sac = LazyModule("tasks.trainers.ppo"), LazyModule("tasks.trainers.sac")
BOX = gym.spaces.Box(-1, 1, (1,), np.float32)


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


@pytest.mark.parametrize("discrete", [True, False])
def test_log_probabilities_and_entropies_agree_with_torch(discrete: bool) -> None:
    observations, agent = torch.randn(7, 3), agent_for(3, 2, discrete)
    if not discrete:
        nn.init.normal_(agent.log_std)
    actions, out = agent.choose(observations), agent.actor(observations)
    of_all: Any = torch.distributions.Categorical(logits=out)
    if not discrete:
        of_all = torch.distributions.Independent(torch.distributions.Normal(out, agent.log_std.exp()), 1)
    log_probs, entropies = agent.log_prob(observations, actions)
    torch.testing.assert_close(log_probs, of_all.log_prob(actions))
    torch.testing.assert_close(entropies, of_all.entropy())


def test_a_clip_holds_values_back_and_advantages_can_be_left_as_they_are() -> None:
    def moved(**more: Any) -> Any:
        """How far an update moves the values and the log probabilities of a rollout."""
        agent, params = agent_for(3, 2, discrete=True), ppo.Params(num_steps=4, num_envs=2, epochs=20, **more)
        seen, later = torch.randn(2, 4, 2, 3)
        ones, actions = torch.ones(4, 2), torch.zeros(4, 2, dtype=torch.long)
        batch = ppo.Rollout(seen, actions, later, 9 * ones, ones, ones)
        before = agent.value(seen).detach(), agent.log_prob(seen, actions)[0].detach()
        ppo.update(agent, torch.optim.Adam(agent.parameters(), 0.01), batch, params, _program.Budget(60, 0))
        after = agent.value(seen).detach(), agent.log_prob(seen, actions)[0].detach()
        return [(now - then).abs() for now, then in zip(after, before, strict=True)]

    values, chances = moved()
    torch.testing.assert_close(moved(value_clip=1e6), [values, chances])
    assert 2 * moved(value_clip=0.1)[0].max() < values.min()
    assert not torch.equal(moved(normalize_advantages=False)[1], chances)


def test_a_discrete_observation_is_read_one_hot(tmp_path: Path) -> None:
    agent = train(ppo, config(tmp_path / "out", "FrozenLake-v1", steps=64, params={"num_steps": 8}))
    assert agent.read(torch.tensor([[3.0]])).tolist() == [[float(place == 3) for place in range(16)]]


def test_a_checkpoint_holds_tensors_numbers_and_strings_and_gives_the_same_agent_back(tmp_path: Path) -> None:
    out = tmp_path / "out"
    agent = train(ppo, config(out, "Pendulum-v1", steps=500, params={"num_steps": 16, "normalize_observations": True}))
    saved = torch.load(out / "policy.pt", weights_only=True)
    assert {type(value) for value in saved.values()} <= {torch.Tensor, int, float, bool, str}
    assert saved["step"] == 496  # whole steps of 8 environments only
    assert agent.moments.count.item() == 496
    assert agent.moments.mean.abs().sum().item() > 0
    assert (agent.low.item(), agent.high.item()) == (-2.0, 2.0)
    assert sorted(path.name for path in out.iterdir()) == ["policy.pt", "progress.jsonl"]


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"learning_rat": 1e-3}, "unknown parameter 'learning_rat'; known are learning_rate, num_envs, num_steps"),
        ({"gamma": 1.5}, "gamma must be finite and from 0 to 1, got 1.5"),
        ({"num_envs": 64}, "num_envs is 64, more than the 32 steps of the budget"),
    ],
)
def test_a_parameter_it_cannot_use_is_refused_with_the_reason(
    params: dict[str, Any], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config(tmp_path / "out", "CartPole-v1", steps=32, params=params)))
    monkeypatch.chdir(tmp_path)
    assert _program.main([], ppo.train, ppo.act) == 2
    assert reason in capsys.readouterr().err
    assert progress(tmp_path / "out") == []


# The processes that play for it


@pytest.mark.parametrize("killed", [False, True])
def test_what_goes_wrong_in_a_fork_ends_training_and_says_what_it_was(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], killed: bool
) -> None:
    spared, before = os.getpid(), psutil.Process().children()

    def breaks(count: int) -> None:
        if count == 100 and os.getpid() != spared:
            if killed:
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("the hundredth step is too much")

    with pytest.raises(_program.Failed, match="one of the processes that play has ended"):
        train(ppo, config(tmp_path, "Ticks-v0", cores=2, steps=4000, kwargs={"length": 1000, "at_step": breaks}))
    assert killed or "the hundredth step is too much" in capfd.readouterr().err
    assert not (tmp_path / "policy.pt").exists()
    assert psutil.Process().children() == before


def test_nobody_waits_for_a_fork_longer_than_the_budget() -> None:
    def prepare(number: int, count: int) -> Callable[..., Any]:
        return lambda budget: time.sleep(600 * number) or number

    with _program.Workers(2, prepare) as workers:
        assert workers(_program.Budget(0.2, 0)) is None


def test_two_processes_play_what_one_plays_where_no_action_is_drawn(tmp_path: Path) -> None:
    params, batches = ppo.Params(num_envs=5), []
    for cores in (1, 2):
        settings = config(tmp_path, "CartPole-v1", cores=cores)
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


# The SAC trainer: its densities and targets against numbers known otherwise.


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
    params, kwargs = {"random_steps": 9, "updates_per_step": 0.0}, {"terminates": terminates, "action_space": BOX}
    train(sac, config(tmp_path, "Ticks-v0", steps=10, params=params, kwargs=kwargs))
    where, _, later, rewards, terminated = torch.stack(rows).split(1, -1)
    assert where[:, 0].tolist() == [50, 1] * 5
    assert later[:, 0].tolist() == rewards[:, 0].tolist() == [1, 2] * 5  # never the 50 of the next episode's start
    assert terminated[:, 0].tolist() == [0, int(terminates)] * 5
    assert progress(tmp_path)[-1]["metrics"]["return/mean"] == 3.0


# Conformance: both of them are programs, with parts beside them.


SMALL: dict[str, dict[str, Any]] = {
    "ppo": {"num_steps": 16},
    "sac": {"random_steps": 50, "batch": 8, "learning_rate": 0.1, "hidden": 16},
}


@pytest.fixture(params=SMALL)
def trainer(request: pytest.FixtureRequest) -> ModuleType:
    return importlib.import_module(f"tasks.trainers.{request.param}")


def small(trainer: ModuleType) -> dict[str, Any]:
    return SMALL[trainer.__name__.rpartition(".")[2]]


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.Discrete(3, start=5),
        gym.spaces.Box(np.full((2, 2), -0.1), np.full((2, 2), 0.3), dtype=np.float64),
        gym.spaces.Box(-1, np.inf, (), np.float32),
    ],
)
def test_actions_arrive_inside_the_action_space_or_it_is_refused(
    trainer: ModuleType, tmp_path: Path, space: gym.Space[Any]
) -> None:
    settings = config(tmp_path, "Ticks-v0", steps=256, params=small(trainer), kwargs={"action_space": space})
    if small(trainer) is SMALL["sac"] and (isinstance(space, gym.spaces.Discrete) or not space.shape):
        with pytest.raises(_program.Refused, match="SAC needs a Box of floats with finite bounds"):
            train(trainer, settings)
    else:
        train(trainer, settings)  # Ticks itself refuses an action that is not in its space


def test_observations_that_it_cannot_see_are_refused_with_the_reason(trainer: ModuleType, tmp_path: Path) -> None:
    labelled = gym.spaces.Dict({"count": gym.spaces.Box(0, 9)})
    kwargs = {"observation_space": labelled, "action_space": BOX}
    with pytest.raises(_program.Refused, match=re.escape("observations are Dict")):
        train(trainer, config(tmp_path, "Ticks-v0", kwargs=kwargs))


def test_the_same_seed_gives_the_same_policy_and_another_seed_another(trainer: ModuleType, tmp_path: Path) -> None:
    policies, id = [], "CartPole-v1" if small(trainer) is SMALL["ppo"] else "Pendulum-v1"
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        train(trainer, config(tmp_path / name, id, seed=seed, steps=512, params=small(trainer)))
        policies.append((tmp_path / name / "policy.pt").read_bytes())
    assert policies[0] == policies[1] != policies[2]
    lines = progress(tmp_path / "one")
    assert lines[0] == {"ready": True} and lines[-1]["step"] == lines[-1]["step_target"] == 512
    assert -2000 < lines[-1]["metrics"]["return/mean"] < 500


def test_sigterm_saves_and_exits_cleanly(trainer: ModuleType, tmp_path: Path) -> None:
    out = tmp_path / "out"
    settings = config(out, "Pendulum-v1", budget_seconds=600.0)
    started = trainer_process.program(trainer, tmp_path, settings)
    while started.poll() is None and not ((out / "progress.jsonl").exists() and len(progress(out)) > 1):
        time.sleep(0.05)
    started.send_signal(signal.SIGTERM)
    _, errors = started.communicate(timeout=120)
    assert started.returncode == 0, errors.decode()
    assert (out / "policy.pt").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "id", "steps", "good", "most"),
    [
        ("ppo", "CartPole-v1", 20_000, {"learning_rate": 2e-3, "epochs": 10, "minibatches": 8}, 400),
        ("sac", "Pendulum-v1", 3000, {"learning_rate": 3e-3, "tau": 0.02, "batch": 64, "random_steps": 500, "hidden": 32},
         -700),  # a random policy has -1200, sd 300 over episodes
    ],
)  # fmt: skip
def test_a_good_configuration_masters_its_problem_as_judged(
    tmp_path: Path, name: str, id: str, steps: int, good: dict[str, Any], most: float
) -> None:
    trainer = importlib.import_module(f"tasks.trainers.{name}")
    train(trainer, config(tmp_path / "out", id, steps=steps, params=good))
    score, again = (
        trainer_process.judged(trainer, tmp_path, tmp_path / "out", id, episodes=8, other_episodes=4) for _ in range(2)
    )
    assert score.value is not None and score.value > most
    assert (again.units, again.also) == (score.units, score.also)

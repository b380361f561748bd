"""SAC for gymnasium environments: one program, free to edit.

Soft actor-critic (Haarnoja et al. 2018, arXiv:1812.05905) with twin critics, slowly following target critics and an
automatically tuned temperature, for Box observations (flattened) and Box actions between finite bounds. It learns
repeatedly from a replay memory, so it needs far fewer steps than PPO and far more time for each.

    python train.py        trains as ./config.json says: out/progress.jsonl on the way, then out/policy.pt
    python train.py act    plays that policy: observations come in on stdin, actions go out on stdout

The contract with the engine is in _program.py beside this file, which an edit cannot change: `Budget` (budget.late,
.spent, .step), `ProgressFile` (progress.ready(), .due, .report(metrics, returns)), `Moves`, and `main`.

Training ends when the budget of seconds or environment steps is spent, or at once on SIGTERM; either way it saves the
policy and exits 0. On the CPU, a seed and a budget of steps that binds give the same policy, bit for bit.
"""

from __future__ import annotations

import copy
import math
import random
import sys
from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from _program import Config, Moves, ProgressFile, Refused, load, main, parse, save, use_cuda


@dataclass(frozen=True)
class Params:
    """The tunable parameters: `params` in config.json. Integers are >= 1, other numbers >= 0."""

    learning_rate: float = 1e-3
    """Of actor, critics and temperature."""
    batch: int = 128
    """Transitions per gradient step, drawn from the replay memory."""
    tau: float = 0.005
    """How far the target critics follow at each gradient step; at most 1."""
    gamma: float = 0.99
    """Discount per step, at most 1."""
    updates_per_step: float = 1.0
    """Gradient steps per environment step, once learning has begun."""
    random_steps: int = 1000
    """Steps of uniformly random actions before learning begins."""
    buffer: int = 200_000
    """Size of the replay memory; the oldest transitions are overwritten."""
    hidden: int = 64
    """Width of the two hidden layers, of actor and critics each."""


@dataclass(frozen=True)
class Shape:
    """The sizes of the actor, saved with it so that `act` builds the same one; those of flattened spaces."""

    observations: int
    actions: int
    hidden: int


class Policy(nn.Module):
    """A Gaussian squashed into the action's bounds. B: any batch shape, D: observation, A: action.

    Inside this program actions lie in [-1, 1]; `playable` stretches them to the bounds.
    """

    low: Tensor
    high: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.net = nn.Sequential(
            *(nn.Linear(shape.observations, shape.hidden), nn.ReLU()),
            *(nn.Linear(shape.hidden, shape.hidden), nn.ReLU()),
            nn.Linear(shape.hidden, 2 * shape.actions),
        )
        # Double, so that the bounds of a double action space stay exact and no action lies outside.
        self.register_buffer("low", torch.full((shape.actions,), -1.0, dtype=torch.float64))
        self.register_buffer("high", torch.full((shape.actions,), 1.0, dtype=torch.float64))

    def gaussian(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and logarithm of the standard deviation before squashing: (B, D) -> (B, A) each."""
        mean, log_std = self.net(observations).chunk(2, -1)
        # Wider than e^2 the tanh leaves only the two bounds, narrower than e^-5 there is nothing to explore.
        return mean, log_std.clamp(-5.0, 2.0)

    def sample(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Actions (B, A) that carry their gradient, and the logarithm of their density in [-1, 1]^A, (B)."""
        mean, log_std = self.gaussian(observations)
        noise = torch.randn_like(mean)
        free = mean + log_std.exp() * noise
        density = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
        # log(1 - tanh(x)^2), the squashing's share, in a form that stays finite where tanh(x) rounds to 1.
        squashing = 2 * (math.log(2) - free - functional.softplus(-2 * free))
        return free.tanh(), (density - squashing).sum(-1)

    @torch.no_grad()
    def choose(self, observations: Tensor, mode: Tensor | None = None) -> Tensor:
        """Sampled actions, (B, D) -> (B, A); where `mode` (B, 1) is true, the mean ones."""
        mean, log_std = self.gaussian(observations)
        sampled = mean + log_std.exp() * torch.randn_like(mean)
        return (sampled if mode is None else torch.where(mode, mean, sampled)).tanh()

    def playable(self, actions: Tensor) -> NDArray[np.float64]:
        """Actions for the environment, scaled from [-1, 1] to the bounds."""
        stretched = self.low + (actions.double() + 1) / 2 * (self.high - self.low)
        return stretched.clamp(self.low, self.high).cpu().numpy()


class Critics(nn.Module):
    """Two critics in one: each layer multiplies both at once, which halves the calls."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        sizes = (shape.observations + shape.actions, shape.hidden, shape.hidden, 1)
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for inputs, outputs in pairwise(sizes):
            reach = 1 / math.sqrt(inputs)
            self.weights.append(nn.Parameter(torch.empty(2, inputs, outputs).uniform_(-reach, reach)))
            self.biases.append(nn.Parameter(torch.empty(2, 1, outputs).uniform_(-reach, reach)))

    def forward(self, observations: Tensor, actions: Tensor) -> Tensor:
        """The value of each critic: (B, D) and (B, A) -> (2, B)."""
        values = torch.cat([observations, actions], -1).expand(2, -1, -1)
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            values = torch.baddbmm(bias, values.relu() if layer else values, weight)
        return values.squeeze(-1)


class Memory:
    """The replay memory: a transition per row, its parts side by side, so that a draw is a single look-up."""

    def __init__(self, capacity: int, policy: Policy) -> None:
        self.parts = [policy.shape.observations, policy.shape.actions, policy.shape.observations, 1, 1]
        self.rows = torch.zeros(capacity, sum(self.parts), device=policy.low.device)
        self.written = 0

    def add(self, *parts: Tensor) -> None:
        """Overwrite the oldest transition; parts are (1, ...) each, in order."""
        self.rows[self.written % len(self.rows)] = torch.cat(parts, -1)[0]
        self.written += 1

    def draw(self, batch: int) -> tuple[Tensor, ...]:
        """`batch` random rows: observation (B, D), action (B, A), next observation, reward, terminated."""
        which = torch.randint(min(self.written, len(self.rows)), (batch,)).to(self.rows.device)
        return torch.split(self.rows[which], self.parts, dim=-1)


class Learner:
    """Policy, critics, targets, temperature and optimizer, untrained, with an empty memory."""

    def __init__(self, policy: Policy, params: Params, capacity: int) -> None:
        self.policy, self.memory = policy, Memory(capacity, policy)
        self.critics = Critics(policy.shape).to(policy.low.device)
        # Slowly following copies keep the learning targets stable.
        self.targets = copy.deepcopy(self.critics).requires_grad_(False)
        self.log_temperature = torch.zeros((), device=policy.low.device, requires_grad=True)
        learned = [*policy.parameters(), *self.critics.parameters(), self.log_temperature]
        self.optimizer = torch.optim.Adam(learned, lr=params.learning_rate, fused=True)


def improve(learner: Learner, params: Params) -> dict[str, float]:
    """One gradient step for critics, actor and temperature on a draw from memory; returns diagnostics."""
    policy, critics, targets = learner.policy, learner.critics, learner.targets
    observations, actions, later, rewards, terminated = learner.memory.draw(params.batch)
    temperature = learner.log_temperature.exp()
    with torch.no_grad():
        # The lesser of two values, because an actor exploits whatever one critic overestimates. A truncated
        # episode would have gone on: only a terminated one earns nothing more.
        next_actions, next_logs = policy.sample(later)
        worth = targets(later, next_actions).amin(0) - temperature * next_logs
        goals = rewards[:, 0] + params.gamma * (1 - terminated[:, 0]) * worth
    values = critics(observations, actions)
    critic_loss = (values - goals).square().mean(-1).sum()
    chosen, logs = policy.sample(observations)
    actor_loss = (temperature.detach() * logs - critics(observations, chosen).amin(0)).mean()
    # The entropy is held to -1 per number of an action: hotter while it is below that, cooler while above.
    heat_loss = temperature * (policy.shape.actions - logs.detach().mean())

    learner.optimizer.zero_grad()
    # Each loss moves its own part only: the actor must not change the critics.
    critic_loss.backward(inputs=list(critics.parameters()))
    (actor_loss + heat_loss).backward(inputs=[*policy.net.parameters(), learner.log_temperature])
    if not math.isfinite(critic_loss.item()):  # before it spreads to every weight
        raise RuntimeError("the critics' loss is non-finite: lower learning_rate, or scale the rewards")
    learner.optimizer.step()
    with torch.no_grad():
        for target, critic in zip(targets.parameters(), critics.parameters(), strict=True):
            target.lerp_(critic, params.tau)
    metrics = {"value/mean": values.mean(), "entropy/mean": -logs.mean(), "entropy/temperature": temperature}
    return {name: value.item() for name, value in metrics.items()}


def flat(observations: NDArray[Any], count: int = 1) -> Tensor:
    """`count` observations of any shape and dtype -> (count, D) floats."""
    return torch.from_numpy(np.reshape(observations, (count, -1)).astype(np.float32))


def build(env: gym.Env[Any, Any], params: Params) -> Policy:
    """An untrained policy that fits this environment."""
    seen, taken = env.observation_space, env.action_space
    if not isinstance(seen, gym.spaces.Box):
        raise Refused(f"observations are {seen}; this program reads a Box: flatten them in the environment")
    floats = isinstance(taken, gym.spaces.Box) and np.issubdtype(taken.dtype, np.floating)
    if not isinstance(taken, gym.spaces.Box) or not floats or not taken.is_bounded():
        raise Refused(f"actions are {taken}; SAC needs a Box of floats with finite bounds: train with ppo")
    policy = Policy(Shape(math.prod(seen.shape), math.prod(taken.shape), params.hidden))
    policy.low.copy_(torch.from_numpy(taken.low.flatten()))
    policy.high.copy_(torch.from_numpy(taken.high.flatten()))
    return policy


def train(config: Config, progress: ProgressFile) -> None:
    """Step and improve until the budget is spent, and save."""
    params, budget = parse(Params, config["params"], most={"gamma": 1, "tau": 1}), progress.budget
    if 0 < budget.steps <= params.random_steps:
        raise Refused(f"random_steps is {params.random_steps}, all {budget.steps} steps of the budget: lower it")
    torch.set_num_threads(1)  # nets this small gain nothing from two, and lose much where cores are shared
    torch.manual_seed(config["seed"])
    random.seed(config["seed"])  # problems may draw from these
    np.random.seed(config["seed"] % 2**32)
    device = "cuda" if use_cuda(config) else "cpu"
    id, kwargs, limit = (config["problem"][key] for key in ("id", "kwargs", "max_episode_steps"))
    env = gym.make(id, max_episode_steps=limit, **kwargs)
    policy, space = build(env, params).to(device), env.action_space
    # Before the clock starts: the first optimizer of a process makes torch import for about a second.
    learner = Learner(policy, params, capacity=min(params.buffer, budget.steps or params.buffer))
    progress.ready()
    # Raw returns of the latest finished episodes: few, because a whole run may have only dozens.
    returns: deque[float] = deque(maxlen=10)
    metrics = dict[str, float]()
    running = owed = 0.0
    # 31 bits: some environments hand their seed to a C int.
    here = flat(env.reset(seed=int(np.random.SeedSequence(config["seed"]).generate_state(1)[0]) >> 1)[0]).to(device)
    while not budget.spent:
        learning = budget.step >= params.random_steps
        action = policy.choose(here) if learning else torch.rand(1, policy.shape.actions, device=device) * 2 - 1
        move = policy.playable(action).astype(space.dtype).reshape(space.shape)
        arrived, reward, terminated, truncated, _ = env.step(move)
        later, earned = flat(arrived).to(device), np.asarray(reward).item()
        learner.memory.add(here, action, later, torch.tensor([[earned, float(terminated)]], device=device))
        here, running = later, running + earned
        if terminated or truncated:
            returns.append(running)
            here, running = flat(env.reset()[0]).to(device), 0.0
        budget.step += 1
        owed += params.updates_per_step if learning else 0.0
        while owed >= 1 and not budget.late:
            owed -= 1
            metrics = improve(learner, params)
        if progress.due:
            progress.report(metrics, returns)
    progress.report(metrics, returns)
    save(Path(config["out"]), policy, budget.step)
    env.close()


def act(out: Path, moves: Moves) -> None:
    """Play the saved policy until the judge closes stdin."""
    torch.set_num_threads(1)
    policy: Policy = load(out, Policy, Shape)  # on the CPU: a frame has few rows, and no GPU may be free by then
    seed, deterministic = moves.meet(policy.shape.observations)
    torch.manual_seed(seed)
    mode = torch.tensor(deterministic).unsqueeze(-1)
    for observations in moves:
        moves.answer(policy.playable(policy.choose(flat(observations, len(observations)), mode)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], train, act))

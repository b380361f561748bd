"""PPO for gymnasium environments: one program, free to edit.

Proximal policy optimisation with a separate actor and critic (tanh MLPs), generalised advantage estimation and the
clipped objective, for Box (flattened) or Discrete (one-hot) observations and Discrete or Box actions. Reported returns
are raw, whatever the learner is shown.

    python train.py        trains as ./config.json says: out/progress.jsonl on the way, then out/policy.pt
    python train.py act    plays that policy: observations come in on stdin, actions go out on stdout

The contract with the engine is in _program.py beside this file, which an edit cannot change: `Budget` (budget.late,
.fraction, .step), `ProgressFile` (progress.ready(), .due, .report(metrics, returns)), `Moves`, `Workers`, and `main`.

On several cores (`cores` in config.json) as many processes play, each in its share of the environments: `rollout` runs
in all of them and knows only what `train` sends, such as the agent's state_dict. All else runs in the first process.

Training ends when the budget of seconds or environment steps is spent, or at once on SIGTERM; either way it saves the
policy and exits 0. On the CPU, a seed and a budget of steps that binds give the same policy, bit for bit, on the same
number of cores.
"""

from __future__ import annotations

import math
import random
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Adam

from _program import Budget, Config, Moves, Pool, ProgressFile, Refused, Workers, load, main, parse, save, use_cuda


@dataclass(frozen=True)
class Params:
    """The tunable parameters: `params` in config.json. Integers are >= 1, other numbers >= 0."""

    learning_rate: float = 1e-3
    num_envs: int = 8
    num_steps: int = 128
    """Steps of each environment per rollout; an update learns from num_envs * num_steps of them."""
    epochs: int = 4
    """Passes over a rollout per update."""
    minibatches: int = 4
    """Gradient steps per epoch."""
    gamma: float = 0.99
    """Discount per step, at most 1."""
    gae_lambda: float = 0.95
    """From 0 (trust the critic alone) to 1 (trust the observed returns alone)."""
    clip: float = 0.2
    """How far an update may move the probability of an action, as a ratio, before its gradient stops."""
    entropy: float = 0.0
    """Weight of the entropy bonus."""
    value_coef: float = 0.5
    """Weight of the critic's squared error."""
    value_clip: float = 0.0
    """How far an update may move a value before its gradient stops; 0: as far as it likes."""
    normalize_advantages: bool = True
    """Standardise the advantages of a rollout."""
    max_grad_norm: float = 0.5
    hidden: int = 64
    """Width of the two hidden layers, of actor and critic each."""
    anneal: bool = True
    """Decay the learning rate linearly to 0 over the budget."""
    normalize_observations: bool = False
    """Standardise observations by their running mean and variance, which `act` uses frozen."""
    normalize_rewards: bool = False
    """Divide rewards by the running standard deviation of discounted returns."""
    simulator: str = "gymnasium"
    """Or `envpool`, which steps those environments that it knows faster. The judge plays in gymnasium either way."""


@dataclass(frozen=True)
class Shape:
    """The form of the agent, saved with it so that `act` builds the same one."""

    observations: int
    """Numbers of a flattened one."""
    actions: int
    """Numbers of a Box action, or choices of a Discrete one, whose first is `start`."""
    discrete: bool
    start: int
    hidden: int
    normalize_observations: bool
    choices: int = 0
    """Values of a Discrete observation, from 0 on; 0 for a Box."""


def mlp(inputs: int, hidden: int, outputs: int, gain: float) -> nn.Sequential:
    """Two tanh layers and a linear one scaled by `gain`; orthogonal weights, no bias, at the start."""
    layers = [nn.Linear(inputs, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, outputs)]
    for layer, scale in zip(layers, (math.sqrt(2), math.sqrt(2), gain), strict=True):
        nn.init.orthogonal_(layer.weight, scale)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])


class Moments(nn.Module):
    """Running mean and variance of D numbers."""

    mean: Tensor
    variance: Tensor
    count: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("variance", torch.ones(size))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    @torch.no_grad()
    def merge(self, batch: Tensor) -> None:
        """Add a batch (B, D)."""
        self.count += len(batch)
        share = len(batch) / self.count.float()
        change = batch.mean(0) - self.mean
        self.mean += change * share
        self.variance += (batch.var(0, correction=0) - self.variance + change**2 * (1 - share)) * share

    @property
    def spread(self) -> Tensor:
        return (self.variance + 1e-8).sqrt()


class Agent(nn.Module):
    """Actor, critic, and moments of observations. B: any batch shape, D: observation, A: Box action.

    All methods but `read` take observations as `read` returns them.
    """

    low: Tensor
    high: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        # A nearly uniform first policy: preferences should come from rewards, not from initial weights.
        inputs = shape.choices or shape.observations
        self.actor = mlp(inputs, shape.hidden, shape.actions, gain=0.01)
        self.critic = mlp(inputs, shape.hidden, 1, gain=1.0)
        box = 0 if shape.discrete else shape.actions
        self.log_std = nn.Parameter(torch.zeros(box))
        # Double, so that the bounds of a double action space stay exact and a clipped action lies inside.
        self.register_buffer("low", torch.full((box,), -math.inf, dtype=torch.float64))
        self.register_buffer("high", torch.full((box,), math.inf, dtype=torch.float64))
        self.moments = Moments(shape.observations)

    def read(self, observations: Tensor) -> Tensor:
        """Observations for the networks, standardised if so configured; of a Discrete one (B, D) is one-hot."""
        if self.shape.choices:
            return nn.functional.one_hot(observations[..., 0].long(), self.shape.choices).float()
        if not self.shape.normalize_observations:
            return observations
        return ((observations - self.moments.mean) / self.moments.spread).clamp(-10.0, 10.0)

    def value(self, observations: Tensor) -> Tensor:
        """(B, D) -> (B)."""
        values: Tensor = self.critic(observations).squeeze(-1)
        return values

    def choose(self, observations: Tensor, mode: Tensor | None = None) -> Tensor:
        """Sampled actions, unclipped: (B, D) -> (B), or (B, A) if Box; the likeliest where `mode` (B, 1) is true."""
        output: Tensor = self.actor(observations)
        if self.shape.discrete:
            # The Gumbel-max trick: adding that noise makes argmax a fair draw.
            sampled = output - torch.empty_like(output).exponential_().log()
        else:
            sampled = output + self.log_std.exp() * torch.randn_like(output)
        answer = sampled if mode is None else torch.where(mode, output, sampled)
        return answer.argmax(-1) if self.shape.discrete else answer

    def playable(self, actions: Tensor) -> NDArray[Any]:
        """Actions for the environment: counted from `start`, or clipped to the bounds."""
        inside = actions + self.shape.start if self.shape.discrete else actions.double().clamp(self.low, self.high)
        return inside.cpu().numpy()

    def log_prob(self, observations: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Log probability (Box: density) of the actions, and the entropy of the policy there: both (B)."""
        output: Tensor = self.actor(observations)
        if self.shape.discrete:
            logs = output.log_softmax(-1)
            return logs.gather(-1, actions.unsqueeze(-1)).squeeze(-1), -(logs.exp() * logs).sum(-1)
        errors = (actions - output) / self.log_std.exp()
        scale = self.log_std + 0.5 * math.log(2 * math.pi)
        return -(0.5 * errors**2 + scale).sum(-1), (scale + 0.5).sum().expand(output.shape[:-1])


def build(problem: dict[str, Any], params: Params) -> Agent:
    """An untrained agent that fits the problem."""
    with make(problem) as env:
        seen, taken = env.observation_space, env.action_space
    choices = int(seen.n) if isinstance(seen, gym.spaces.Discrete) and not seen.start else 0
    if not choices and not isinstance(seen, gym.spaces.Box):
        raise Refused(f"observations are {seen}; this program reads a Box, or a Discrete from 0 on")
    size, form = math.prod(seen.shape or ()), (params.hidden, params.normalize_observations, choices)
    if isinstance(taken, gym.spaces.Discrete):
        return Agent(Shape(size, int(taken.n), True, int(taken.start), *form))
    if not isinstance(taken, gym.spaces.Box) or not np.issubdtype(taken.dtype, np.floating):
        raise Refused(f"actions are {taken}; this program answers a Discrete or a Box of floats")
    agent = Agent(Shape(size, math.prod(taken.shape), False, 0, *form))
    agent.low.copy_(torch.from_numpy(taken.low.flatten()))
    agent.high.copy_(torch.from_numpy(taken.high.flatten()))
    return agent


def make(problem: dict[str, Any]) -> gym.Env[Any, Any]:
    """One environment of the problem."""
    return gym.make(problem["id"], max_episode_steps=problem.get("max_episode_steps"), **problem.get("kwargs", {}))


def flat(observations: Sequence[Any] | NDArray[Any]) -> NDArray[np.float32]:
    """(N, ...) of any dtype -> (N, D) floats."""
    return np.array(observations, np.float32).reshape(len(observations), -1)


class Lanes:
    """N environments side by side; `observations` (N, D) is what they show: a new episode, where one has ended."""

    def __init__(self, problem: dict[str, Any], seeds: Sequence[int]) -> None:
        self.envs = [make(problem) for _ in seeds]
        self.taken = self.envs[0].action_space
        self.observations = flat([env.reset(seed=seed)[0] for env, seed in zip(self.envs, seeds, strict=True)])

    def step(self, moves: NDArray[Any]) -> tuple[NDArray[np.float32], ...]:
        """What one step in every lane led to, as in Rollout; where it ended the episode, a reset follows."""
        moves, arrived = moves.astype(self.taken.dtype).reshape(-1, *(self.taken.shape or ())), []
        rewards, terminated, ended = np.zeros((3, len(moves)), np.float32)
        plain = moves.tolist() if isinstance(self.taken, gym.spaces.Discrete) else moves
        for lane, (env, move) in enumerate(zip(self.envs, plain, strict=True)):
            seen, reward, terminated[lane], truncated, _ = env.step(move)
            rewards[lane : lane + 1] = reward  # a number, or an array with one
            ended[lane] = truncated or terminated[lane]
            arrived.append(seen)
        later = flat(arrived)
        self.observations = later.copy()
        for lane in map(int, np.flatnonzero(ended)):
            self.observations[lane] = np.ravel(self.envs[lane].reset()[0])
        return later, rewards, terminated, ended


class Rollout(NamedTuple):
    """T steps of N lanes: each row is one transition that happened. All (T, N) unless noted."""

    observations: Tensor
    """As the environments gave them, (T, N, D)."""
    actions: Tensor
    """As chosen, before clipping: (T, N), or (T, N, A) for a Box."""
    later: Tensor
    """The observations after each step, (T, N, D): the true last one, where an episode ended."""
    rewards: Tensor
    terminated: Tensor
    """1.0 where the episode terminated, so that nothing more is earned."""
    ended: Tensor
    """1.0 where it terminated or was truncated, so that the next row belongs to another episode."""


@torch.no_grad()
def rollout(lanes: Lanes | Pool, agent: Agent, steps: int, budget: Budget) -> list[NDArray[Any]] | None:
    """Play `steps` steps in every lane: the parts of a Rollout; None when the time runs out on the way."""
    rows = []
    for _ in range(steps):
        if budget.late:
            return None
        actions = agent.choose(agent.read(torch.from_numpy(lanes.observations).to(agent.log_std.device)))
        rows.append((lanes.observations, actions.cpu().numpy(), *lanes.step(agent.playable(actions))))
    return [np.stack(part) for part in zip(*rows, strict=True)]


def player(config: Config, params: Params, agent: Agent, number: int, count: int) -> Callable[..., Any]:
    """What process `number` of `count` does: play its share of the lanes, with the weights and buffers it is sent."""
    # 31 bits: some environments hand their seed to a C int. No neighbouring run shares them.
    seeds = [int(word) >> 1 for word in np.random.SeedSequence(config["seed"]).generate_state(params.num_envs)]
    lanes = (Pool if params.simulator == "envpool" else Lanes)(config["problem"], seeds[number::count])
    own = [int(word) for word in np.random.SeedSequence([config["seed"], number]).generate_state(3)]
    random.seed(own[0])  # those that problems draw from have to differ too: a fork begins with a copy of numpy's
    np.random.seed(own[1])
    if number:  # the first one draws on as it did for the agent
        torch.manual_seed(own[2])

    def play(budget: Budget, weights: dict[str, NDArray[Any]], steps: int) -> list[NDArray[Any]] | None:
        agent.load_state_dict({name: torch.from_numpy(weight) for name, weight in weights.items()})
        return rollout(lanes, agent, steps, budget)

    return play


def so_far(batch: Rollout, carry: NDArray[np.float64], gamma: float) -> NDArray[np.float64]:
    """Each row's return so far, plain and with past rewards discounted: (T, 2, N). `carry` (2, N) is kept between."""
    rewards, goes_on = batch.rewards.cpu().numpy(), 1 - batch.ended.cpu().numpy()
    returns = np.empty((len(rewards), *carry.shape))
    for t in range(len(rewards)):  # in numpy, where small steps are nearly free
        returns[t] = carry * [[1.0], [gamma]] + rewards[t]
        carry[:] = returns[t] * goes_on[t]
    return returns


def gae(batch: Rollout, values: Tensor, next_values: Tensor, params: Params) -> Tensor:
    """Generalised advantage estimates, (T, N): Schulman et al. 2016, arXiv:1506.02438.

    A truncated episode would have gone on, so it is bootstrapped from the critic; a terminated one earns nothing more.
    No advantage flows back from the next episode.
    """
    worth = next_values.masked_fill(batch.terminated > 0, 0.0)  # a critic may say NaN of a state that has no next one
    errors = (batch.rewards + params.gamma * worth - values).cpu().numpy()
    carry = (params.gamma * params.gae_lambda * (1 - batch.ended)).cpu().numpy()
    advantages, later = np.empty_like(errors), np.zeros_like(errors[0])
    for t in reversed(range(len(errors))):
        advantages[t] = later = errors[t] + carry[t] * later
    return torch.from_numpy(advantages).to(values.device)


def minibatches(rows: Sequence[Tensor], params: Params) -> Iterator[tuple[Tensor, ...]]:
    """Minibatches (B, ...) of rows (T, N, ...), reshuffled in each epoch."""
    flattened = [part.flatten(0, 1) for part in rows]
    for _ in range(params.epochs):
        order = torch.randperm(len(flattened[0])).to(flattened[0].device)
        yield from zip(*(part[order].chunk(params.minibatches) for part in flattened), strict=True)


def update(agent: Agent, optimizer: Adam, batch: Rollout, params: Params, budget: Budget) -> dict[str, float]:
    """Improve actor and critic on one rollout; returns diagnostics of the last gradient step."""
    with torch.no_grad():  # one call for all rows is far cheaper than one per step
        seen = agent.read(batch.observations)
        values, next_values = agent.value(seen), agent.value(agent.read(batch.later))
        log_probs = agent.log_prob(seen, batch.actions)[0]
    advantages = gae(batch, values, next_values, params)
    gains = advantages
    if params.normalize_advantages:
        gains = (advantages - advantages.mean()) / (advantages.std(correction=0) + 1e-8)
    rows = (seen, batch.actions, log_probs, gains, advantages + values, values)
    metrics: dict[str, Tensor] = {}
    for observations, actions, old_log_probs, gain, target, old_value in minibatches(rows, params):
        if budget.late:
            break
        log_probs, entropy = agent.log_prob(observations, actions)
        change = log_probs - old_log_probs
        ratio = change.exp()
        clipped = ratio.clamp(1 - params.clip, 1 + params.clip)
        policy_loss = -torch.minimum(ratio * gain, clipped * gain).mean()
        value = agent.value(observations)
        errors = (value - target).square()
        if params.value_clip:
            near = old_value + (value - old_value).clamp(-params.value_clip, params.value_clip)
            errors = torch.maximum(errors, (near - target).square())
        loss = policy_loss + params.value_coef * errors.mean() - params.entropy * entropy.mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        # A NaN would spread to every weight and waste the rest of the budget: fail here instead.
        nn.utils.clip_grad_norm_(agent.parameters(), params.max_grad_norm, error_if_nonfinite=True)
        optimizer.step()
        metrics = {"entropy/mean": entropy.mean().detach(), "kl/mean": (ratio - 1 - change).mean().detach()}
    return {name: value.item() for name, value in metrics.items()}


def train(config: Config, progress: ProgressFile) -> None:
    """Roll out and update until the budget is spent, and save."""
    choices = {"simulator": ("gymnasium", "envpool")}
    params = parse(Params, config["params"], most={"gamma": 1, "gae_lambda": 1}, choices=choices)
    budget, metrics = progress.budget, dict[str, float]()
    if 0 < budget.steps < params.num_envs:
        raise Refused(f"num_envs is {params.num_envs}, more than the {budget.steps} steps of the budget")
    # Nets this small gain nothing from two threads, and lose much where cores are shared; and forks of a process with
    # threads of OpenMP can wait for them for ever.
    torch.set_num_threads(1)
    torch.manual_seed(config["seed"])
    device = "cuda" if use_cuda(config) else "cpu"
    agent, count = build(config["problem"], params), min(config.get("cores", 1), params.num_envs)
    with Workers(count, partial(player, config, params, agent)) as workers:
        # Before the clock starts: the first optimizer of a process makes torch import for about a second.
        optimizer = Adam(agent.to(device).parameters(), lr=params.learning_rate, eps=1e-5, fused=True)
        carry, spread = np.zeros((2, params.num_envs)), Moments(1).to(device)
        latest: deque[float] = deque(maxlen=100)  # raw returns of finished episodes
        progress.ready()
        while not budget.late:
            if params.anneal:
                optimizer.param_groups[0]["lr"] = params.learning_rate * (1 - budget.fraction)
            # The last rollout is cut to what the budget of steps leaves: a large batch buys no extra experience.
            left = (budget.steps - budget.step) // params.num_envs if budget.steps else params.num_steps
            weights = {name: tensor.cpu().numpy() for name, tensor in agent.state_dict().items()}
            shares = workers(budget, weights, min(left, params.num_steps)) if left else None
            if shares is None:
                break
            parts = (np.concatenate(part, 1) for part in zip(*shares, strict=True))
            batch = Rollout(*(torch.from_numpy(part).to(device) for part in parts))
            budget.step += batch.rewards.numel()
            returns = so_far(batch, carry, params.gamma)
            latest.extend(returns[:, 0][batch.ended.cpu().numpy() > 0])
            if params.normalize_rewards:  # clamped, since the spread of few returns is far too small
                spread.merge(torch.from_numpy(returns[:, 1].reshape(-1, 1)).to(device))
                batch = batch._replace(rewards=(batch.rewards / spread.spread).clamp(-10.0, 10.0))
            metrics |= update(agent, optimizer, batch, params, budget)
            # Between updates, never inside one: its ratios have to start at exactly 1.
            agent.moments.merge(batch.observations.flatten(0, 1))
            if progress.due:
                progress.report(metrics, latest)
        progress.report(metrics, latest)
        save(Path(config["out"]), agent, budget.step)


def act(out: Path, moves: Moves) -> None:
    """Play the saved policy until the judge closes stdin."""
    torch.set_num_threads(1)
    agent: Agent = load(out, Agent, Shape)  # on the CPU: a frame has few rows, and no GPU may be free by then
    seed, deterministic = moves.meet(agent.shape.observations)
    torch.manual_seed(seed)
    mode = torch.tensor(deterministic).unsqueeze(-1)
    for observations in moves:
        with torch.no_grad():
            moves.answer(agent.playable(agent.choose(agent.read(torch.from_numpy(flat(observations))), mode)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], train, act))

"""SAC for gymnasium environments: one file, one program, free to edit.

Soft actor-critic (Haarnoja et al. 2018, arXiv:1812.05905) with twin critics, their slowly following copies and
a temperature that tunes itself, for Box observations (flattened) and Box actions between finite bounds. It
learns from remembered steps again and again, so it needs far fewer of them than PPO and far more time for
each. `improve` is the algorithm; the rest reads the configuration and keeps to the budget.

    python train.py        trains as ./config.json says: out/progress.jsonl on the way, then out/policy.pt
    python train.py act    plays that policy: observations come in on stdin, actions go out on stdout

Training ends when the budget of seconds or of environment steps is spent, or at once on SIGTERM; each way it
saves the policy and exits 0. A file `cancel` beside config.json, looked for at each report, ends it without a
policy, with status 42. What it cannot train (an unknown parameter, Discrete actions) exits 2 with the reason
on stderr. On the CPU, a seed and a budget of steps that binds give the same policy, bit for bit.
"""

from __future__ import annotations

import copy
import gc
import json
import math
import os
import signal
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, TextIO

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

CANCELLED = 42
"""The exit status of a training that was cancelled."""


class Refused(Exception):
    """The configuration asks for what this program cannot do; the message says what to change."""


class Cancelled(Exception):
    """Whoever started this program no longer wants its result."""


@dataclass(frozen=True)
class Params:
    """What may be tuned: `params` in config.json. Counts are >= 1, the other numbers >= 0."""

    learning_rate: float = 1e-3
    """Of the actor, the critics and the temperature alike."""
    batch: int = 128
    """Transitions per gradient step, drawn from all that are remembered."""
    tau: float = 0.005
    """How far the critics' copies, which give the targets, follow at each gradient step; at most 1."""
    gamma: float = 0.99
    """Discount per step, at most 1."""
    updates_per_step: float = 1.0
    """Gradient steps per environment step, once learning has begun."""
    random_steps: int = 1000
    """Steps of uniformly random actions before learning begins."""
    buffer: int = 200_000
    """Transitions that are remembered; then the oldest make room."""
    hidden: int = 64
    """Width of the two hidden layers, of actor and critics each."""

    @classmethod
    def parse(cls, given: dict[str, Any]) -> Params:
        known: dict[str, Any] = {parameter.name: parameter.default for parameter in fields(cls)}
        for name, value in given.items():
            if name not in known:
                raise Refused(f"unknown parameter {name!r}; known are {', '.join(known)}")
            kind = type(known[name])
            if type(value) is not kind and not (kind is float and type(value) is int):
                raise Refused(f"{name} must be of type {kind.__name__}, got {value!r}")
            low, high = int(kind is int), 1 if name in ("gamma", "tau") else math.inf
            if not (low <= value <= high and math.isfinite(value)):
                raise Refused(f"{name} must be finite and from {low} to {high}, got {value!r}")
        return cls(**given)


class Budget:
    """The clock of one training: seconds since it began, and environment steps."""

    def __init__(self, seconds: float, steps: int) -> None:
        if not seconds > 0 or steps < 0:
            raise Refused(f"budget_seconds must be > 0 and budget_steps >= 0, got {seconds} and {steps}")
        self.seconds, self.steps = seconds, steps
        self.step, self.stopped, self.began = 0, False, time.monotonic()

    def stop(self, *_: object) -> None:
        """Spend what is left; takes what a signal handler is given."""
        self.stopped = True

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    @property
    def late(self) -> bool:
        """Whether to drop everything: the time is over, or we were told to stop."""
        return self.stopped or self.elapsed >= self.seconds


@dataclass(frozen=True)
class Shape:
    """What fixes the form of the actor: kept in the checkpoint, so that `act` builds the same one.

    `observations` and `actions` count the numbers of a flattened one.
    """

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
        """Sampled actions to play, (B, D) -> (B, A); where `mode`, (B, 1), is true, the middle ones."""
        mean, log_std = self.gaussian(observations)
        sampled = mean + log_std.exp() * torch.randn_like(mean)
        return (sampled if mode is None else torch.where(mode, mean, sampled)).tanh()

    def playable(self, actions: Tensor) -> NDArray[np.float64]:
        """Those actions as the environment takes them, stretched from [-1, 1] to the bounds."""
        stretched = self.low + (actions.double() + 1) / 2 * (self.high - self.low)
        return stretched.clamp(self.low, self.high).cpu().numpy()


class Critics(nn.Module):
    """Two critics in one: each layer multiplies both at once, which spares half of the calls."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        sizes = (shape.observations + shape.actions, shape.hidden, shape.hidden, 1)
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for inputs, outputs in pairwise(sizes):
            reach = 1 / math.sqrt(inputs)
            self.weights.append(nn.Parameter(torch.empty(2, inputs, outputs).uniform_(-reach, reach)))
            self.biases.append(nn.Parameter(torch.empty(2, 1, outputs).uniform_(-reach, reach)))

    def forward(self, observations: Tensor, actions: Tensor) -> Tensor:
        """What each critic expects from here on: (B, D) and (B, A) -> (2, B)."""
        values = torch.cat([observations, actions], -1).expand(2, -1, -1)
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            values = torch.baddbmm(bias, values.relu() if layer else values, weight)
        return values.squeeze(-1)


class Memory:
    """Transitions, the parts of each side by side in one row, so that a draw is a single look-up."""

    def __init__(self, capacity: int, policy: Policy) -> None:
        self.parts = [policy.shape.observations, policy.shape.actions, policy.shape.observations, 1, 1]
        self.rows = torch.zeros(capacity, sum(self.parts), device=policy.low.device)
        self.written = 0

    def add(self, *parts: Tensor) -> None:
        """Write one transition over the oldest: its parts in order, (1, ...) each."""
        self.rows[self.written % len(self.rows)] = torch.cat(parts, -1)[0]
        self.written += 1

    def draw(self, batch: int) -> tuple[Tensor, ...]:
        """`batch` rows, each drawn from all: where from (B, D), action (B, A), where to, reward, terminated."""
        which = torch.randint(min(self.written, len(self.rows)), (batch,)).to(self.rows.device)
        return torch.split(self.rows[which], self.parts, dim=-1)


class Learner:
    """What is learned, and what it is learned with: nothing is known yet, and nothing remembered."""

    def __init__(self, policy: Policy, params: Params, capacity: int) -> None:
        self.policy, self.memory = policy, Memory(capacity, policy)
        self.critics = Critics(policy.shape).to(policy.low.device)
        # The copies follow slowly, so that what is learned towards does not run away.
        self.targets = copy.deepcopy(self.critics).requires_grad_(False)
        self.log_temperature = torch.zeros((), device=policy.low.device, requires_grad=True)
        learned = [*policy.parameters(), *self.critics.parameters(), self.log_temperature]
        self.optimizer = torch.optim.Adam(learned, lr=params.learning_rate, fused=True)


def improve(learner: Learner, params: Params) -> dict[str, float]:
    """One gradient step for critics, actor and temperature on a draw of memories; its diagnostics."""
    policy, critics, targets = learner.policy, learner.critics, learner.targets
    observations, actions, later, rewards, terminated = learner.memory.draw(params.batch)
    temperature = learner.log_temperature.exp()
    with torch.no_grad():
        # The lesser of two opinions, because an actor seeks out whatever one critic overrates. An episode that
        # was cut off would have gone on: only one that terminated earns nothing more.
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
    # Each loss may move its own part only: the actor must not bend the critics to please it.
    critic_loss.backward(inputs=list(critics.parameters()))
    (actor_loss + heat_loss).backward(inputs=[*policy.net.parameters(), learner.log_temperature])
    if not math.isfinite(critic_loss.item()):  # it would spread to every weight: fail before it does
        raise RuntimeError("the critics' loss is non-finite: lower learning_rate, or scale the rewards")
    learner.optimizer.step()
    with torch.no_grad():
        for target, critic in zip(targets.parameters(), critics.parameters(), strict=True):
            target.lerp_(critic, params.tau)
    metrics = {"value/mean": values.mean(), "entropy/mean": -logs.mean(), "entropy/temperature": temperature}
    return {name: value.item() for name, value in metrics.items()}


def save(path: Path, policy: Policy, step: int) -> None:
    """Write numbers and CPU tensors, readable with `weights_only=True`; never half of them under `path`."""
    tensors = {name: tensor.cpu() for name, tensor in policy.state_dict().items()}
    partial = path.with_suffix(".partial")
    torch.save({"format": 1, "step": step, **asdict(policy.shape), **tensors}, partial)
    partial.replace(path)


def load(path: Path) -> Policy:
    if not path.exists():
        raise Refused(f"no policy at {path}; train first")
    saved = torch.load(path, map_location="cpu", weights_only=True)
    policy = Policy(Shape(**{part.name: saved[part.name] for part in fields(Shape)}))
    policy.load_state_dict({name: value for name, value in saved.items() if isinstance(value, Tensor)})
    return policy


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


def learn(
    env: gym.Env[Any, Any], seed: int, learner: Learner, params: Params, budget: Budget, progress: TextIO
) -> None:
    """Step and improve until the budget is spent; report at most five times a second, and at the end."""
    policy, device, space = learner.policy, learner.policy.low.device, env.action_space
    # Raw returns of the latest finished episodes: few, because a whole run may have only dozens.
    returns: deque[float] = deque(maxlen=10)
    metrics: dict[str, float] = {}
    running = owed = reported = 0.0
    # 31 bits: some environments hand their seed to a C int.
    here = flat(env.reset(seed=int(np.random.SeedSequence(seed).generate_state(1)[0]) >> 1)[0]).to(device)
    while not (budget.late or 0 < budget.steps <= budget.step):
        learning = budget.step >= params.random_steps
        action = (
            policy.choose(here) if learning else torch.rand(1, policy.shape.actions, device=device) * 2 - 1
        )
        move = policy.playable(action).astype(space.dtype).reshape(space.shape)
        arrived, reward, terminated, truncated, _ = env.step(move)
        later, earned = flat(arrived).to(device), float(reward)
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
        if budget.elapsed - reported >= 0.2:
            reported = budget.elapsed
            report(returns, metrics, budget, progress)
    report(returns, metrics, budget, progress)


def report(returns: deque[float], metrics: dict[str, float], budget: Budget, progress: TextIO) -> None:
    if returns:
        metrics = {"return/mean": math.fsum(returns) / len(returns), **metrics}
    line = {"elapsed": budget.elapsed, "step": budget.step, "step_target": budget.steps or None}
    progress.write(json.dumps({**line, "metrics": metrics}) + "\n")
    if Path("cancel").exists():
        raise Cancelled


def train(config: dict[str, Any], budget: Budget) -> None:
    """Train as config.json says until the budget is spent, and save."""
    params, out = Params.parse(config["params"]), Path(config["out"])
    for key in ("resume", "init"):
        if config.get(key) is not None:
            raise Refused(f"{key} is {config[key]!r}; this program always starts afresh: leave it null")
    if 0 < budget.steps <= params.random_steps:
        raise Refused(
            f"random_steps is {params.random_steps}, all {budget.steps} steps of the budget: lower it"
        )
    torch.set_num_threads(1)  # nets this small gain nothing from two, and lose much where cores are shared
    torch.manual_seed(config["seed"])
    cuda = config["device"] != "cpu" and torch.cuda.is_available()
    if config["device"] == "cuda" and not cuda:
        raise Refused("device is 'cuda', and torch finds no such GPU: set it to 'auto' or 'cpu'")
    id, kwargs, limit = (config["problem"][key] for key in ("id", "kwargs", "max_episode_steps"))
    env = gym.make(id, max_episode_steps=limit, **kwargs)
    policy = build(env, params).to("cuda" if cuda else "cpu")
    # Before the clock starts: the first optimizer of a process makes torch import for about a second.
    learner = Learner(policy, params, capacity=min(params.buffer, budget.steps or params.buffer))
    out.mkdir(parents=True, exist_ok=True)
    with (out / "progress.jsonl").open("a", buffering=1) as progress:
        progress.write('{"ready": true}\n')
        budget.began = time.monotonic()
        learn(env, config["seed"], learner, params, budget, progress)
    save(out / "policy.pt", policy, budget.step)
    env.close()


def act(out: Path) -> None:
    """Answer moves until stdin is closed: one JSON line each way, then one frame each way per step."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # from here on a stray print, even one from C, is log and cannot garble an answer
    torch.set_num_threads(1)
    policy = load(out / "policy.pt")  # on the CPU: a frame has few rows, and no GPU may be free by then
    hello = json.loads(sys.stdin.buffer.readline())
    lanes, [seen], [taken] = hello["lanes"], hello["observation"], hello["action"]
    if hello["protocol"] != 2 or math.prod(seen["shape"]) != policy.shape.observations:
        raise Refused(f"protocol {hello['protocol']} with observation {seen} does not fit {policy.shape}")
    torch.manual_seed(hello["seed"])
    mode = torch.tensor(hello["deterministic"]).unsqueeze(-1)
    answers.write(b'{"ready": true}\n')
    answers.flush()
    # The masks `active` and `episode_start`, a byte per lane each, mean nothing to a policy without memory.
    frame = lanes * (2 + np.dtype(seen["dtype"]).itemsize * policy.shape.observations)
    while data := sys.stdin.buffer.read(frame):
        if len(data) < frame:
            raise EOFError(f"stdin ended after {len(data)} of the {frame} bytes of a frame")
        observations = flat(np.frombuffer(data, seen["dtype"], offset=2 * lanes), lanes)
        actions = policy.playable(policy.choose(observations, mode))
        answers.write(actions.astype(taken["dtype"]).tobytes())
        answers.flush()


def main(arguments: list[str]) -> int:
    config = json.loads(Path("config.json").read_text())
    try:
        if arguments == ["act"]:
            act(Path(config["out"]))
        elif arguments:
            raise Refused(f"arguments must be none or 'act', got {arguments}")
        else:
            budget = Budget(config["budget_seconds"], config["budget_steps"])
            signal.signal(signal.SIGTERM, budget.stop)
            train(config, budget)
    except Refused as refusal:
        sys.stderr.write(f"{sys.argv[0]}: {refusal}\n")
        return 2
    except Cancelled:
        return CANCELLED
    return 0


if __name__ == "__main__":
    status = main(sys.argv[1:])
    gc.freeze()  # spares the end a last search for garbage among all that torch is made of: most of a second
    sys.exit(status)

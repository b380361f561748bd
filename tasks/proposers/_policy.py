"""A policy network and PPO (Schulman and others 2017, arXiv:1707.06347) in plain numpy, for `learned`.

The network has one hidden layer of tanh units, a head for the actions and one for the value of a state; standard
deviations do not depend on the state. An action has two parts, either of which may be empty: `steps`, numbers from
independent Gaussians, and `picks`, one category out of each of several groups. Gradients are written out by hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Whole = NDArray[np.int64]
Weights = Mapping[str, Array]
"""The parameters of a network, or something in their shapes, such as gradients."""
HALF_LOG_TWO_PI = 0.5 * float(np.log(2 * np.pi))


@dataclass(frozen=True)
class Shape:
    """How large a network's input and its actions are."""

    features: int
    steps: int
    """Numbers of an action."""
    groups: tuple[int, ...]
    """How many categories each group has."""

    @property
    def outputs(self) -> int:
        """The means of the steps, then the logits of every group."""
        return self.steps + sum(self.groups)

    @property
    def logits(self) -> tuple[slice, ...]:
        """Where the logits of each group stand among the outputs."""
        ends = np.cumsum((self.steps, *self.groups)).tolist()
        return tuple(slice(start, end) for start, end in pairwise(ends))


@dataclass(frozen=True)
class Batch:
    """States and what was done in them, a row each."""

    states: Array
    """n x features."""
    leaning: Array
    """n x outputs: added to what the network says, so that an untrained one does what it leans to."""
    steps: Array
    """n x steps."""
    picks: Whole
    """n x groups."""


@dataclass(frozen=True)
class Settings:
    """Of PPO."""

    learning_rate: float
    clip: float = 0.2
    epochs: int = 8
    value_coefficient: float = 0.5
    entropy_coefficient: float = 0.01
    longest_gradient: float = 0.5
    """The length to which a longer gradient is cut."""


def fresh(shape: Shape, hidden: int, deviation: float, rng: np.random.Generator) -> dict[str, Array]:
    """An untrained network: its heads say next to nothing, and its Gaussians have this standard deviation."""
    return {
        "hidden": rng.normal(size=(shape.features, hidden)) / np.sqrt(shape.features),
        "hidden_bias": np.zeros(hidden),
        "action": 0.01 * rng.normal(size=(hidden, shape.outputs)) / np.sqrt(hidden),
        "action_bias": np.zeros(shape.outputs),
        "log_deviation": np.full(shape.steps, np.log(deviation)),
        "value": np.zeros((hidden, 1)),
        "value_bias": np.zeros(1),
    }


def forward(weights: Weights, batch: Batch) -> tuple[Array, Array, Array]:
    """Hidden units (n x hidden), means and logits (n x outputs), and values (n)."""
    hidden = np.tanh(batch.states @ weights["hidden"] + weights["hidden_bias"])
    outputs = hidden @ weights["action"] + weights["action_bias"] + batch.leaning
    return hidden, outputs, (hidden @ weights["value"] + weights["value_bias"])[:, 0]


def log_probabilities(shape: Shape, weights: Weights, outputs: Array, batch: Batch) -> Array:
    """The log density of every action: n."""
    log_deviation = weights["log_deviation"]
    away = (batch.steps - outputs[:, : shape.steps]) * np.exp(-log_deviation)
    total = (-0.5 * away**2 - log_deviation - HALF_LOG_TWO_PI).sum(axis=1)
    for where, picks in zip(shape.logits, batch.picks.T, strict=True):
        total = total + log_softmax(outputs[:, where])[np.arange(len(picks)), picks]
    return np.asarray(total)


def log_softmax(logits: Array) -> Array:
    """Log probabilities of the categories: n x categories."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def loss_and_gradients(
    shape: Shape,
    weights: Weights,
    batch: Batch,
    before: Array,
    advantages: Array,
    returns: Array,
    settings: Settings,
) -> tuple[float, dict[str, Array]]:
    """PPO's loss, and its gradient by every weight.

    Args:
        before: Log probabilities of the actions under the policy as it was before the update: n.
        advantages: n.
        returns: What the values should have been: n.
    """
    hidden, outputs, values = forward(weights, batch)
    ratio = np.exp(log_probabilities(shape, weights, outputs, batch) - before)
    plain, clipped = ratio * advantages, np.clip(ratio, 1 - settings.clip, 1 + settings.clip) * advantages
    entropy, by_entropy = _entropy(shape, weights, outputs)
    misses = values - returns
    loss = (
        -np.minimum(plain, clipped).mean()
        + settings.value_coefficient * 0.5 * (misses**2).mean()
        - settings.entropy_coefficient * entropy
    )

    # Where the clipped term is the smaller one, it does not depend on the policy, and the gradient is 0.
    by_log = np.where(plain <= clipped, -plain, 0.0) / len(before)
    deviation = np.exp(weights["log_deviation"])
    away = (batch.steps - outputs[:, : shape.steps]) / deviation
    by_outputs = -settings.entropy_coefficient * by_entropy
    by_outputs[:, : shape.steps] += by_log[:, None] * away / deviation
    for where, picks in zip(shape.logits, batch.picks.T, strict=True):
        chosen = np.eye(where.stop - where.start)[picks]
        by_outputs[:, where] += by_log[:, None] * (chosen - np.exp(log_softmax(outputs[:, where])))
    by_values = settings.value_coefficient * misses[:, None] / len(before)
    by_hidden = (by_outputs @ weights["action"].T + by_values @ weights["value"].T) * (1 - hidden**2)
    return float(loss), {
        "hidden": batch.states.T @ by_hidden,
        "hidden_bias": by_hidden.sum(axis=0),
        "action": hidden.T @ by_outputs,
        "action_bias": by_outputs.sum(axis=0),
        "log_deviation": (by_log[:, None] * (away**2 - 1)).sum(axis=0) - settings.entropy_coefficient,
        "value": hidden.T @ by_values,
        "value_bias": by_values.sum(axis=0),
    }


def _entropy(shape: Shape, weights: Weights, outputs: Array) -> tuple[float, Array]:
    """The actions' mean entropy, and its gradient by the outputs; by every log deviation it is 1."""
    entropy = float((weights["log_deviation"] + 0.5 + HALF_LOG_TWO_PI).sum())
    gradient = np.zeros_like(outputs)
    for where in shape.logits:
        logs = log_softmax(outputs[:, where])
        own = -(np.exp(logs) * logs).sum(axis=1, keepdims=True)
        entropy += float(own.mean())
        gradient[:, where] = -np.exp(logs) * (logs + own) / len(outputs)
    return entropy, gradient


class Learner:
    """A network and its optimiser, Adam."""

    def __init__(self, shape: Shape, weights: Weights, settings: Settings) -> None:
        self.shape, self.weights, self.settings = shape, dict(weights), settings
        self.updates = 0
        self._taken = 0
        self._first = {name: np.zeros_like(value) for name, value in weights.items()}
        self._second = {name: np.zeros_like(value) for name, value in weights.items()}

    def update(self, batch: Batch, rewards: Sequence[float]) -> None:
        """Some epochs of PPO on these trials, each a step of its own with its reward as the return.

        The ratio is to the policy as it is now, whoever took the action, so that none of its probabilities moves far
        in one update. An action that an even draw would sooner have taken than the policy counts for less: a point
        far off says little about the next step, and would pull the hardest.
        """
        _, outputs, values = forward(self.weights, batch)
        before = log_probabilities(self.shape, self.weights, outputs, batch)
        returns = np.array(rewards)
        advantages = returns - values
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        even = -float(np.log(self.shape.groups).sum())  # of scales from 0 to 1 the log density is 0
        advantages *= np.exp(np.minimum(before - even, 0.0))
        for _ in range(self.settings.epochs):
            _, gradients = loss_and_gradients(
                self.shape, self.weights, batch, before, advantages, returns, self.settings
            )
            self._descend(gradients)
        self.updates += 1

    def _descend(self, gradients: Weights) -> None:
        length = float(np.sqrt(sum((gradient**2).sum() for gradient in gradients.values())))
        cut = min(1.0, self.settings.longest_gradient / (length + 1e-8))
        self._taken += 1
        for name, gradient in gradients.items():
            self._first[name] += 0.1 * (cut * gradient - self._first[name])
            self._second[name] += 0.001 * ((cut * gradient) ** 2 - self._second[name])
            mean = self._first[name] / (1 - 0.9**self._taken)
            square = self._second[name] / (1 - 0.999**self._taken)
            self.weights[name] = self.weights[name] - self.settings.learning_rate * mean / (
                np.sqrt(square) + 1e-8
            )

    def draw(self, state: Array, leaning: Array, rng: np.random.Generator) -> tuple[Array, Whole]:
        """An action of the policy in a state: steps, picks."""
        nothing = np.zeros((1, self.shape.steps)), np.zeros((1, len(self.shape.groups)), dtype=np.int64)
        _, outputs, _ = forward(self.weights, Batch(state[None], leaning[None], *nothing))
        steps = rng.normal(outputs[0, : self.shape.steps], np.exp(self.weights["log_deviation"]))
        shares = [np.exp(log_softmax(outputs[:, where]))[0] for where in self.shape.logits]
        return steps, np.array([rng.choice(len(share), p=share) for share in shares], dtype=np.int64)

"""Learned: a policy network over the space, trained by PPO (Schulman and others 2017, arXiv:1707.06347) on the trials.

    state    the champion's point
    action   a point: a Gaussian on every scale and one category of every other choice, both around the champion's
    reward   the effect on top of the champion of that time, against the noise between runs and squashed, so that a
             lucky score counts no more than a good one; a crash is a loss

Every trial is an episode of one step, so nothing is discounted. No weights are kept: at each call the network begins
anew from the campaign's seed and replays all trials, whoever proposed them, those of earlier campaigns first.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.distributions import Independent, Normal, OneHotCategorical

from tasks.proposers._numeric import Numeric
from tasks.proposing.axes import Axis, Point, params_of, point_of, varied
from tasks.proposing.brief import Brief, Suggestion
from tasks.proposing.observations import ASKS, Observations
from tasks.stats.champion import champion_estimate, is_barred, utility
from tasks.trial import History, Trial, best

DEVIATION = 0.2  # standard deviation of an untrained policy's Gaussians, as a share of each scale
STAY = 1.5  # logit of the champion's category: of two, an untrained policy takes it four times in five
SQUASH = 3.0  # run standard deviations that make an effect a large one
CRASH, CANCELLED = -0.5, -0.3  # rewards without a score; a cancelled trial was clearly behind
HIDDEN, LEARNING_RATE = 32, 1e-3  # units of the hidden layer; Adam's step
UPDATE_EVERY, BATCH = 4, 64  # trials between two updates, and the newest ones that each of these sees
REPLAYED = 400  # trials of a campaign that are replayed, the newest ones, which bounds the cost of a call
CLIP, EPOCHS, ENTROPY, GRADIENT_NORM = 0.2, 8, 0.01, 0.5  # of PPO; ENTROPY is a weight in the loss

Step = tuple[Tensor, Tensor, float]
"""A trial as the policy learns from it: the champion's action then, its own, and its reward."""


class Learned(Numeric):
    """A Sobol design first, or the champions of earlier campaigns; then draws of the policy. No point twice."""

    title = "the PPO policy"
    learns_from_imported = False  # its rewards need a campaign's champion and the noise of its runs
    startup: int = Field(default=8, ge=1, le=1_000)
    """Points of the design before the policy takes over; the design goes on while no trial has a score."""

    def propose(self, brief: Brief) -> Suggestion | None:
        seen = Observations.of(brief.space, brief.history, brief.pending)
        champions = filter(None, map(best, reversed(campaigns(brief.earlier))))
        points = ((champion, point_of(seen.axes, champion.proposal.params)) for champion in champions)
        new = [(champion, point) for champion, point in points if point and point not in seen.tried]
        if seen.made < self.startup and len(brief.refusals) < len(new):
            champion, point = new[len(brief.refusals)]
            why = f"the champion of an earlier campaign, trial {champion.number} there"
            return Suggestion(params_of(seen.axes, point), why)
        return super().propose(brief)

    def is_warm(self, brief: Brief) -> bool:
        return bool(brief.earlier)

    def answers(self, seen: Observations, brief: Brief) -> Iterator[Point]:
        policy, champion = self.trained(brief)
        for action in policy.draw(champion, ASKS, brief.seed):
            yield policy.encoding.point(action)

    def trained(self, brief: Brief) -> tuple[Policy, Tensor]:
        """The policy after all trials of the brief, and the champion's action."""
        torch.set_num_threads(1)  # how many there are must not decide what is proposed
        encoding, steps = Encoding(varied(brief.space)), list[Step]()
        policy = Policy(encoding, torch.Generator().manual_seed(brief.campaign_seed))
        for part in (*campaigns(brief.earlier), brief.history):
            champion = encoding.start()
            for place, (trial, reward) in enumerate(zip(part, rewards(part), strict=True)):
                point = point_of(encoding.axes, trial.proposal.params)
                if point is None:
                    continue
                action = encoding.action(point)
                if trial.number > 0 and place >= len(part) - REPLAYED:
                    steps.append((champion, action, reward))
                    if len(steps) % UPDATE_EVERY == 0:
                        policy.update(steps[-BATCH:])
                champion = action if trial.verdict.kind == "keep" else champion
        return policy, champion


def campaigns(earlier: History) -> tuple[History, ...]:
    """The trials of each campaign; trial 0, its baseline, begins it."""
    starts = [place for place, trial in enumerate(earlier) if trial.number == 0 or place == 0]
    return tuple(earlier[start:end] for start, end in pairwise([*starts, len(earlier)]))


def rewards(history: History) -> tuple[float, ...]:
    """The reward of each trial, -1 to 1; as good as the champion of that time is 0."""
    level: float | None = None
    effects: list[float | None] = []
    for trial in history:
        scored = trial.score.value is not None
        effects.append(trial.score.utility - level if scored and level is not None else None)
        if trial.verdict.kind == "keep":
            level = statistics.fmean(utility(history, trial.number))
    estimate = champion_estimate(history)
    sizes = [abs(effect) for effect in effects if effect]
    # Where hardly any noise was seen, an effect is large or small beside the campaign's others.
    scale = max(SQUASH * estimate.sd if estimate else 0.0, statistics.median(sizes or [1.0]))

    def reward(trial: Trial, effect: float | None) -> float:
        if trial.verdict.kind == "crash" or is_barred(trial):
            return CRASH
        if trial.verdict.kind == "cancelled":
            return CANCELLED
        return 0.0 if effect is None else math.tanh(effect / scale)

    return tuple(map(reward, history, effects))


@dataclass(frozen=True)
class Encoding:
    """A space's points as actions: a number from 0 to 1 for every scale, then one-hot categories of other choices."""

    axes: tuple[Axis, ...]

    @property
    def widths(self) -> list[int]:
        """How many numbers of an action are scales, and how many each other choice takes."""
        others = [len(axis.choices) for axis in self.axes if not axis.is_ordered]
        return [len(self.axes) - len(others), *others]

    def start(self) -> Tensor:
        """In place of a champion's action: the middle, and no preference."""
        scales, *others = self.widths
        return torch.tensor([0.5] * scales + [0.0] * sum(others), dtype=torch.float64)

    def action(self, point: Point) -> Tensor:
        placed = list(zip(self.axes, point, strict=True))
        numbers = [axis.fraction(number) for axis, number in placed if axis.is_ordered]
        others = [(axis, number) for axis, number in placed if not axis.is_ordered]
        numbers += [float(rank == number) for axis, number in others for rank in range(len(axis.choices))]
        return torch.tensor(numbers, dtype=torch.float64)

    def point(self, action: Tensor) -> Point:
        """The point of an action; beyond an end of a scale it is mirrored back, so that ends draw no crowd."""
        steps, *picks = torch.split(action, self.widths)
        inside = iter((1 - (1 - steps % 2).abs()).clamp(max=math.nextafter(1.0, 0.0)).tolist())
        ranks = iter([int(pick.argmax()) for pick in picks])
        return tuple(axis.at(next(inside)) if axis.is_ordered else next(ranks) for axis in self.axes)


class Policy(nn.Module):
    """A network with one hidden layer of tanh units, and its Adam. Its outputs are added to the champion's action."""

    def __init__(self, encoding: Encoding, rng: torch.Generator) -> None:
        super().__init__()
        self.encoding = encoding
        size = sum(encoding.widths)
        weights = torch.randn(size, HIDDEN, dtype=torch.float64, generator=rng) / math.sqrt(max(size, 1))
        heads = 0.01 * torch.randn(HIDDEN, size, dtype=torch.float64, generator=rng) / math.sqrt(HIDDEN)
        self.hidden, self.heads = nn.Parameter(weights), nn.Parameter(heads)
        self.hidden_bias = nn.Parameter(weights.new_zeros(HIDDEN))
        self.heads_bias = nn.Parameter(weights.new_zeros(size))
        self.log_deviation = nn.Parameter(weights.new_full((encoding.widths[0],), math.log(DEVIATION)))
        self.optimizer = torch.optim.Adam(self.parameters(), lr=LEARNING_RATE)

    def forward(self, champions: Tensor) -> list[Any]:
        """The distributions of an action's parts beside n champions (n x size)."""
        scales = self.encoding.widths[0]
        untrained = torch.cat([champions[:, :scales], STAY * champions[:, scales:]], dim=1)
        heads = torch.tanh((2 * champions - 1) @ self.hidden + self.hidden_bias) @ self.heads + self.heads_bias
        means, *logits = torch.split(heads + untrained, self.encoding.widths, dim=1)
        gaussian: Any = Independent(Normal(means, self.log_deviation.exp()), 1)
        return [gaussian, *(OneHotCategorical(logits=group) for group in logits)]

    def draw(self, champion: Tensor, count: int, seed: int) -> Tensor:
        """Actions beside a champion: count x size."""
        with torch.no_grad(), torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            return torch.cat([part.sample((count,)).squeeze(1) for part in self(champion[None])], dim=1)

    def update(self, steps: Sequence[Step]) -> None:
        """Some epochs of PPO.

        The ratio is to the policy as it is now, whoever took the action, so that no probability moves far in one
        update. An action that an even draw would sooner have taken than the policy counts for less: a point far off
        says little about the next step, and would pull the hardest.
        """
        champions, actions = (torch.stack(column) for column in zip(*(step[:2] for step in steps), strict=True))
        advantages = torch.tensor([reward for _, _, reward in steps], dtype=torch.float64)
        advantages = (advantages - advantages.mean()) / (advantages.std(correction=0) + 1e-8)
        with torch.no_grad():
            before = self._log_probability(self(champions), actions)
            even = -sum(map(math.log, self.encoding.widths[1:]))  # on scales from 0 to 1 the log density is 0
            advantages *= (before - even).clamp(max=0).exp()
        for _ in range(EPOCHS):
            parts = self(champions)
            ratio = (self._log_probability(parts, actions) - before).exp()
            surrogate = torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages).mean()
            loss = -surrogate - ENTROPY * sum(part.entropy().mean() for part in parts)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.parameters(), GRADIENT_NORM)
            self.optimizer.step()

    def _log_probability(self, parts: Sequence[Any], actions: Tensor) -> Tensor:
        pieces = torch.split(actions, self.encoding.widths, dim=1)
        return torch.stack([part.log_prob(piece) for part, piece in zip(parts, pieces, strict=True)]).sum(dim=0)

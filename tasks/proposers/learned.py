"""Learned: a policy network over the space, trained by PPO (Schulman and others 2017, arXiv:1707.06347) on the trials.

    state    the champion's point
    action   a Gaussian around the champion's place on every scale, that of a choice the order of its values
    reward   the effect on top of the champion of that time, against the noise between runs and squashed, so that a
             lucky score counts no more than a good one; a crash is a loss

Every trial is an episode of one step, so nothing is discounted. No weights are kept: at each call the network begins
anew from the campaign's seed and replays all trials, whoever proposed them, those of earlier campaigns first.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.distributions import Independent, Normal

from environments.space import Space
from tasks.proposers._numeric import Numeric
from tasks.proposing.brief import Brief
from tasks.proposing.points import ASKS, Observations, Point, places_of, point_of, points_at, varied
from tasks.stats.champion import is_barred, run_sd, utility
from tasks.trial import History, Trial, best

DEVIATION = 0.2  # standard deviation of an untrained policy's Gaussians, as a share of each scale
OF_A_CHOICE = 0.5  # the same where neighbours on the scale need not be alike
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
    starts_warm = True
    startup: int = Field(default=8, ge=1, le=1_000)
    """Points of the design before the policy takes over; the design goes on while no trial has a score."""

    def starts(self, space: Space, brief: Brief) -> dict[str, tuple[Point, str]]:
        made: dict[str, tuple[Point, str]] = {}
        for champion in filter(None, map(best, reversed(campaigns(brief.earlier)))):
            if point := point_of(space, champion.proposal.params):
                why = f"the champion of an earlier campaign, trial {champion.number} there"
                made[repr(point)] = point, why
        return made | super().starts(space, brief)

    def answers(self, seen: Observations, brief: Brief) -> Iterator[Point]:
        policy, champion = self.trained(brief)
        actions = policy.draw(champion, ASKS, brief.seed)
        # Beyond an end of a scale an action is mirrored back, so that ends draw no crowd.
        return points_at(seen.space, (1 - (1 - actions % 2).abs()).tolist())

    def trained(self, brief: Brief) -> tuple[Policy, Tensor]:
        """The policy after all trials of the brief, and the champion's action."""
        torch.set_num_threads(1)  # how many there are must not decide what is proposed
        space, steps = varied(brief.space), list[Step]()
        deviations = [DEVIATION if parameter.is_ordered else OF_A_CHOICE for parameter in space.values()]
        policy = Policy(deviations, torch.Generator().manual_seed(brief.campaign_seed))
        for part in (*campaigns(brief.earlier), brief.history):
            champion = torch.full((len(space),), 0.5, dtype=torch.float64)
            for place, (trial, reward) in enumerate(zip(part, rewards(part), strict=True)):
                point = point_of(space, trial.proposal.params)
                if point is None:
                    continue
                action = torch.tensor(places_of(space, point), dtype=torch.float64)
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
    sizes = [abs(effect) for effect in effects if effect]
    # Where hardly any noise was seen, an effect is large or small beside the campaign's others.
    scale = max(SQUASH * run_sd(history), statistics.median(sizes or [1.0]))

    def reward(trial: Trial, effect: float | None) -> float:
        if trial.verdict.kind == "crash" or is_barred(trial):
            return CRASH
        if trial.verdict.kind == "cancelled":
            return CANCELLED
        return 0.0 if effect is None else math.tanh(effect / scale)

    return tuple(map(reward, history, effects))


class Policy(nn.Module):
    """A network with one hidden layer of tanh units, and its Adam. Its outputs are added to the champion's action."""

    def __init__(self, deviations: Sequence[float], rng: torch.Generator) -> None:
        super().__init__()
        size = len(deviations)
        weights = torch.randn(size, HIDDEN, dtype=torch.float64, generator=rng) / math.sqrt(size)
        heads = 0.01 * torch.randn(HIDDEN, size, dtype=torch.float64, generator=rng) / math.sqrt(HIDDEN)
        self.hidden, self.heads = nn.Parameter(weights), nn.Parameter(heads)
        self.hidden_bias = nn.Parameter(weights.new_zeros(HIDDEN))
        self.heads_bias = nn.Parameter(weights.new_zeros(size))
        self.log_deviation = nn.Parameter(weights.new_tensor(deviations).log())
        self.optimizer = torch.optim.Adam(self.parameters(), lr=LEARNING_RATE)

    def forward(self, champions: Tensor) -> Any:
        """The distribution of the action beside each of n champions (n x size)."""
        heads = torch.tanh((2 * champions - 1) @ self.hidden + self.hidden_bias) @ self.heads + self.heads_bias
        return Independent(Normal(champions + heads, self.log_deviation.exp()), 1)

    def draw(self, champion: Tensor, count: int, seed: int) -> Tensor:
        """Actions beside a champion: count x size."""
        with torch.no_grad(), torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            actions: Tensor = self(champion).sample((count,))
        return actions

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
            before = self(champions).log_prob(actions)
            advantages *= before.clamp(max=0).exp()  # of an even draw on scales from 0 to 1 the log density is 0
        for _ in range(EPOCHS):
            policy = self(champions)
            ratio = (policy.log_prob(actions) - before).exp()
            surrogate = torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages).mean()
            loss = -surrogate - ENTROPY * policy.entropy().mean()
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.parameters(), GRADIENT_NORM)
            self.optimizer.step()

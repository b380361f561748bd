"""Learned: a policy network over the space, trained by PPO (Schulman and others 2017, arXiv:1707.06347) on the trials.

    state    the champion's point; the last trials as seen from there, with rewards and verdicts; the budget left
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
from typing import Any, NamedTuple

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

RECENT = 3  # trials that the state holds
DEVIATION = 0.2  # standard deviation of an untrained policy's Gaussians, as a share of each scale
STAY = 1.5  # logit of the champion's category: of two, an untrained policy takes it four times in five
SQUASH = 3.0  # run standard deviations that make an effect a large one
CRASH, CANCELLED = -0.5, -0.3  # rewards without a score; a cancelled trial was clearly behind
HIDDEN, LEARNING_RATE = 32, 1e-3  # units of the hidden layer; Adam's step
UPDATE_EVERY, BATCH = 4, 64  # trials between two updates, and the newest ones that each of these sees
REPLAYED = 400  # trials of a campaign that are replayed, the newest ones, which bounds the cost of a call
CLIP, EPOCHS, ENTROPY, GRADIENT_NORM = 0.2, 8, 0.01, 0.5  # of PPO; ENTROPY is a weight in the loss


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
        policy, now = self.trained(brief)
        for action in policy.draw(now, ASKS, brief.seed):
            yield now.encoding.point(action)

    def trained(self, brief: Brief) -> tuple[Policy, SearchState]:
        """The policy after all trials of the brief, and the state of its campaign."""
        torch.set_num_threads(1)  # how many there are must not decide what is proposed
        encoding, left = Encoding(varied(brief.space)), brief.left.trials
        rng = torch.Generator().manual_seed(brief.campaign_seed)
        policy, steps = Policy(encoding, rng), list[Step]()
        parts = [(part, float(len(part))) for part in campaigns(brief.earlier)]
        for part, planned in (*parts, (brief.history, None if left is None else len(brief.history) + left)):
            state = SearchState(encoding, planned)
            for place, (trial, reward) in enumerate(zip(part, rewards(part), strict=True)):
                point = point_of(encoding.axes, trial.proposal.params)
                action = None if point is None else encoding.action(point)
                if action is not None and trial.number > 0 and place >= len(part) - REPLAYED:
                    steps.append(Step(state.features, state.leaning, action, reward))
                    if len(steps) % UPDATE_EVERY == 0:
                        policy.update(steps[-BATCH:])
                state.add(trial, action, reward)
        return policy, state


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

    def action(self, point: Point) -> Tensor:
        placed = list(zip(self.axes, point, strict=True))
        numbers = [axis.fraction(number) for axis, number in placed if axis.is_ordered]
        for axis, number in placed:
            if not axis.is_ordered:
                numbers += [float(rank == number) for rank in range(len(axis.choices))]
        return torch.tensor(numbers, dtype=torch.float64)

    def point(self, action: Tensor) -> Point:
        """The point of an action; beyond an end of a scale it is mirrored back, so that ends draw no crowd."""
        steps, *picks = torch.split(action, self.widths)
        inside = iter((1 - (1 - steps % 2).abs()).clamp(max=math.nextafter(1.0, 0.0)).tolist())
        ranks = iter([int(pick.argmax()) for pick in picks])
        return tuple(axis.at(next(inside)) if axis.is_ordered else next(ranks) for axis in self.axes)


class SearchState:
    """The state of a campaign when a trial is proposed; `planned`: trials in all, None where nothing limits them."""

    def __init__(self, encoding: Encoding, planned: float | None) -> None:
        self.encoding, self.planned, self.decided = encoding, planned, 0
        scales, *others = encoding.widths
        self.champion = torch.tensor([0.5] * scales + [0.0] * sum(others), dtype=torch.float64)
        self.recent: list[tuple[Tensor, Tensor]] = []

    def add(self, trial: Trial, action: Tensor | None, reward: float) -> None:
        kind = trial.verdict.kind
        self.decided += 1
        if action is None:
            return
        if trial.number > 0:
            outcome = torch.tensor([reward, kind == "keep", kind == "crash"], dtype=torch.float64)
            self.recent = [(action, outcome), *self.recent][:RECENT]
        if kind == "keep":
            self.champion = action

    @property
    def leaning(self) -> Tensor:
        """Means and logits of an untrained policy: the champion's; without one the middle, and no preference."""
        scales = self.encoding.widths[0]
        return torch.cat([self.champion[:scales], STAY * self.champion[scales:]])

    @property
    def features(self) -> Tensor:
        """The network's input."""
        missing = (RECENT - len(self.recent)) * (len(self.champion) + 3)
        left = 0.5 if self.planned is None else 1 - self.decided / max(self.planned, self.decided, 1)
        recent = [part for action, outcome in self.recent for part in (action - self.champion, outcome)]
        budget = torch.tensor([0.0] * missing + [left, min(self.decided / 50, 1)], dtype=torch.float64)
        return torch.cat([2 * self.champion - 1, *recent, budget])


class Step(NamedTuple):
    """A trial as the policy learns from it."""

    features: Tensor
    leaning: Tensor
    action: Tensor
    reward: float


class Policy(nn.Module):
    """A network with one hidden layer of tanh units, a head for actions and one for the value of a state, and its Adam.

    Its outputs are added to the leaning; standard deviations do not depend on the state.
    """

    def __init__(self, encoding: Encoding, rng: torch.Generator) -> None:
        super().__init__()
        self.widths = encoding.widths
        size = sum(self.widths)
        features = SearchState(encoding, None).features.numel()
        weights = torch.randn(features, HIDDEN, dtype=torch.float64, generator=rng) / math.sqrt(features)
        heads = 0.01 * torch.randn(HIDDEN, size + 1, dtype=torch.float64, generator=rng) / math.sqrt(HIDDEN)
        self.hidden, self.heads = nn.Parameter(weights), nn.Parameter(heads)
        self.hidden_bias = nn.Parameter(weights.new_zeros(HIDDEN))
        self.heads_bias = nn.Parameter(weights.new_zeros(size + 1))
        self.log_deviation = nn.Parameter(weights.new_full((self.widths[0],), math.log(DEVIATION)))
        self.optimizer = torch.optim.Adam(self.parameters(), lr=LEARNING_RATE)

    def forward(self, features: Tensor, leaning: Tensor) -> tuple[list[Any], Tensor]:
        """The distributions of an action's parts in n states, and the values of these (n)."""
        heads = torch.tanh(features @ self.hidden + self.hidden_bias) @ self.heads + self.heads_bias
        means, *logits = torch.split(heads[:, :-1] + leaning, self.widths, dim=1)
        scales: Any = Independent(Normal(means, self.log_deviation.exp()), 1)
        return [scales, *(OneHotCategorical(logits=group) for group in logits)], heads[:, -1]

    def draw(self, state: SearchState, count: int, seed: int) -> Tensor:
        """Actions in a state: count x outputs."""
        with torch.no_grad(), torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            parts, _ = self(state.features[None], state.leaning[None])
            return torch.cat([part.sample((count,)).squeeze(1) for part in parts], dim=1)

    def update(self, steps: Sequence[Step]) -> None:
        """Some epochs of PPO.

        The ratio is to the policy as it is now, whoever took the action, so that no probability moves far in one
        update. An action that an even draw would sooner have taken than the policy counts for less: a point far off
        says little about the next step, and would pull the hardest.
        """
        *columns, rewards = zip(*steps, strict=True)
        features, leaning, actions = map(torch.stack, columns)
        returns = torch.tensor(rewards, dtype=torch.float64)
        with torch.no_grad():
            parts, values = self(features, leaning)
            before = self._log_probability(parts, actions)
            advantages = returns - values
            advantages = (advantages - advantages.mean()) / (advantages.std(correction=0) + 1e-8)
            even = -sum(map(math.log, self.widths[1:]))  # on scales from 0 to 1 the log density is 0
            advantages *= (before - even).clamp(max=0).exp()
        for _ in range(EPOCHS):
            parts, values = self(features, leaning)
            ratio = (self._log_probability(parts, actions) - before).exp()
            surrogate = torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages).mean()
            entropy = sum(part.entropy().mean() for part in parts)
            loss = 0.25 * ((values - returns) ** 2).mean() - surrogate - ENTROPY * entropy
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.parameters(), GRADIENT_NORM)
            self.optimizer.step()

    def _log_probability(self, parts: Sequence[Any], actions: Tensor) -> Tensor:
        pieces = torch.split(actions, self.widths, dim=1)
        return torch.stack([part.log_prob(piece) for part, piece in zip(parts, pieces, strict=True)]).sum(dim=0)

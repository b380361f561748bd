"""Learned: a policy network over the space, trained by PPO on the trajectory of trials.

    state    where the champion stands; the last trials as seen from there, with rewards and verdicts; the budget left
    action   a point: a Gaussian on every scale and one category of every other choice, both around the champion's
    reward   the effect on top of the champion of that time, against the noise between runs and squashed, so that a
             lucky score counts no more than a good one; a crash is a loss

Every trial is a step of its own, so nothing is discounted. No weights are kept: at each call the network begins anew
from the campaign's seed and meets all trials again, whoever proposed them, those of earlier campaigns first.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np
from pydantic import Field

from tasks.deciding.standing import goodness, standing
from tasks.proposers import Proposer
from tasks.proposers._axes import Axis, Point, params_of, point_of, untried, varied
from tasks.proposers._numeric import ASKS, Seen, design
from tasks.proposers._policy import Array, Batch, Learner, Settings, Shape, Whole, fresh
from tasks.proposing.brief import Brief, Suggestion
from tasks.trial import History, Trial, best

RECENT = 3
"""Trials that the state tells of."""
DEVIATION = 0.2
"""Of an untrained policy's Gaussians, as a part of each scale."""
STAY = 1.5
"""Added to the logit of the champion's category: of two, an untrained policy takes it four times in five."""
SQUASH = 3.0
"""Run standard deviations that make an effect a large one."""
CRASH, CANCELLED = -0.5, -0.3
"""Rewards of trials without a score. A cancelled one was a run standard deviation behind, or more."""
BATCH = 64
"""Trials that an update learns from, the newest ones."""
REPLAYED = 400
"""Trials of a campaign that are met again, the newest ones: what a call costs is bounded."""


class Learned(Proposer):
    """A Sobol design first, or the champions of earlier campaigns; then draws of the policy. No point twice."""

    startup: int = Field(default=8, ge=1, le=1_000)
    """Points of the design before the policy takes over; the design goes on while no trial has a score."""
    hidden: int = Field(default=32, ge=4, le=256)
    """Units of the network's hidden layer."""
    learning_rate: float = Field(default=1e-3, gt=0, le=0.1)
    update_every: int = Field(default=4, ge=1, le=100)
    """Trials between two updates."""

    def propose(self, brief: Brief) -> Suggestion | None:
        seen = Seen.of(brief.space, brief.history, brief.pending)
        spare = untried(seen.axes, seen.tried, brief.seed)
        if not seen.axes or spare is None:
            return None
        answers = self._answers(brief, seen)
        fresh_ones = ((point, why) for point, why in answers if point not in seen.tried)
        new_ones = islice(fresh_ones, len(brief.refusals), None)  # those before were refused
        point, why = next(new_ones, (spare, "a random point: what the policy drew was all tried before"))
        return Suggestion(params_of(seen.axes, point), why)

    def _answers(self, brief: Brief, seen: Seen) -> Iterator[tuple[Point, str]]:
        """Where to look next, the best first, and why."""
        known = [champion for part in campaigns(brief.earlier) if (champion := best(part))]
        if seen.made < self.startup:
            for champion in reversed(known):
                point = point_of(seen.axes, champion.proposal.params)
                if point is not None:
                    yield point, f"the champion of an earlier campaign, trial {champion.number} there"
        if not seen.scored or (seen.made < self.startup and not known):
            points = design(
                seen.axes, brief.history[0].runs[0].seed, 2 * (seen.made + self.startup + len(brief.refusals))
            )
            yield from ((point, f"Sobol point {seen.made + 1}") for point in points)
        learner, now = self.trained(brief)
        why = f"a draw of the policy after {learner.updates} updates, around the champion"
        rng = np.random.default_rng([brief.seed, len(brief.refusals)])
        for _ in range(ASKS):
            yield now.actions.point(*learner.draw(now.state, now.leaning, rng)), why

    def trained(self, brief: Brief) -> tuple[Learner, Campaign]:
        """The policy after all that the brief tells of, and where its campaign stands."""
        actions = Actions.of(varied(brief.space))
        rng = np.random.default_rng(brief.history[0].runs[0].seed)
        network = fresh(actions.shape, self.hidden, DEVIATION, rng)
        learner = Learner(actions.shape, network, Settings(self.learning_rate))
        met: list[Met] = []
        for part in campaigns(brief.earlier):
            self._follow(learner, Campaign(actions, len(part)), part, met)
        left = brief.left.trials
        now = Campaign(actions, None if left is None else len(brief.history) + left)
        self._follow(learner, now, brief.history, met)
        return learner, now

    def _follow(self, learner: Learner, campaign: Campaign, history: History, met: list[Met]) -> None:
        """Meet a campaign's trials in their order, with an update after every few."""
        old = len(history) - REPLAYED
        for place, (trial, reward) in enumerate(zip(history, rewards(history), strict=True)):
            action = campaign.actions.of_trial(trial)
            if action is not None and place >= old and trial.number > 0:
                met.append(Met(campaign.state, campaign.leaning, *action, reward))
                if len(met) % self.update_every == 0:
                    learner.update(*batch_of(met[-BATCH:]))
            campaign.add(trial, action, reward)


def campaigns(earlier: History) -> tuple[History, ...]:
    """The trials of each campaign; its baseline, trial 0, begins it."""
    starts = [place for place, trial in enumerate(earlier) if trial.number == 0 or place == 0]
    return tuple(earlier[start:end] for start, end in pairwise([*starts, len(earlier)]))


def rewards(history: History) -> tuple[float, ...]:
    """What each trial was worth, -1 to 1: the champion of its time is 0."""
    level: float | None = None
    effects: list[float | None] = []
    for trial in history:
        own = trial.score.goodness if trial.score.value is not None else None
        effects.append(None if own is None or level is None else own - level)
        if trial.verdict.kind == "keep":
            level = statistics.fmean(goodness(history, trial.number))
    known = standing(history)
    sizes = [abs(effect) for effect in effects if effect]
    # Where hardly any noise is seen, effects are large or small as others of the campaign go.
    scale = max(SQUASH * known.sd if known else 0.0, statistics.median(sizes or [1.0]))
    return tuple(_reward(trial, effect, scale) for trial, effect in zip(history, effects, strict=True))


def _reward(trial: Trial, effect: float | None, scale: float) -> float:
    if trial.verdict.kind in ("crash", "cancelled"):
        return CRASH if trial.verdict.kind == "crash" else CANCELLED
    return 0.0 if effect is None else math.tanh(effect / scale)


Action = tuple[Array, Whole]
"""Where a point lies on every scale, 0 to 1, and the categories of the other choices."""


@dataclass(frozen=True)
class Actions:
    """A space's points as the actions of a policy."""

    axes: tuple[Axis, ...]
    scales: tuple[int, ...]
    """Places of the axes whose numbers have an order."""
    others: tuple[int, ...]
    shape: Shape

    @classmethod
    def of(cls, axes: tuple[Axis, ...]) -> Actions:
        scales = tuple(place for place, axis in enumerate(axes) if axis.is_ordered)
        others = tuple(place for place, axis in enumerate(axes) if not axis.is_ordered)
        groups = tuple(len(axes[place].choices) for place in others)
        coordinates = len(scales) + sum(groups)
        features = coordinates + RECENT * (coordinates + 3) + 2
        return cls(axes, scales, others, Shape(features, len(scales), groups))

    def of_trial(self, trial: Trial) -> Action | None:
        """None when the trial lies outside the space."""
        point = point_of(self.axes, trial.proposal.params)
        if point is None:
            return None
        steps = [self.axes[place].fraction(point[place]) for place in self.scales]
        return np.array(steps, dtype=float), np.array([point[place] for place in self.others], dtype=np.int64)

    def point(self, steps: Array, picks: Whole) -> Point:
        """The point of an action; what lies beyond an end of a scale is mirrored back, so that ends draw no crowd."""
        inside = np.minimum(1 - np.abs(1 - steps % 2), np.nextafter(1.0, 0.0)).tolist()
        numbers = {place: self.axes[place].at(step) for place, step in zip(self.scales, inside, strict=True)}
        numbers |= dict(zip(self.others, picks.tolist(), strict=True))
        return tuple(numbers[place] for place in range(len(self.axes)))

    def coordinates(self, action: Action) -> Array:
        """An action as numbers between 0 and 1, categories one-hot."""
        steps, picks = action
        hot = [np.eye(size)[pick] for size, pick in zip(self.shape.groups, picks, strict=True)]
        return np.concatenate([steps, *hot])


@dataclass
class Campaign:
    """Where a campaign stood when a trial was proposed."""

    actions: Actions
    planned: float | None
    """Trials in all, as far as that is known."""
    champion: Action | None = None
    recent: list[tuple[Array, list[float]]] = field(default_factory=list)
    """The last trials: coordinates, and reward, whether it was kept, whether it crashed."""
    decided: int = 0

    def add(self, trial: Trial, action: Action | None, reward: float) -> None:
        kind = trial.verdict.kind
        self.decided += 1
        if action is not None and trial.number > 0:
            outcome = [reward, float(kind == "keep"), float(kind == "crash")]
            self.recent = [(self.actions.coordinates(action), outcome), *self.recent][:RECENT]
        if action is not None and kind == "keep":
            self.champion = action

    @property
    def leaning(self) -> Array:
        """Means and logits of an untrained policy: the champion's, the middle and no preference without one."""
        shape = self.actions.shape
        leaning = np.zeros(shape.outputs)
        if self.champion is None:
            leaning[: shape.steps] = 0.5
            return leaning
        leaning[: shape.steps], picks = self.champion
        for where, pick in zip(shape.logits, picks, strict=True):
            leaning[where.start + pick] = STAY
        return leaning

    @property
    def state(self) -> Array:
        """What the policy sees: its features."""
        size = self.actions.shape.outputs
        here = np.full(size, 0.5) if self.champion is None else self.actions.coordinates(self.champion)
        parts = [2 * here - 1]
        for coordinates, outcome in self.recent:
            parts += [coordinates - here, np.array(outcome)]
        parts.append(np.zeros((RECENT - len(self.recent)) * (size + 3)))
        left = 0.5 if self.planned is None else 1 - self.decided / max(self.planned, self.decided, 1)
        parts.append(np.array([left, min(self.decided / 50, 1.0)]))
        return np.concatenate(parts)


class Met(NamedTuple):
    """A trial as the policy met it."""

    state: Array
    leaning: Array
    steps: Array
    picks: Whole
    reward: float


def batch_of(met: Sequence[Met]) -> tuple[Batch, list[float]]:
    """Trials as a batch, and their rewards."""
    states, leaning, steps, picks = (np.stack([one[part] for one in met]) for part in range(4))
    return Batch(states, leaning, steps, picks), [one.reward for one in met]

"""A Bayesian estimate of the champion's true mean score, from the trials of a campaign.

An edit builds on the champion, so its score informs about two unknowns: the champion's mean m, and the effect d of the
edit on top of it. An effect is a gain of u/2 + Exp(2u), zero, or a loss of Exp(3u). So m is tracked through all edits,
from the baseline's runs on; the champion's own score alone would be biased, since it was kept for being high.

Parameters are a point of a fixed landscape: what another point scores says nothing of the champion. A point that
becomes champion has the mean of its own runs; one that does not leaves the champion's as it was.

The standard deviation s of one training run and the unit u of effects are unknown, too: a bank of filters assumes one
pair each. Scores of edits and of reruns reweight them, as does the spread between the runs of one trial.

For a given pair everything is in closed form: a normal for m, an exponential for d, a normal for the run. After each
score the mixture is replaced by a normal of the same mean and variance. The shares of the three kinds of effects are
a fixed prior; they affect which trials are built on, never a certificate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
"""One number per pair (s, u) of the bank."""

GAIN, NULL, LOSS = 0.12, 0.38, 0.50
"""Prior shares of effects that are gains, zero and losses."""
COLLAPSE = 0.05
"""Share of runs of a known configuration that collapse, by Exp(3 s)."""
NOISES = np.exp(np.linspace(-2.4, 2.4, 17))
"""Noise s, in multiples of the first runs' standard deviation."""
EFFECTS = np.array([0.1, 0.2, 0.4, 0.8, 1.6, 4.0])
"""Effect unit u, as multiples of s."""

STRIDE = 100
CLIPPED = 3
"""So many equal first runs are no sign of no noise, but of a score that has an end. Where nothing is random two are
made (tasks/rules)."""


class Observation(NamedTuple):
    """One result, in utility (larger is better). A tuple, because long rows of them are hashed often."""

    kind: Literal["same", "kept", "left", "record", "point"]
    """`same`: another run of the champion. `kept`, `left`: an edit that became champion, or did not. `record`,
    `point`: the same of parameters."""
    value: float
    runs: int = 1
    """Training runs averaged in the value."""
    squares: float = 0.0
    """Sum of their squared differences from it."""


@dataclass(frozen=True)
class EffectEstimate:
    effect: float
    gains: float
    promise: float
    """Expected value of the gain part alone: what it adds if it is kept only when it is a gain."""


@dataclass(frozen=True)
class Estimate:
    """The estimate after some results. All values in utility."""

    noise: Array
    unit: Array
    mean: Array
    variance: Array
    weight: Array = field(repr=False)
    """Weights of the filters; they sum to 1."""

    @property
    def level(self) -> float:
        """Expected mean score of the champion."""
        return float(self.weight @ self.mean)

    @property
    def error(self) -> float:
        """Standard deviation of the posterior of that mean."""
        return math.sqrt(self.weight @ (self.variance + (self.mean - self.level) ** 2))

    @property
    def sd(self) -> float:
        """Standard deviation between training runs."""
        return math.exp(self.weight @ np.log(self.noise))

    def idea(self, value: float, runs: int = 1) -> EffectEstimate:
        """The effect estimated from a score that averages `runs` training runs."""
        look = _Look(self, value, runs)
        weight = look.after(self.weight)
        gains = look.shares[0]
        return EffectEstimate(
            float(weight @ look.effect), float(weight @ gains), float(weight @ (gains * look.parts[0][2]))
        )

    def worth_going_on(self, fraction: float) -> float:
        """The least promise at which a run should continue, at a check that costs `fraction` of a run.

        Continuing costs the rest of the run; stopping spends it on the next trial, which is checked as well. The
        threshold maximises the gain per run over all values that a check may show.
        """
        reach = math.sqrt(self.weight @ (self.variance + self.noise**2 + (8 * self.unit) ** 2))
        values = self.level + np.linspace(-1.5, 1.5, 61) * reach
        look = _Look(self, values[:, None], 1)
        joint = look.after(self.weight)
        chance = joint.sum(axis=1)
        promise = (joint * look.shares[0] * look.parts[0][2]).sum(axis=1) / np.maximum(chance, 1e-300)
        order = np.argsort(-promise)
        share = chance[order]
        rate = np.cumsum(share * promise[order]) / (fraction + (1 - fraction) * np.cumsum(share))
        return float((1 - fraction) * rate.max())

    def after(self, seen: Observation) -> Estimate:
        weight, mean, variance = self._point(seen) if seen.kind in ("record", "point") else self._result(seen)
        return Estimate(self.noise, self.unit, mean, variance, _spread(weight, self.noise, seen.runs - 1, seen.squares))

    def _point(self, seen: Observation) -> tuple[Array, Array, Array]:
        """Weight, mean and variance after a point: how far points lie apart says nothing of the noise."""
        if seen.kind == "point":
            return self.weight, self.mean, self.variance
        return self.weight, np.full_like(self.mean, seen.value), self.noise**2 / seen.runs

    def _result(self, seen: Observation) -> tuple[Array, Array, Array]:
        """The same after an edit, or another run of the champion."""
        look = (_Again if seen.kind == "same" else _Look)(self, seen.value, seen.runs)
        return look.after(self.weight), *(look.followed() if seen.kind == "kept" else look.remaining())


def first(values: tuple[float, ...], scale: float = 0.0) -> Estimate:
    """The estimate from the baseline's first runs (at least one, in utility).

    `scale`: a guess of the noise where a few are equal. A single run's is a guess that later results correct.
    """
    mean = math.fsum(values) / len(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    degrees = 0 if _is_clipped(values) else len(values) - 1
    tiny = max(abs(mean), 1.0) * 1e-9
    guess = scale or abs(mean) * 0.05
    centre = math.sqrt(squares / degrees) if degrees else guess
    noises, units = (axis.ravel() for axis in np.meshgrid(NOISES * max(centre, tiny), EFFECTS))
    weight = _spread(np.full_like(noises, 1 / noises.size), noises, degrees, squares)
    return Estimate(noises, units * noises, np.full_like(noises, mean), noises**2 / len(values), weight)


def estimate(values: tuple[float, ...], seen: Iterable[Observation]) -> Estimate:
    """The estimate after the baseline's first runs and all later results."""
    every = tuple(seen)
    scale = _scale(values, every)
    # A single run of a point that was left tells nothing: without such, long searches of parameters are short here.
    every = tuple(one for one in every if one.kind != "point" or one.runs > 1)
    for length in range(STRIDE, len(every), STRIDE):  # a long history must not recurse deeply
        _estimate(values, scale, every[:length])
    return _estimate(values, scale, every)


@lru_cache(maxsize=4096)
def _estimate(values: tuple[float, ...], scale: float, seen: tuple[Observation, ...]) -> Estimate:
    return _estimate(values, scale, seen[:-1]).after(seen[-1]) if seen else first(values, scale)


def _is_clipped(values: tuple[float, ...]) -> bool:
    """Whether first runs are so many and equal that they say nothing of the noise."""
    return len(values) >= CLIPPED and min(values) == max(values)


def _scale(values: tuple[float, ...], seen: Iterable[Observation]) -> float:
    """The first difference that was seen at all, where the first runs tell no noise; else 0."""
    if not _is_clipped(values):
        return 0.0
    apart = (math.sqrt(one.squares / (one.runs - 1)) if one.squares else abs(one.value - values[0]) for one in seen)
    return next((difference for difference in apart if difference), 0.0)


def _spread(weight: Array, noise: Array, degrees: int, squares: float) -> Array:
    """The weights after runs of one program that differ by so much among themselves."""
    if not degrees:
        return weight
    with np.errstate(divide="ignore"):
        return _normalised(np.log(weight) - degrees * np.log(noise) - squares / (2 * noise**2))


def _normalised(logarithms: Array) -> Array:
    weight = np.exp(logarithms - logarithms.max())
    return np.asarray(weight / weight.sum())


class _Look:
    """One trial's score, as every filter of the bank sees it."""

    def __init__(self, before: Estimate, value: float | Array, runs: int) -> None:
        self.before = before
        self.surprise = value - before.mean
        self.total = before.variance + before.noise**2 / runs
        self.trust = before.variance / self.total
        self.parts = self._parts()
        likely = np.stack([log + np.log(share) for share, log, _, _ in self.parts])
        most = likely.max(axis=0)
        self.evidence = most + np.log(np.exp(likely - most).sum(axis=0))
        self.shares = np.exp(likely - self.evidence)
        """Probability of each kind of effect, given the score: kinds x bank."""

    def _parts(self) -> list[tuple[float, Array, Array, Array]]:
        """Prior share, log density of the score, and mean and variance of the effect, for each kind."""
        unit, zero = self.before.unit, np.zeros_like(self.surprise)
        gain = _exponential(self.surprise - unit / 2, self.total, 2 * unit)
        loss = _exponential(-self.surprise, self.total, 3 * unit)
        return [
            (GAIN, gain[0], gain[1] + unit / 2, gain[2]),
            (NULL, _normal(self.surprise, self.total), zero, zero),
            (LOSS, loss[0], -loss[1], loss[2]),
        ]

    @property
    def effect(self) -> Array:
        return np.asarray(sum(p * part[2] for p, part in zip(self.shares, self.parts, strict=True)))

    def after(self, weight: Array) -> Array:
        with np.errstate(divide="ignore"):
            return _normalised(np.log(weight) + self.evidence)

    def followed(self) -> tuple[Array, Array]:
        """Mean and variance of the champion's mean, if the trial becomes champion."""
        return self._matched(self.trust * self.surprise, 1 - self.trust)

    def remaining(self) -> tuple[Array, Array]:
        """Mean and variance of the champion's mean, if it does not."""
        return self._matched(self.trust * self.surprise, -self.trust)

    def _matched(self, base: Array, slope: Array) -> tuple[Array, Array]:
        """Mean and variance over the kinds; in each the mean moves by base + slope * effect."""
        moves = np.stack([base + slope * part[2] for part in self.parts])
        mean = (self.shares * moves).sum(axis=0)
        within = np.stack([slope**2 * part[3] for part in self.parts]) + self.trust * (
            self.total - self.before.variance
        )
        variance = (self.shares * (within + (moves - mean) ** 2)).sum(axis=0)
        return self.before.mean + mean, variance


class _Again(_Look):
    """Another run of the champion itself: no effect, but possibly a collapse."""

    def _parts(self) -> list[tuple[float, Array, Array, Array]]:
        zero = np.zeros_like(self.before.unit)
        drop = _exponential(-self.surprise, self.total, 3 * self.before.noise)
        return [(1 - COLLAPSE, _normal(self.surprise, self.total), zero, zero), (COLLAPSE, drop[0], -drop[1], drop[2])]


def _normal(value: Array, variance: Array) -> Array:
    """Log density of a centred normal."""
    return np.asarray(-0.5 * (value**2 / variance + np.log(2 * np.pi * variance)))


def _exponential(value: Array, variance: Array, scale: Array) -> tuple[Array, Array, Array]:
    """Exp(scale) plus normal noise: log density of the sum, mean and variance of the exponential given it."""
    from scipy import special  # type: ignore[import-untyped]

    deviation = np.sqrt(variance)
    position = value / deviation - deviation / scale
    # Two forms of one density: the first loses precision far to the left, the second overflows far to the right.
    right = variance / (2 * scale**2) - value / scale + special.log_ndtr(position)
    tail = special.erfcx(-np.minimum(position, 0) / math.sqrt(2))
    left = -(value**2) / (2 * variance) + np.log(tail / 2)
    density = np.where(position < 0, left, right) - np.log(scale)
    far = math.sqrt(2 / math.pi) / tail
    beyond = np.maximum(position, 0)
    near = np.exp(-0.5 * beyond**2 - special.log_ndtr(beyond)) / math.sqrt(2 * math.pi)
    hazard = np.where(position < 0, far, near)
    mean = np.maximum(deviation * (position + hazard), 0.0)
    spread = np.clip(1 - hazard * (position + hazard), 1e-12, 1.0)
    return density, mean, variance * spread

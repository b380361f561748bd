"""One figure over several environments: the interquartile mean of normalised scores, with a stratified bootstrap.

After Agarwal et al., "Deep reinforcement learning at the edge of the statistical precipice" (2021, rliable): the mean
of the middle half of all runs, which neither one easy environment nor one lucky run decides, and the interval from
resampling the runs within each environment and arm.

Scores of two environments share no scale, so each is normalised first. If every environment states its `range`, the
worst possible score is 0 and the best is 1. Otherwise the unit is the environment's run sd (the standard deviation
between runs, pooled over both arms), and 0 is the mean of its baseline's runs. An environment counts the same however
many runs its certificate needed.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tasks.stats.certificate import Certificate
from tasks.stats.design import Arm
from tasks.stats.permutation import CONFIDENCE, pooled

RESAMPLES = 10_000
FEW = 8
"""With fewer runs of an arm in an environment, the interval is too narrow, as simulated."""
MIDDLE = (0.25, 0.75)
Unit = Literal["range", "run sd"]
Runs = tuple[tuple[float, ...], ...]
"""Normalised scores of an arm, by environment."""


@dataclass(frozen=True)
class BootstrapEstimate:
    value: float
    low: float
    high: float


Estimates = tuple[BootstrapEstimate, BootstrapEstimate, BootstrapEstimate]
"""Of the champion, of the baseline, and of their difference."""


@dataclass(frozen=True)
class Aggregate:
    """Champion and baseline over several environments other than the one of the search."""

    champion: int
    """The champion's trial."""
    budget: float
    environments: tuple[str, ...]
    unit: Unit
    champions: BootstrapEstimate | None = None
    """Interquartile mean of the champion's normalised scores."""
    baselines: BootstrapEstimate | None = None
    gain: BootstrapEstimate | None = None
    """Their difference; positive if the champion is better."""
    fewest: int = 0
    """Runs of the arm that had fewest in an environment."""
    reason: str = ""
    """Why there is no estimate; else empty."""


def aggregates(certificates: Iterable[Certificate]) -> tuple[Aggregate, ...]:
    """One for each champion and budget that has certificates in several other environments.

    The campaign's own environment is left out: the champion was chosen there.
    """
    groups: dict[tuple[int, float], list[Certificate]] = {}
    for one in newest(certificates):
        if one.conditions.changed is not None:
            groups.setdefault((one.champion, one.budget), []).append(one)
    return tuple(_over(group) for _, group in sorted(groups.items()) if len(group) > 1)


def newest(certificates: Iterable[Certificate]) -> tuple[Certificate, ...]:
    """The last certificate of each champion in each environment, with each budget; it has the runs of the earlier."""
    last = {(one.champion, one.elsewhere, one.environment, one.budget): one for one in certificates}
    return tuple(last.values())


def unit_of(certificates: Iterable[Certificate]) -> Unit:
    return "range" if all(one.conditions.range for one in certificates) else "run sd"


def scale(certificate: Certificate, unit: Unit) -> float:
    """Size of the unit in the environment; 0 if its runs do not differ."""
    if unit == "range":
        assert certificate.conditions.range, "it is stated"
        low, high = certificate.conditions.range
        return high - low
    spread = pooled([_utilities(certificate, arm) for arm in ("champion", "baseline")])
    return spread.sd if spread else 0.0


def interquartile_mean(values: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean of the middle half along the last axis; the weights sum to 1, and a value at an edge counts in part."""
    order = np.argsort(values, axis=-1)
    ends = np.cumsum(weights[order], axis=-1)
    inside = np.minimum(ends, MIDDLE[1]) - np.maximum(ends - weights[order], MIDDLE[0])
    inside = np.maximum(inside, 0.0)
    return np.asarray((np.take_along_axis(values, order, axis=-1) * inside).sum(-1) / inside.sum(-1))


def _over(group: Sequence[Certificate]) -> Aggregate:
    unit, names = unit_of(group), tuple(one.environment for one in group)
    about = Aggregate(group[0].champion, group[0].budget, names, unit)
    if why := next((why for one in group if (why := _unusable(one, unit))), ""):
        return Aggregate(about.champion, about.budget, names, unit, reason=why)
    champions, baselines = (tuple(_normalised(one, arm, unit) for one in group) for arm in ("champion", "baseline"))
    made = estimates(champions, baselines)
    fewest = min(len(runs) for runs in (*champions, *baselines))
    return Aggregate(about.champion, about.budget, names, unit, *made, fewest)


def _unusable(one: Certificate, unit: Unit) -> str:
    """Why an environment cannot be part of an aggregate; without it, the rest would look better than it is."""
    if any(score.value is None for score in one.scores("champion")):
        return f"fresh runs of the champion crashed in {one.environment}"
    if min(len(_utilities(one, arm)) for arm in ("champion", "baseline")) < 2:
        return f"fewer than two runs of an arm have a score in {one.environment}"
    if not scale(one, unit):
        return f"the runs of {one.environment} do not differ, so nothing tells how large a difference is there"
    return ""


def _utilities(certificate: Certificate, arm: Arm) -> tuple[float, ...]:
    return tuple(score.utility for score in certificate.scores(arm) if score.value is not None)


def _normalised(one: Certificate, arm: Arm, unit: Unit) -> tuple[float, ...]:
    if unit == "range":
        assert one.conditions.range, "it is stated"
        low, high = one.conditions.range
        zero = low if one.scores(arm)[0].higher_is_better else -high
    else:
        zero = float(np.mean(_utilities(one, "baseline")))
    return tuple((value - zero) / scale(one, unit) for value in _utilities(one, arm))


@lru_cache(maxsize=64)
def estimates(champions: Runs, baselines: Runs, resamples: int = RESAMPLES) -> Estimates:
    """Interquartile means of both arms and of their difference, with percentile intervals; equal input, equal output.

    The arms are resampled apart: each run has a training seed of its own.
    """
    rng = np.random.default_rng(zlib.crc32(repr((champions, baselines)).encode()))
    (mine, mine_drawn), (theirs, theirs_drawn) = (_drawn(arm, rng, resamples) for arm in (champions, baselines))
    return (
        _estimate(mine, mine_drawn),
        _estimate(theirs, theirs_drawn),
        _estimate(mine - theirs, mine_drawn - theirs_drawn),
    )


def _drawn(arm: Runs, rng: np.random.Generator, resamples: int) -> tuple[float, NDArray[np.float64]]:
    """The interquartile mean of an arm, and of its resamples."""
    weights = np.concatenate([np.full(len(runs), 1 / len(runs) / len(arm)) for runs in arm])
    drawn = [np.asarray(runs)[rng.integers(0, len(runs), (resamples, len(runs)))] for runs in arm]
    value = interquartile_mean(np.concatenate([np.asarray(runs) for runs in arm]), weights)
    return float(value), interquartile_mean(np.concatenate(drawn, axis=1), weights)


def _estimate(value: float, drawn: NDArray[np.float64]) -> BootstrapEstimate:
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return BootstrapEstimate(value, float(low), float(high))

"""Designs of certificates: how many runs each arm has after each group, and the error that may be spent by then.

Runs are made in groups. After each, all runs so far are tested (tasks/stats/permutation.py). The error spent grows
with the square of the share of the runs: an early success has to be clear, and little is taken from the last look.

A campaign has ALPHA for all its certificates in an environment. The first takes nearly all of it; each further one
takes half of what is left, so that there is always a next. More runs of the same two arms go on with the same test.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist
from typing import Literal

ALPHA = 0.05
FIRST_SHARE = 0.96
"""Of ALPHA, for a campaign's first certificate: with it the six best of 126 ways pass."""
Arm = Literal["champion", "baseline"]
Groups = tuple[tuple[int, int], ...]
"""Runs of champion and baseline after each group, those of earlier groups included."""
GROUPS: Groups = ((4, 5), (8, 7), (14, 12))
"""The first of them is the certificate of a short search, the first two that of a long one; more where little error is
left, with which few runs could not pass."""
EXACT = 10_000
"""Most ways to share out runs that are all tried; of more, as many are drawn (always the same)."""
LARGE_TRIALS = 36
"""Trials from which on a search is long."""
DETERMINISTIC: Groups = ((2, 2), *GROUPS)
"""Where training draws nothing at random, two runs may already show that nothing differs."""
HOPELESS = 0.5
"""A larger p ends a certificate before its last group."""


@dataclass(frozen=True)
class Design:
    groups: Groups
    levels: tuple[float, ...]
    """One-sided error that may be spent by each look."""

    @property
    def champion(self) -> int:
        """Runs of the champion at most."""
        return self.groups[-1][0]

    @property
    def baseline(self) -> int:
        return self.groups[-1][1]

    @property
    def runs(self) -> int:
        """Runs of both arms at most."""
        return self.champion + self.baseline

    def in_turn(self, parallel: int, reused: int = 0) -> int:
        """Runs one after another if `parallel` run at a time. (reused: of the first group, by the search)"""
        before = (reused, *(sum(group) for group in self.groups))
        return sum(math.ceil((now - then) / parallel) for then, now in pairwise(before))

    def smallest_gain(self, sd: float, power: float) -> float:
        """The true gain that the last look shows so often, by the normal approximation. (sd: between runs of an arm)"""
        quantiles = NormalDist().inv_cdf(power) - NormalDist().inv_cdf(self.levels[-1])
        return quantiles * sd * math.sqrt(1 / self.champion + 1 / self.baseline)

    def after(self, made: Groups, spent: tuple[float, ...]) -> Design:
        """The same groups on top of those that were made, with what was spent on these."""
        champion, baseline = made[-1] if made else (0, 0)
        groups = tuple((c + champion, b + baseline) for c, b in self.groups)
        return Design((*made, *groups), (*spent, *(max(spent, default=0.0) + level for level in self.levels)))


def design_of(trials: int, deterministic: bool = False, alpha: float = ALPHA, runs: float = math.inf) -> Design:
    """The certificate after a search of `trials` trials, or of fewer where time ends it before.

    Args:
        alpha: Error of all its looks.
        runs: Training runs that there is time for in all, those of baseline and certificate included.
    """
    groups = DETERMINISTIC if deterministic else GROUPS
    fewest = 2 if deterministic or min(trials, runs - sum(GROUPS[1])) >= LARGE_TRIALS else 1
    looks = (n for n in range(fewest, len(groups)) if least_p(new_runs(groups[:n])) <= alpha)
    return of_groups(groups[: next(looks, len(groups))], alpha)


def new_runs(groups: Groups) -> list[tuple[int, int]]:
    """The runs that each group adds."""
    return [(c - champions, b - baselines) for (champions, baselines), (c, b) in pairwise(((0, 0), *groups))]


def least_p(new: Iterable[tuple[int, int]]) -> float:
    """The p of the best of all ways to share out the runs of each group: so much error is needed to pass."""
    return max(1 / math.prod(math.comb(sum(arms), arms[0]) for arms in new), 1 / EXACT)


def of_groups(groups: Groups, alpha: float = ALPHA) -> Design:
    """The groups with the error that may be spent by each."""
    most = sum(groups[-1])
    return Design(groups, tuple(alpha * (sum(group) / most) ** 2 for group in groups))


def equal_arms(runs: int, reused: int = 0) -> Groups:
    """So many fresh runs of each arm, eight or more in two groups; and of the baseline those of the search."""
    sizes = (runs // 2, runs) if runs >= 8 else (runs,)
    return tuple((size, size + reused) for size in sizes)


def alpha_of(spent: Iterable[float]) -> float:
    """The error of the next certificate, where so much was declared for each before."""
    used = sum(spent)
    return (ALPHA - used) / 2 if used else FIRST_SHARE * ALPHA

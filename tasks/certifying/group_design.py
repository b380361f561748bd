"""Designs of certificates: how many runs each arm has at each look, and the level of the test there.

Runs are made in groups. After each, all runs so far are tested, at a level that grows with the square of their share
of the largest number: an early success has to be clear, and little is taken from the last look. Early levels and all
looks together keep the error at ALPHA (tasks/certifying/group_levels.py).
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from tasks.certifying.group_levels import LEVELS
from tasks.deciding.values import BASELINE_RUNS

ALPHA = 0.05
Looks = Literal["one", "several"]
Arm = Literal["champion", "baseline"]
Groups = tuple[tuple[int, int], ...]
"""Runs of champion and baseline at each look, those of earlier groups included."""
RUNS: tuple[tuple[int, Groups], ...] = ((30, ((9, 4), (17, 8))), (12, ((5, 3), (10, 4))), (0, ((5, 3),)))
"""(trials, groups): from this many trials on, a search of parameters ends with a certificate of these groups.

Of points the best is soon found and hard to prove: its noise may be larger than the baseline's.
"""
EDIT_RUNS: tuple[tuple[int, Groups], ...] = ((24, ((4, 2), (6, 3))), (0, ((4, 2),)))
"""The same after edits. They build on one another, so trials are worth more, and gains grow easier to prove."""
FEWEST = 2
"""Runs per arm needed for a variance."""
FIRST = 3
"""Least runs per arm at the first look of two equal arms."""
HOPELESS = (0.5, 0.35)
"""A larger p ends a certificate: at its first look, and later."""


@dataclass(frozen=True)
class Design:
    groups: Groups
    levels: tuple[float, ...]
    """One-sided level of each look."""

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

    def in_turn(self, parallel: int) -> int:
        """Runs one after another if `parallel` run at a time, and no group begins before the last has ended."""
        before = (0, *(sum(group) for group in self.groups))
        return sum(math.ceil((now - then) / parallel) for then, now in pairwise(before))

    def after(self, champion: int, baseline: int) -> Design:
        """The same groups on top of runs that are there. More runs per look only make the levels safer."""
        return Design(tuple((c + champion, b + baseline) for c, b in self.groups), self.levels)


def design_of(
    trials: int,
    deterministic: bool = False,
    searched: bool = True,
    alpha: float = ALPHA,
    *,
    edits: bool = False,
    runs: float = math.inf,
) -> Design:
    """The certificate after a search of `trials` trials, or of fewer where time ends it before.

    Args:
        edits: Whether programs were edited.
        runs: Training runs that there is time for in all, those of baseline and certificate included.
        searched: Whether several runs of the baseline are known from the search; without them both arms are equal.
        alpha: Error of all looks together.
    """
    if deterministic:
        return Design(((FEWEST, FEWEST),), (alpha,))
    groups = next(
        groups
        for least, groups in (EDIT_RUNS if edits else RUNS)
        if not least or min(trials, runs - BASELINE_RUNS - sum(groups[-1])) >= least
    )
    return of_groups(groups if searched else equal_arms(sum(groups[-1]) // 2), alpha)


def equal_arms(runs: int) -> Groups:
    """At most `runs` runs of each arm (2 or more), in up to three groups."""
    looks = (runs / 3, 2 * runs / 3, runs) if runs > 2 * FIRST else (runs / 2, runs)
    sizes = sorted({max(round(size), min(FIRST, runs)) for size in looks})
    sizes = [size for size in sizes if size == runs or runs - size > 1]
    return tuple((size, size) for size in sizes)


def of_groups(groups: Groups, alpha: float = ALPHA) -> Design:
    """The groups with the level of each look."""
    return Design(groups, tuple(share * last_level(groups, alpha) for share in shares(groups)))


def shares(groups: Groups) -> tuple[float, ...]:
    """The level of each look, as a share of the last."""
    most = sum(groups[-1])
    return tuple((sum(group) / most) ** 2 for group in groups)


def last_level(groups: Groups, alpha: float) -> float:
    """The level of the last look. Between sizes that were simulated, the lower level of its neighbours counts."""
    known = LEVELS.get(groups)
    if known is None:
        sizes = sorted((own[-1][0], own) for own in LEVELS if all(c == b for c, b in own))
        below = [own for size, own in sizes if size <= groups[-1][0]]
        above = [own for size, own in sizes if size >= groups[-1][0]]
        beside = [LEVELS[own] for own in (*below[-1:], *above[:1])]
        known = tuple(min(levels) for levels in zip(*beside, strict=True))
    halvings = [ALPHA * 0.5**halved for halved in range(len(known))]
    at = next((n for n, share in enumerate(halvings) if share <= alpha * (1 + 1e-9)), len(known) - 1)
    slope = max(math.log2(known[-2] / known[-1]), 1.0)  # beyond the table its own slope goes on
    return float(known[at] * min(alpha / halvings[at], 1.0) ** slope)


def alpha_of(look: int, looks: Looks) -> float:
    """Error of a campaign's certificate (1, 2, ...); 0 if the campaign has none left."""
    if looks == "several":
        return ALPHA * 0.5**look
    return ALPHA if look == 1 else 0.0


def in_groups(groups: Groups, seed: int, before: tuple[int, int] = (0, 0)) -> Iterator[tuple[tuple[Arm, int], ...]]:
    """The runs of each group in random order, as arm and run number; `before`: how many of either arm there are."""
    draw = random.Random(seed)
    for champion, baseline in groups:
        arms: list[tuple[Arm, int]] = [("champion", n) for n in range(before[0] + 1, champion + 1)]
        arms += [("baseline", n) for n in range(before[1] + 1, baseline + 1)]
        draw.shuffle(arms)
        yield tuple(arms)
        before = champion, baseline


def order(runs: int, seed: int) -> tuple[tuple[Arm, int], ...]:
    """The order of the runs of two equal arms, as arm and run number: blocks of one run per arm, in random order."""
    blocks: Sequence[tuple[int, int]] = [(number, number) for number in range(1, runs + 1)]
    return tuple(run for block in in_groups(tuple(blocks), seed) for run in block)

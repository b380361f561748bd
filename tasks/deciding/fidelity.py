"""Fidelity: whether short runs rank points of the search space as whole runs do, and so what a campaign does.

Measured by `nightshift calibrate ENVIRONMENT --fidelity 0.3`: points are drawn at random, and each runs once for a
share of the budget and once in full, under seeds of its own. The rank correlation of the two scores holds the noise of
both, as a campaign meets it. In simulation short budgets first (tasks/deciding/halving.py) gain 4 to 23 % at a rank
correlation of PAYS, the more the longer the campaign, and nothing at 0.5.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from environments.score import Score
from tasks.deciding.statistics import CONFIDENCE

LEAST, MOST = 0.05, 0.8
"""Shares of the budget that short trials may have."""
PAYS = 0.7
"""Rank correlation from which on short budgets first pay."""
FEWEST = 10
"""Points without which a rank correlation is not acted upon."""


@dataclass(frozen=True)
class Fidelity:
    """At which share of the budget a campaign runs new points first, and why."""

    share: float = 1.0
    """1: all of them in full."""
    words: str = ""


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's rank correlation."""

    value: float
    low: float
    high: float
    """Ends of its interval at CONFIDENCE."""
    count: int
    """Points."""

    @property
    def pays(self) -> bool:
        return self.value >= PAYS and self.count >= FEWEST

    def __str__(self) -> str:
        interval = f"{100 * CONFIDENCE:.0f} % interval {self.low:.2f} to {self.high:.2f}"
        return f"{self.value:.2f} ({interval}, {self.count} points)"


def rank_correlation(pairs: Sequence[tuple[Score, Score]]) -> RankCorrelation | None:
    """The rank correlation of short scores with those in full; None with fewer than four points, or if one is constant.

    A point whose short run has no score is left out, since no campaign would promote it; one whose full run has none
    is the last. The interval is Fisher's, with the error of Bonett and Wright (2000) for ranks.
    """
    from scipy import special  # type: ignore[import-untyped]

    known = [(short.utility, full.utility) for short, full in pairs if short.value is not None]
    if len(known) < 4:
        return None
    first, second = (_ranks(column) for column in zip(*known, strict=True))
    if len({*first}) == 1 or len({*second}) == 1:
        return None
    value = max(-1.0, min(statistics.correlation(first, second), 1.0))
    # A perfect order is taken for one that lies half a step below: that few points happen to be in order proves little.
    edge = 1 - 6 / (len(known) ** 3 - len(known))
    centre = math.atanh(max(-edge, min(value, edge)))
    reach = float(special.ndtri((1 + CONFIDENCE) / 2)) * math.sqrt((1 + value**2 / 2) / (len(known) - 3))
    low, high = min(math.tanh(centre - reach), value), max(math.tanh(centre + reach), value)
    return RankCorrelation(value, low, high, len(known))


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values share the mean of theirs."""
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) + 1) / 2 for value in values]


def found_words(share: float, found: RankCorrelation | None, count: int) -> str:
    """What `count` measured points say of a share of the budget, in a sentence."""
    what = f"{share:.0%} of the budget"
    if found is None:
        return f"{what}: {count} points with a short run tell no rank correlation with whole runs"
    said = f"{what}: the rank correlation with whole runs is {found}"
    if found.pays:
        return f"{said}: short budgets first pay"
    if found.value >= PAYS:
        return f"{said}: fewer than {FEWEST} points are not acted upon"
    return f"{said}: short budgets first pay from {PAYS:g} on"


def advised(known: Iterable[tuple[float, RankCorrelation | None, int]]) -> Fidelity | None:
    """What calibrations of several shares of the budget advise: the least that pays, or 1; None without any.

    Args:
        known: Of each its share, the rank correlation, and the number of points.
    """
    every = sorted(known, key=lambda one: one[0])
    for share, found, count in every:
        if found and found.pays:
            return Fidelity(share, found_words(share, found, count))
    return Fidelity(1.0, "; ".join(found_words(*one) for one in every)) if every else None

"""Statistics of training runs: pooled noise, and the test between two arms.

The unit of replication is the training run; its episodes or questions are averaged before. All values are utilities:
larger is better.

The test is Fisher's exact permutation test of the difference of means (1935): if both arms are the same program, every
way to share the runs out between them was equally likely. So it works where returns are bimodal or stand at a ceiling,
where Welch's t-test is blind. With runs in groups, only runs of the same group change places, and whatever would have
passed after an earlier group counts against a later one: the error of all looks together is the level of the last
(Pocock, 1977).
"""

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tasks.stats.design import EXACT

CONFIDENCE = 0.95
"""Level of the two-sided intervals and of the one-sided bounds."""
ROUNDING = 1e-12
"""Of differences, as a share of the largest value: equal ones count as equal."""
HALVINGS = 40
Labels = NDArray[np.bool_]
"""Shape (ways, runs): which runs belong to the first arm. The first row is how it was."""


@dataclass(frozen=True)
class Noise:
    """Noise between training runs of the same program and parameters."""

    sd: float
    df: int


def pooled(groups: Iterable[Sequence[float]]) -> Noise | None:
    """The standard deviation within groups of runs that differ only in their seed; None without a group of two."""
    several = [group for group in groups if len(group) > 1]
    df = sum(len(group) - 1 for group in several)
    if not df:
        return None
    squares = math.fsum(statistics.variance(group) * (len(group) - 1) for group in several)
    return Noise(math.sqrt(squares / df), df)


@dataclass(frozen=True)
class Comparison:
    """One arm against another."""

    gain: float
    """Difference of the means; positive if the first arm is better."""
    low: float | None
    high: float | None
    """Ends of an interval of the gain: `low` is above 0 if the test passed, `high` as far on the other side. None if
    the runs are too few for such a level."""
    p: float
    """One-sided: how often two equal arms would pass by now, or show such a gain or a larger one."""


Group = tuple[Sequence[float], Sequence[float]]
"""The new runs of both arms, in utility."""


def compare(groups: Sequence[Group], levels: Sequence[float], deterministic: bool = False) -> Comparison:
    """The test after the last of these groups of runs.

    Args:
        levels: The error that may be spent after each group.
        deterministic: Whether equal runs score the same, so that arms without any spread prove something.

    Raises:
        ValueError: an arm has no run.
    """
    arms = [[float(value) for group in groups for value in group[arm]] for arm in (0, 1)]
    if not all(arms):
        raise ValueError(f"a test needs runs of both arms, got {len(arms[0])} and {len(arms[1])}")
    gain = statistics.mean(arms[0]) - statistics.mean(arms[1])  # exact means: those of equal runs are equal
    if deterministic and all(len(set(arm)) == 1 for arm in arms):
        return Comparison(gain, gain, gain, float(gain <= 0))
    values = np.array([value for group in groups for arm in group for value in arm], dtype=float)
    ways = _ways(tuple((len(first), len(second)) for first, second in groups))
    ends = np.cumsum([len(first) + len(second) for first, second in groups])
    chance = _Chance(values, ways, ends, tuple(levels))
    low, p = chance.bound(gain), chance.of(0.0)
    if low is not None and p <= levels[len(groups) - 1]:
        low = max(low, 0.0)  # ties at a ceiling are broken by a shift, so that the search may have ended below
    return Comparison(gain, low, None if low is None else 2 * gain - low, p)


@dataclass(frozen=True)
class _Chance:
    values: NDArray[np.float64]
    ways: Labels
    ends: NDArray[np.int_]
    """Number of runs after each group."""
    levels: tuple[float, ...]

    def of(self, gain: float) -> float:
        """The share of ways that pass by now, or show as much, if the first arm is truly better by `gain`."""
        shifted = self.values - gain * self.ways[0]
        passed = np.zeros(len(self.ways), dtype=bool)
        for end, level in zip(self.ends[:-1], self.levels, strict=False):
            if self.ways[0, :end].all() or not self.ways[0, :end].any():
                continue  # an arm without a score yet
            shown = self._differences(shifted, end)
            waiting = np.sort(shown[~passed])
            above = len(waiting) - np.searchsorted(waiting, shown - self._tiny)
            passed |= passed.sum() + above <= level * len(self.ways) * (1 + 1e-9)
        shown = self._differences(shifted, len(self.values))
        return float(np.mean(passed | (shown >= shown[0] - self._tiny)))

    def bound(self, gain: float) -> float | None:
        """The largest true gain that the test would still reject; None if it rejects none."""
        level, reach = self.levels[len(self.ends) - 1], 2 * float(np.ptp(self.values)) or 1.0
        low, high = gain - reach, gain
        if self.of(low) > level:
            return None
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.of(middle) <= level else (low, middle)
        return low

    def _differences(self, values: NDArray[np.float64], end: int) -> NDArray[np.float64]:
        """The difference of the means over the first runs, for each way."""
        ways, first = self.ways[:, :end], self.ways[0, :end].sum()
        total = values[:end].sum()
        sums = ways @ values[:end]
        return np.asarray(sums / first - (total - sums) / (end - first))

    @property
    def _tiny(self) -> float:
        return ROUNDING * float(np.abs(self.values).max() or 1.0)


@lru_cache(maxsize=64)
def _ways(sizes: tuple[tuple[int, int], ...]) -> Labels:
    """Every way to share out the runs of each group, or EXACT of them; the first is how it was."""
    if math.prod(math.comb(first + second, first) for first, second in sizes) <= EXACT:
        each = [
            [_labels(one, first + second) for one in itertools.combinations(range(first + second), first)]
            for first, second in sizes
        ]
        return np.array([np.concatenate(way) for way in itertools.product(*each)])
    rng = np.random.default_rng(0)
    groups = [np.tile(_labels(range(first), first + second), (EXACT, 1)) for first, second in sizes]
    drawn = [np.concatenate([group[:1], rng.permuted(group[1:], axis=1)]) for group in groups]
    return np.concatenate(drawn, axis=1)


def _labels(first_arm: Iterable[int], runs: int) -> Labels:
    labels = np.zeros(runs, dtype=bool)
    labels[list(first_arm)] = True
    return labels


def corrected(comparison: Comparison, level: float, last: float) -> float:
    """A gain that passed a test at `level`, corrected for the selection; at least 0.

    It is the true gain for which the observed one is the median of those that pass, in the normal approximation.

    Args:
        last: Level of the last look: whoever passes an earlier one would mostly have passed that too.
    """
    from scipy import special  # type: ignore[import-untyped]

    if comparison.low is None or comparison.gain <= comparison.low:
        return comparison.gain
    error = (comparison.gain - comparison.low) / -special.ndtri(level)
    seen, edge = comparison.gain / error, -special.ndtri(last)
    low, high = 0.0, seen
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        shows_more = special.log_ndtr(middle - seen) - special.log_ndtr(middle - edge)
        low, high = (middle, high) if shows_more < math.log(0.5) else (low, middle)
    return float(error * high) if low else 0.0


def quantile(share: float, df: float) -> float:
    """Quantile of Student's t."""
    from scipy import special

    return float(special.stdtrit(df, share))

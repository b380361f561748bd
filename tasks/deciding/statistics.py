"""Statistics of training runs: pooled noise, and tests between two arms.

The unit of replication is the training run; its episodes or questions are averaged before. All values are utilities:
larger is better. See Colas, Sigaud and Oudeyer, "How many random seeds?" (2018) for the tests, and Welch (1947) for
the degrees of freedom.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95
"""Level of the two-sided intervals and of the one-sided bounds."""


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
    low: float
    high: float
    """Ends of the two-sided interval of the gain, at CONFIDENCE."""
    p: float
    """One-sided: how often two equal arms would show such a gain or a larger one."""
    df: float | None
    """Degrees of freedom; None if nothing is random."""
    share: float = 0.5
    """Share of the gain's squared error that comes from the first arm."""


def welch(
    arm: Sequence[float],
    against: Sequence[float],
    floor: float | tuple[float, float] = 0.0,
    earlier: Sequence[Sequence[float]] = (),
) -> Comparison:
    """Welch's t-test of one arm's runs (at least two) against another's.

    Args:
        against: At least two runs; one is enough where `earlier` holds two of a group.
        floor: Least variance of either arm, or of each.
        earlier: Groups of other runs of the second arm's program. They tell its variance, not its mean.
    """
    spreads = [pooled([arm]), pooled([against, *earlier])]
    known = [spread for spread in spreads if spread is not None]
    counts = (len(arm), len(against))
    if len(known) < 2 or not all(counts):
        raise ValueError(f"a test needs two runs of each arm, got {counts[0]} and {counts[1]}")
    gain = statistics.mean(arm) - statistics.mean(against)  # exact means: those of equal runs are equal
    least = floor if isinstance(floor, tuple) else (floor, floor)
    parts = [max(one.sd**2, low) / n for one, low, n in zip(known, least, counts, strict=True)]
    error = math.sqrt(sum(parts))
    if not error:  # nothing is random
        return Comparison(gain, gain, gain, 0.0 if gain > 0 else 1.0, None)
    from scipy import special  # type: ignore[import-untyped]

    seen = [one.sd**2 / n for one, n in zip(known, counts, strict=True)]
    # A floored variance makes two arms alike, which must not add degrees of freedom.
    df = min(_freedom(these, [one.df for one in known]) for these in (parts, seen) if sum(these))
    reach = quantile((1 + CONFIDENCE) / 2, df) * error
    p = float(special.stdtr(df, -gain / error))
    return Comparison(gain, gain - reach, gain + reach, p, df, parts[0] / sum(parts))


def _freedom(parts: Sequence[float], known: Sequence[int]) -> float:
    """Welch's degrees of freedom, from the squared errors of the arms' means and the freedom of their variances."""
    parts = [part / max(parts) for part in parts]  # the squares may overflow a float
    return float(sum(parts) ** 2 / sum(part**2 / df for part, df in zip(parts, known, strict=True)))


def error_of(comparison: Comparison) -> float:
    if comparison.df is None:
        return 0.0
    return (comparison.high - comparison.gain) / quantile((1 + CONFIDENCE) / 2, comparison.df)


def corrected(comparison: Comparison, alpha: float) -> float:
    """A gain that passed a test at `alpha`, corrected for the selection; at least 0.

    It is the true gain for which the observed one is the median of those that pass, in the normal approximation.
    """
    from scipy import special

    error = error_of(comparison)
    if not error or comparison.df is None:
        return comparison.gain
    least = quantile(1 - alpha, comparison.df) * error

    def shows_more(true: float) -> float:
        """Log of the share of passing estimates above this one."""
        beyond = [special.log_ndtr((true - edge) / error) for edge in (comparison.gain, least)]
        return float(beyond[0] - beyond[1])

    low, high = 0.0, comparison.gain
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if shows_more(middle) < math.log(0.5) else (low, middle)
    return high if low else 0.0


def bound(comparison: Comparison, level: float = 1 - CONFIDENCE) -> float:
    """One-sided lower bound of a gain: above 0 where a test at `level` passes."""
    if comparison.df is None:
        return comparison.gain
    return comparison.gain - quantile(1 - level, comparison.df) * error_of(comparison)


def quantile(share: float, df: float) -> float:
    """Quantile of Student's t."""
    from scipy import special

    return float(special.stdtrit(df, share))


def largest_t(t: float, shared: int, others: Sequence[int], df: float) -> float:
    """How often the largest of several t ratios would be `t` or more if all arms were equal.

    Each compares an arm of `others` runs with one arm of `shared` runs, all with one pooled variance of `df` degrees
    of freedom (Dunnett, 1955).
    """
    from scipy import special

    luck, weights = np.polynomial.hermite_e.hermegauss(40)
    nodes, slopes = np.polynomial.legendre.leggauss(48)
    sd = np.sqrt(special.chdtri(df, (1 - nodes) / 2) / df)[:, None]
    chance = np.ones((len(nodes), len(luck)))
    for n in others:
        chance *= special.ndtr((t * sd * math.sqrt(1 / n + 1 / shared) + luck / math.sqrt(shared)) * math.sqrt(n))
    return 1.0 - float(slopes / 2 @ chance @ weights) / math.sqrt(2 * math.pi)

"""The power of a certificate: how often fresh runs show a true gain.

It is that of the test which is run (tasks/deciding/statistics.py: welch, with the floor of the certificate), not of a
t-test with pooled variance, which promises more. For normal scores the difference of the means is independent of both
variances, so the power is an average over these two alone, computed here by quadrature.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Arms = tuple[int, int]
"""Runs of champion and baseline, at least two of each."""
POWER = 0.8
"""A gain is said to be shown if it is shown this often."""
RATIO = 1.7
"""A champion's runs may scatter this much more than the baseline's, which alone are known before a campaign."""
NODES = 48
"""Of the quadrature, for the variance of each arm."""


def power(arms: Arms, gain: float, sd: float, ratio: float = 1.0, alpha: float = 0.05) -> float:
    """Probability that runs show a true gain, one-sided at `alpha`.

    Args:
        sd: Standard deviation between runs of the baseline; the floor takes it as known.
        ratio: That of the champion, relative to the baseline's.
    """
    from scipy import special  # type: ignore[import-untyped]

    if not sd:
        return 1.0 if gain > 0 else 0.0
    edges, weights = _edges(arms, ratio, alpha)
    beyond = special.ndtr((gain / sd - edges) / np.sqrt(ratio**2 / arms[0] + 1 / arms[1]))
    return float(np.sum(weights * beyond))


def detectable(arms: Arms, sd: float, ratio: float = 1.0, alpha: float = 0.05) -> float:
    """True gain that runs show with POWER; 0 without noise."""
    if not sd:
        return 0.0
    low, high = 0.0, sd
    while power(arms, high, sd, ratio, alpha) < POWER:
        high *= 2
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if power(arms, middle, sd, ratio, alpha) >= POWER else (middle, high)
    return high


@lru_cache(maxsize=4096)
def _edges(arms: Arms, ratio: float, alpha: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The least difference that passes for each pair of variances, in the baseline's sd, and their probabilities."""
    from scipy import special

    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    # Nodes crowd at both ends, where the quantiles of a variance are steepest.
    share, slope = (nodes + 1) ** 2 * (2 - nodes) / 4, 3 / 4 * (1 - nodes**2)
    known = [
        spread**2 * special.chdtri(n - 1, 1 - share) / (n - 1) / n for spread, n in zip((ratio, 1.0), arms, strict=True)
    ]
    seen = np.meshgrid(*known)
    floored = [np.maximum(part, 0.5 / n) for part, n in zip(seen, arms, strict=True)]
    df = np.minimum(*(_freedom(parts, arms) for parts in (floored, seen)))
    edges = special.stdtrit(df, 1 - alpha) * np.sqrt(sum(floored))
    return edges, np.outer(weights * slope, weights * slope)


def _freedom(parts: Sequence[NDArray[np.float64]], arms: Arms) -> NDArray[np.float64]:
    """Degrees of freedom of the sum of both variances, by Welch."""
    first, second = parts
    return np.asarray((first + second) ** 2 / (first**2 / (arms[0] - 1) + second**2 / (arms[1] - 1)))

"""The power of a certificate: how often fresh runs show a true gain.

It is that of the test which is run (tasks/deciding/statistics.py: welch, with the floor of the certificate), not of a
t-test with pooled variance, which promises more. For normal scores the difference of the means is independent of both
variances, so the power is an average over these two alone, computed here by quadrature.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

POWER = 0.8
"""A gain is said to be shown if it is shown this often."""
RATIO = 1.7
"""A champion's runs may scatter this much more than the baseline's, which are all that a calibration sees."""
NODES = 48
"""Of the quadrature, for the variance of each arm."""
MOST = 1000


def power(runs: int, gain: float, sd: float, ratio: float = 1.0, alpha: float = 0.05) -> float:
    """Probability that `runs` per arm (at least 2) show a true gain, one-sided at `alpha`.

    Args:
        sd: Standard deviation between runs of the baseline; the floor takes it as known.
        ratio: That of the champion, relative to the baseline's.
    """
    from scipy import special  # type: ignore[import-untyped]

    if not sd:
        return 1.0 if gain > 0 else 0.0
    edges, weights = _edges(runs, ratio, alpha)
    beyond = special.ndtr((gain / sd - edges) / np.sqrt((1 + ratio**2) / runs))
    return float(np.sum(weights * beyond))


def runs_needed(gain: float, sd: float, ratio: float = 1.0, most: int = MOST) -> int | None:
    """Runs per arm that show a true gain with POWER; None if more than `most`."""
    low, high = 1, 2
    while power(high, gain, sd, ratio) < POWER:
        if high >= most:
            return None
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(middle, gain, sd, ratio) >= POWER else (middle, high)
    return high


def detectable(runs: int, sd: float, ratio: float = 1.0) -> float:
    """True gain that `runs` per arm (at least 2) show with POWER; 0 without noise."""
    if not sd:
        return 0.0
    low, high = 0.0, sd
    while power(runs, high, sd, ratio) < POWER:
        high *= 2
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if power(runs, middle, sd, ratio) >= POWER else (middle, high)
    return high


@lru_cache(maxsize=4096)
def _edges(runs: int, ratio: float, alpha: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The least difference that passes for each pair of variances, in the baseline's sd, and their probabilities."""
    from scipy import special

    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    # Nodes crowd at both ends, where the quantiles of a variance are steepest.
    share, slope = (nodes + 1) ** 2 * (2 - nodes) / 4, 3 / 4 * (1 - nodes**2)
    variances = special.chdtri(runs - 1, 1 - share) / (runs - 1)
    seen = [part / runs for part in np.meshgrid(ratio**2 * variances, variances)]
    floored = [np.maximum(part, 0.5 / runs) for part in seen]
    df = np.minimum(*(sum(parts) ** 2 / (parts[0] ** 2 + parts[1] ** 2) * (runs - 1) for parts in (floored, seen)))
    edges = special.stdtrit(df, 1 - alpha) * np.sqrt(sum(floored))
    return edges, np.outer(weights * slope, weights * slope)

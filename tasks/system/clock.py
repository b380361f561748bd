"""The engine's clock."""

from __future__ import annotations

import time
from collections.abc import Iterable


def clock() -> float:
    """Seconds on a monotonic clock that also counts while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def merged(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The spans, each from a begin to an end, in their order; those that overlap as one."""
    apart: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if apart and begin < apart[-1][1]:
            begin, end = apart[-1][0], max(apart.pop()[1], end)
        apart.append((begin, end))
    return apart


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Seconds that at least one of the spans covers."""
    return sum(end - begin for begin, end in merged(spans))

"""The engine's clock."""

from __future__ import annotations

import time
from collections.abc import Iterable


def clock() -> float:
    """Seconds on a monotonic clock that also counts while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Seconds that at least one of the spans covers, each from a begin to an end."""
    seconds, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        seconds += max(end - max(begin, until), 0.0)
        until = max(until, end)
    return seconds

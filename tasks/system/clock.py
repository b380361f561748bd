"""The engine's clock."""

from __future__ import annotations

import time


def clock() -> float:
    """Seconds on a monotonic clock that also counts while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()

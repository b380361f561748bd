"""Numbers in words: scores, differences, probabilities and durations as people read them."""

from __future__ import annotations

ROUNDING = 1e-12
"""A smaller difference is what rounding left of zero."""
LEAST_P = 1e-4
"""A smaller probability is not told apart from it: it rests on tails that no few runs show."""


def number(value: float | None, sign: bool = False) -> str:
    if value is None:
        return "-"
    if sign and abs(value) < ROUNDING:
        return "0"
    form = ",.0f" if 1000 <= abs(value) < 1e6 else ".4g"
    return format(value + 0.0, f"{'+' if sign else ''}{form}")  # -0.0 + 0.0 is 0.0


def probability(p: float) -> str:
    return f"p < {LEAST_P:g}" if p < LEAST_P else f"p = {p:.2g}"


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"

"""Spans of time, each from a begin to an end."""

from collections.abc import Iterable


def merged(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The spans in their order; those that overlap as one."""
    apart: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if apart and begin < apart[-1][1]:
            begin, end = apart[-1][0], max(apart.pop()[1], end)
        apart.append((begin, end))
    return apart


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Seconds that at least one of the spans covers."""
    return sum(end - begin for begin, end in merged(spans))

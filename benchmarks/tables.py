"""How benchmarks say what they measured: medians, intervals and tables for a terminal."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

RESAMPLES = 4000


def about(what: str) -> str:
    """What was measured, with the machine and the hour."""
    return f"{what}, {os.cpu_count()} cores, {time.strftime('%Y-%m-%d %H:%M')}"


def show(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None, **style: Any) -> None:
    table = Table(*columns, title=title, **style)
    for row in rows:
        table.add_row(*map(str, row))
    Console(highlight=False, width=300 if "box" in style else None).print(table)  # a line of Markdown is not wrapped


def spread(values: Sequence[float], digits: int = 2) -> str:
    """The median, and the least and the most."""
    middle, least, most = (f"{value:,.{digits}f}" for value in (statistics.median(values), min(values), max(values)))
    return f"{middle} ({least} to {most})" if least != most else middle


def mean_interval(values: Sequence[float]) -> str:
    """The mean, with its 95 % bootstrap interval where there are several values."""
    if not values:
        return "no score"
    if len(values) == 1:
        return f"{values[0]:+.4g}"
    each = np.array(values)
    draws = np.random.default_rng(0).integers(len(each), size=(RESAMPLES, len(each)))
    low, high = np.quantile(each[draws].mean(axis=1), [0.025, 0.975])
    return f"{each.mean():+.4g} [{low:+.4g}, {high:+.4g}]"

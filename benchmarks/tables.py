"""How benchmarks say what they measured: medians and intervals, tables for a terminal, and pictures."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RESAMPLES = 4000
GREY, BLUE, ORANGE = "#8b8b8b", "#2f7fc1", "#d98a00"
"""Told apart by the colour-blind too (after Okabe and Ito), and bright enough for a light page and a dark one."""
STYLE: dict[str, Any] = {
    "font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.titlelocation": "left",
    "axes.facecolor": "none", "figure.facecolor": "none", "savefig.facecolor": "none",
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), GREY),
}  # fmt: skip


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


@contextmanager
def panels(count: int, path: Path, columns: int = 4, height: float = 2.9) -> Iterator[list[Axes]]:
    """So many panels in rows, saved to `path` when the block ends."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    with mpl.rc_context(STYLE):  # type: ignore[arg-type, unused-ignore]
        columns = min(columns, count)
        rows = -(-count // columns)
        size = (3.1 * columns + 0.4, height * rows + 0.4)
        figure, grid = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
        axes = list(grid.flat)
        for spare in axes[count:]:
            spare.set_axis_off()
        yield axes[:count]
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=130)
        plt.close(figure)

"""The style of pictures that read on a light page and on a dark one: no background, and grey where ink would be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GREY = "#8b8b8b"
BLUE, ORANGE, GREEN, PINK, SKY, RED = "#2f7fc1", "#d98a00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"
"""Told apart by the colour-blind too (after Okabe and Ito), and bright enough for both pages."""
STYLE: dict[str, Any] = {
    "font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.titlelocation": "left",
    "svg.hashsalt": "nightshift", "axes.facecolor": "none", "figure.facecolor": "none", "savefig.facecolor": "none",
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), GREY),
}  # fmt: skip


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

"""What all figures share: colours with a role, the style, and how a figure becomes a PNG or a part of a page.

pyplot is avoided, since its state is global; matplotlib's settings are ours while `styled` is open, in the one thread
that draws.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.system.redact import one_line
from tasks.verdict_styles import FAINT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, GREY, RULE, GREEN = "#1f2328", "#59636e", "#e4e7eb", "#137333"
STYLE: Any = {
    "svg.fonttype": "none", "svg.hashsalt": "nightshift", "font.family": "DejaVu Sans", "font.size": 10,
    "text.parse_math": False, "axes.spines.top": False, "axes.spines.right": False, "axes.spines.left": False,
    "axes.edgecolor": FAINT, "axes.labelcolor": INK, "axes.axisbelow": True, "axes.grid": True, "axes.grid.axis": "y",
    "axes.formatter.useoffset": False, "grid.color": RULE, "xtick.color": GREY, "ytick.color": GREY,
    "ytick.major.size": 0, "legend.frameon": False, "legend.labelcolor": GREY,
    "figure.constrained_layout.h_pad": 0.1, "figure.constrained_layout.w_pad": 0.1,
}  # fmt: skip
LARGEST = 1e30
"""Greater numbers are drawn as this one: programs report any, and differences of them are none."""


@contextmanager
def styled() -> Iterator[None]:
    """The style of all figures, while one is drawn or written."""
    import matplotlib

    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a letter that the font lacks is drawn as a box
        yield


def blank(width: float, height: float) -> Figure:
    """An empty figure of this size, in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=100, facecolor="white", layout="constrained")


def png(figure: Figure) -> bytes:
    """The figure as a PNG. Equal figures give equal bytes."""
    file = io.BytesIO()
    with styled():
        figure.savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()


def svg(figure: Figure, label: str) -> str:
    """The figure as an element of a page: text stays text. (label: what a screen reader says of it)"""
    file = io.StringIO()
    with styled():
        figure.savefig(file, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator", "Format")))
    element = file.getvalue().partition("<svg ")[2]
    return f'<svg class="chart" role="img" aria-label="{escape(one_line(label, 1000))}" {element}'


def window(heights: Sequence[float], higher_is_better: bool, always: Sequence[float] = ()) -> tuple[float, float]:
    """The range of heights to show: all but those so bad that the others would lie on one line.

    Off the scale is what is worse than the best three quarters by more than three times their spread. (always: heights
    to show nevertheless)
    """
    if not heights:
        return 0.0, 1.0
    sign = 1.0 if higher_is_better else -1.0
    ranked, besides = (sign * np.clip(np.asarray(some), -LARGEST, LARGEST) for some in (heights, always))
    best, edge = ranked.max(), np.quantile(ranked, 0.25, method="lower")
    shown = np.append(ranked[edge - ranked <= 3 * ((best - edge) or abs(edge) or 1.0)], besides)
    pad = 0.06 * (np.ptp(shown) or abs(edge) or 1.0)
    low, high = sorted((sign * (shown.min() - pad), sign * (shown.max() + pad)))
    return float(low), float(high)

"""Text in a campaign's picture: what the font can show, and free places for labels."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

FONT = "DejaVu Sans"
INK, GREY = "#1f2328", "#59636e"
MINUS = "\N{MINUS SIGN}"
DIRECTIONS = np.array([(-1, 1), (0, 1), (1, 1), (-1, 0), (1, 0), (0, -1), (1, -1), (-1, -1)])
"""From a mark to its label, best first: scores mostly climb, so there is room above and to the left."""
GAP = 4.0
"""Pixels between a label and anything else."""
Boxes = NDArray[np.float64]
"""Left, bottom, right and top in pixels, shape (boxes, 4) or (4,)."""


def text_at(at: Axes | Figure, x: float, y: float, text: str, colour: str, size: float, **more: Any) -> Text:
    """Add plain text; dollar signs are no mathematics."""
    return at.text(x, y, printable(text), color=colour, fontsize=size, family=FONT, parse_math=False, **more)


def printable(text: str) -> str:
    """The text with "?" for what matplotlib's font lacks, and minus signs for the hyphens before numbers."""
    shown = "".join(c if c in f"\n→{MINUS}±…·" or (ord(c) < 0x250 and c.isprintable()) else "?" for c in text)
    return re.sub(r"(?<!\w)-(?=\d)", MINUS, shown)


def free_box(anchor: Boxes, size: Boxes, taken: Boxes, frame: Boxes, far: float) -> Boxes | None:
    """The first box of `size` near the point `anchor` that lies in `frame` and overlaps none of `taken`."""
    for reach in (reach for reach in (8, 20, 35, 55, 80, 110) if reach <= far):
        for direction in DIRECTIONS:
            centre = anchor + direction * (reach + size / 2)
            box = np.concatenate([centre - size / 2, centre + size / 2])
            inside = (box[:2] >= frame[:2]).all() and (box[2:] <= frame[2:]).all()
            if inside and not overlap(box, taken).any():
                return box
    return None


def overlap(box: Boxes, others: Boxes) -> NDArray[np.bool_]:
    """Which of the other boxes come nearer than GAP to `box`."""
    near: NDArray[np.bool_] = (others[:, :2] < box[2:] + GAP) & (others[:, 2:] > box[:2] - GAP)
    return np.logical_and.reduce(near, axis=1)  # type: ignore[no-any-return]

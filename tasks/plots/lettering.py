"""The texts around the picture of a campaign: only what the font can show, and no larger than there is room."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

WIDTH, HEIGHT, DPI = 1200, 675, 100
"""The picture's pixels, and pixels per inch of what matplotlib measures in points."""
INK, GREY = "#1f2328", "#59636e"
SIZES = (11.5, 10.5, 9.5, 8.5, 7.5)
"""Of the legend: the largest that fits is taken."""
MINUS = "\N{MINUS SIGN}"


def title(picture: Figure, sentence: str, facts: str) -> None:
    """The result, and below it what is measured."""
    for y, size, words, colour, weight in (
        (0.945, 19.0, sentence, INK, "bold"),
        (0.885, 13.0, facts, GREY, "normal"),
    ):
        text = text_at(picture, 0.03, y, words, colour, size, va="center", weight=weight)
        text.set_fontsize(min(size, size * 0.9 * WIDTH / text.get_window_extent().width))


def row_of_keys(picture: Figure, keys: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """A legend in one row, set smaller where it would not fit."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], label=_printable(name), **style) for name, style in keys]
    for size in SIZES:
        made = picture.legend(
            handles=handles, ncols=len(keys) or 1, frameon=False, loc="center left", bbox_to_anchor=(0.022, 0.835),
            prop={"family": "DejaVu Sans", "size": size}, labelcolor=GREY, handletextpad=0.4, columnspacing=1.5,
            handlelength=1.4, borderpad=0,
        )  # fmt: skip
        if size == SIZES[-1] or made.get_window_extent().x1 <= 0.985 * WIDTH:
            return
        made.remove()


def text_at(at: Axes | Figure, x: float, y: float, text: str, colour: str, size: float, **more: Any) -> Text:
    """Plain text: no mathematics, whatever a parameter is called, and only what the font can show."""
    font: dict[str, Any] = {"color": colour, "fontsize": size, "family": "DejaVu Sans", "parse_math": False}
    return at.text(x, y, _printable(text), **font, **more)


def _printable(text: str) -> str:
    """What the font that comes with matplotlib can show, with minus signs for the hyphens before numbers."""
    shown = "".join(c if c in f"\n→{MINUS}±…·" or (ord(c) < 0x250 and c.isprintable()) else "?" for c in text)
    return re.sub(r"(?<!\w)-(?=\d)", MINUS, shown)

"""Champion minus baseline in each environment and for each budget, with intervals, on one axis: as text and as PNG.

Scores of two environments share no scale, so every difference is drawn in the unit of the aggregate
(tasks/certifying/aggregate.py); beside it stands the difference of scores as it is.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from tasks.certifying.aggregate import Aggregate, Unit, aggregates, newest, scale, unit_of
from tasks.certifying.certificate import Certificate
from tasks.describe import UNITS, difference, interval, setting, where
from tasks.numbers import number
from tasks.plots.text import FONT, GREY, INK, printable
from tasks.verdict_styles import BLUE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS, FEWEST_COLUMNS = 41, 13
"""Of the axis in text, at most and at least."""
Kind = Literal["search", "shown", "open", "aggregate"]


@dataclass(frozen=True)
class ForestRow:
    name: str
    kind: Kind
    """The environment and budget of the search, a difference that was shown, one that was not, or the aggregate."""
    words: str
    gain: float | None = None
    """In units of the chart; positive if the champion is better. None where it cannot be drawn."""
    low: float = 0.0
    high: float = 0.0


@dataclass(frozen=True)
class Forest:
    rows: tuple[ForestRow, ...]
    unit: str
    """In words."""

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the axis, with zero between them."""
        drawn = [row for row in self.rows if row.gain is not None]
        low, high = min([row.low for row in drawn] + [0.0]), max([row.high for row in drawn] + [0.0])
        margin = 0.04 * (high - low) or 1.0
        return low - margin, high + margin


def forest(certificates: Sequence[Certificate]) -> Forest | None:
    """The rows of the newest champion that was certified elsewhere; None while none was."""
    apart = [one for one in certificates if one.elsewhere]
    if not apart:
        return None
    champion = max(one.champion for one in apart)
    shown = [one for one in newest(certificates) if one.champion == champion]
    own = {one.environment for one in shown if one.conditions.changed is None}
    shown.sort(key=lambda one: (one.environment not in own, one.environment, one.budget))
    unit = unit_of(shown)
    rows = [_row(one, unit) for one in shown]
    rows += [_total(one) for one in aggregates(certificates) if one.champion == champion and one.unit == unit]
    return Forest(tuple(replace(row, name=_plain(row.name), words=_plain(row.words)) for row in rows), UNITS[unit])


def _plain(text: str) -> str:
    """A text without control characters: names of folders and reasons may hold any."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _row(one: Certificate, unit: Unit) -> ForestRow:
    kind: Kind = "shown" if one.passed else "open"
    name = where(one) if one.elsewhere else f"{one.environment} (the search's)"
    found, ends, size = one.comparison, one.bounds, 0.0
    if found is None or ends is None:
        return ForestRow(name, kind, one.reason.splitlines()[0])
    raw = interval(one)
    assert raw is not None, "there is a test"
    words = f"{difference(one, found.gain)} ({number(raw[0], sign=True)} to {number(raw[1], sign=True)})"
    words += "" if one.passed else ", not shown"
    if len([score for score in one.scores("champion") if score.value is not None]) > 1:
        size = scale(one, unit)
    if not size or not all(map(math.isfinite, (found.gain, *ends))):
        return ForestRow(name, kind, words)
    return ForestRow(name, kind if one.elsewhere else "search", words, *(v / size for v in (found.gain, *ends)))


def _total(one: Aggregate) -> ForestRow:
    name, gain = f"{setting(f'{len(one.environments)} environments', one.budget)}, IQM", one.gain
    if gain is None:
        return ForestRow(name, "aggregate", f"no aggregate: {one.reason}")
    words = f"{gain.value:+.2f} ({gain.low:+.2f} to {gain.high:+.2f}) {UNITS[one.unit]}"
    return ForestRow(name, "aggregate", words, gain.value, gain.low, gain.high)


def text(shown: Forest, width: int = 10_000) -> list[str]:
    """A line for each row: its name, its interval on the axis, and the difference in words."""
    low, high = shown.ends
    names = max(len(row.name) for row in shown.rows)
    left = width - names - 4 - max(len(row.words) for row in shown.rows)
    columns = min(max(left, FEWEST_COLUMNS), COLUMNS)

    def column(value: float) -> int:
        return min(max(round((value - low) / (high - low) * (columns - 1)), 0), columns - 1)

    lines = []
    for row in shown.rows:
        axis = [" "] * columns
        axis[column(0.0)] = "┊"
        if row.gain is not None:
            for at in range(column(row.low), column(row.high) + 1):
                axis[at] = "━" if row.kind == "aggregate" else "─"
            axis[column(row.gain)] = "●"
        lines.append(f"{row.name:<{names}}  {''.join(axis)}  {row.words}")
    foot = f"{'':<{names}}  ┊ no difference; champion minus baseline, in {shown.unit}; better to the right"
    return [*lines, foot]


def png(shown: Forest) -> bytes:
    """The same as a PNG. No pyplot, whose state is global, so any thread may call it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    count = len(shown.rows)
    picture: Figure = Figure(figsize=(10, 1.1 + 0.42 * count), dpi=100, facecolor="white")
    FigureCanvasAgg(picture)
    axes = picture.add_axes((0.3, 0.62 / (1.1 + 0.42 * count), 0.36, 1 - 0.8 / (1.1 + 0.42 * count)))
    axes.axvline(0, color=GREY, linewidth=1.2, dashes=(5, 4))
    for at, row in enumerate(shown.rows):
        place, colour = count - 1 - at, BLUE if row.kind in ("shown", "aggregate") else GREY
        if row.gain is not None:
            axes.plot([row.low, row.high], [place, place], color=colour, linewidth=4 if row.kind == "aggregate" else 2)
            axes.plot([row.gain], [place], marker="D" if row.kind == "aggregate" else "o", color=colour, markersize=7)
        side = {"va": "center", "fontsize": 10, "family": FONT, "parse_math": False, "color": INK}
        axes.text(-0.02, place, printable(row.name), transform=axes.get_yaxis_transform(), ha="right", **side)  # type: ignore[arg-type]
        axes.text(1.02, place, printable(row.words[:70]), transform=axes.get_yaxis_transform(), **side)  # type: ignore[arg-type]
    low, high = shown.ends
    axes.set_xlim(low, high)
    axes.set_ylim(-0.6, count - 0.4)
    axes.set_yticks([])
    axes.tick_params(labelsize=9)
    for edge in ("left", "right", "top"):
        axes.spines[edge].set_visible(False)
    axes.set_xlabel(printable(f"champion minus baseline, in {shown.unit}"), fontsize=10, family=FONT)
    file = io.BytesIO()
    picture.savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()

"""Champion minus baseline in each environment and for each budget, with intervals, on one axis.

Scores of two environments share no scale, so every difference is drawn in the unit of the aggregate
(tasks/stats/aggregate.py); beside it stands the difference of scores as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from tasks.describe import UNITS, difference, interval, setting, where
from tasks.numbers import number
from tasks.plots import canvas
from tasks.plots.canvas import GREEN, GREY, plain
from tasks.stats.aggregate import Aggregate, Unit, aggregates, newest, scale, unit_of
from tasks.stats.certificate import Certificate
from tasks.verdict_styles import BLUE, FAINT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Kind = Literal["search", "shown", "open", "aggregate"]
COLOURS: dict[Kind, str] = {"search": FAINT, "shown": BLUE, "open": GREY, "aggregate": GREEN}


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
    return Forest(tuple(replace(row, name=plain(row.name), words=plain(row.words)) for row in rows), UNITS[unit])


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


def draw(shown: Forest) -> Figure:
    """The rows as a figure: each interval on one axis, with its name at the left and its words at the right."""
    count = len(shown.rows)
    with canvas.styled():
        figure = canvas.blank(9, 1 + 0.36 * count)
        axes = figure.subplots()
        axes.axvline(0, color=GREY, linewidth=1.2, dashes=(5, 4))
        for place, row in enumerate(reversed(shown.rows)):
            thick = row.kind == "aggregate"
            colour, face = COLOURS[row.kind], "white" if row.kind == "open" else COLOURS[row.kind]
            if row.gain is not None:
                axes.plot([row.low, row.high], [place, place], color=colour, linewidth=4 if thick else 2)
                axes.plot([row.gain], [place], "D" if thick else "o", color=colour, markerfacecolor=face, markersize=7)
            axes.annotate(plain(row.words, 60), (1.02, place), xycoords=("axes fraction", "data"), va="center")
        axes.set_ylim(-0.6, count - 0.4)
        axes.set_yticks(range(count), [plain(row.name, 44) for row in reversed(shown.rows)])
        axes.grid(visible=False)
        axes.grid(axis="x")
        axes.set_xlabel(f"champion minus baseline, in {shown.unit}; better to the right")
    return figure

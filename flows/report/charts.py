"""Charts as SVG inside a page: colours come from the page's style sheet, so they follow its light or dark theme.

A chart is as wide as its column and keeps the proportions of `Frame`. Marks have titles, which a browser shows under
the pointer; there is no script.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

from tasks.numbers import number

Place = tuple[float, float]
LARGEST, SMALLEST = 1e300, 1e-300
"""Sizes of numbers beyond which differences and powers of ten are none; programs report any."""
CLOSE = 1e-12
"""Numbers that differ by this part of their size are drawn as one."""
FAR = 1000.0
"""Widths of the chart."""


@dataclass(frozen=True)
class Frame:
    """Size of a chart and its margins, in SVG units."""

    width: float = 900
    height: float = 320
    left: float = 62
    right: float = 16
    top: float = 28
    bottom: float = 42


@dataclass(frozen=True)
class ChartLine:
    points: tuple[Place, ...]
    style: str
    """A class of the style sheet."""
    title: str


@dataclass(frozen=True)
class Dot:
    x: float
    y: float
    style: str
    title: str
    link: str = ""


@dataclass(frozen=True)
class Scale:
    """Numbers from `low` to `high` along an axis; logarithmic where asked for."""

    low: float
    high: float
    log: bool = False

    @classmethod
    def over(cls, values: Iterable[float], log: bool = False) -> Scale:
        known = sorted(min(max(value, -LARGEST), LARGEST) for value in values)
        low, high = (known[0], known[-1]) if known else (0.0, 1.0)
        size = max(abs(low), abs(high))
        if high - low <= size * CLOSE or size < SMALLEST:
            half = size / 2 if size >= SMALLEST else 0.5
            low, high = (low / 2, high * 2) if log else (low - half, high + half)
        return cls(low, high, log)

    def fraction(self, value: float) -> float:
        """Where a value lies, from 0 to 1; of one far outside, only on which side."""
        to: Callable[[float], float] = math.log if self.log else float
        return min(max((to(value) - to(self.low)) / (to(self.high) - to(self.low)), -FAR), FAR)

    def ticks(self, most: int) -> list[float]:
        """Round numbers within the scale, at most `most` of them."""
        if self.log:
            ends = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            powers = [10.0**power for power in range(ends[0], ends[1] + 1)]
            every = math.ceil(len(powers) / most) or 1
            return powers[::every] if len(powers) > 1 else [float(f"{end:.3g}") for end in (self.low, self.high)]
        rough = (self.high - self.low) / most
        base = 10.0 ** math.floor(math.log10(rough))
        step = next(base * times for times in (1, 2, 2.5, 5, 10) if base * times >= rough * (1 - 1e-9))
        first = math.ceil(self.low / step - 1e-9)
        return [index * step for index in range(first, math.floor(self.high / step + 1e-9) + 1)]


def line_chart(lines: Sequence[ChartLine], *, x: str, y: str, within: Scale, frame: Frame = Frame()) -> str:
    """Lines over a common axis; parts outside of `within` are cut off."""
    across = Scale.over(at for line in lines for at, _ in line.points)
    drawn = []
    for line in lines:
        path = " ".join(f"{_x(frame, across, at):.1f},{_y(frame, within, value):.1f}" for at, value in line.points)
        drawn.append(f'<polyline class="{line.style}" points="{path}"><title>{escape(line.title)}</title></polyline>')
    return _svg(frame, _axes(frame, across, within, x, y) + _cut(frame, "".join(drawn)), f"{y} over {x}")


def dot_chart(
    dots: Sequence[Dot], *, x: str, y: str, across: Scale, within: Scale, names: Sequence[str] = (), frame: Frame
) -> str:
    """Points; those outside of `within` lie on its edge. (names: of 0, 1, 2, ... along x, instead of numbers)"""
    drawn = []
    for dot in dots:
        cy = _y(frame, within, min(max(dot.y, within.low), within.high))
        mark = f'<circle class="{dot.style}" cx="{_x(frame, across, dot.x):.1f}" cy="{cy:.1f}" r="4.5">'
        mark += f"<title>{escape(dot.title)}</title></circle>"
        drawn.append(f'<a href="{escape(dot.link)}">{mark}</a>' if dot.link else mark)
    return _svg(frame, _axes(frame, across, within, x, y, names) + "".join(drawn), f"{y} by {x}")


def interval_chart(rows: Sequence[tuple[str, float, float, float]], *, unit: str, width: float = 900) -> str:
    """A row for each (name, low, middle, high): a bar from 0 to the middle, and the interval on it."""
    left, step, most = 190.0, 30.0, max([high for *_, high in rows] + [1e-9])
    reach, drawn = width - left - 160, []
    for index, (name, low, middle, high) in enumerate(rows):
        top, ends = index * step + 5, [left + reach * value / most for value in (low, middle, high)]
        drawn.append(
            f'<text class="name" x="{left - 10}" y="{top + 15}" text-anchor="end">{escape(name[:26])}'
            f"<title>{escape(name)}</title></text>"
            f'<rect class="bar" x="{left}" y="{top + 2}" width="{max(ends[1] - left, 1):.1f}" height="17" rx="3"/>'
            f'<line class="whisker" x1="{ends[0]:.1f}" x2="{ends[2]:.1f}" y1="{top + 10.5}" y2="{top + 10.5}"/>'
            f'<text class="tick" x="{ends[2] + 8:.1f}" y="{top + 15}">{middle:.0%} ({low:.0%} to {high:.0%})</text>'
        )
    return _svg(Frame(width, len(rows) * step + 8), "".join(drawn), unit)


def forest_chart(
    rows: Sequence[tuple[str, Place | None, float, str, str]], *, unit: str, scale: Scale, width: float = 900
) -> str:
    """A row for each (name, ends of the interval, middle, style, words); a line marks zero, which `scale` holds.

    Without ends a row has words only.
    """
    left, step, drawn = 300.0, 30.0, list[str]()
    reach, floor = width - left - 270, len(rows) * 30.0

    def x(value: float) -> float:
        return left + reach * min(max(scale.fraction(value), 0.0), 1.0)

    for tick in scale.ticks(5):
        drawn.append(f'<line class="grid" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="0" y2="{floor:g}"/>')
        drawn.append(
            f'<text class="tick" x="{x(tick):.1f}" y="{floor + 16:g}" text-anchor="middle">{_tick(tick)}</text>'
        )
    drawn.append(f'<line class="zero" x1="{x(0):.1f}" x2="{x(0):.1f}" y1="0" y2="{floor:g}"/>')
    for index, (name, ends, middle, style, words) in enumerate(rows):
        at = index * step + 15
        shown = "<title>" + escape(f"{name}: {words}") + "</title>"
        name, words = (escape(text if len(text) <= 40 else f"{text[:39]}…") for text in (name, words))
        drawn.append(
            f'<text class="name" x="{left - 12:g}" y="{at + 5:g}" text-anchor="end">{name}{shown}</text>'
            f'<text class="tick" x="{left + reach + 12:g}" y="{at + 5:g}">{words}{shown}</text>'
        )
        if ends is not None:
            drawn.append(
                f'<line class="whisker {style}" x1="{x(ends[0]):.1f}" x2="{x(ends[1]):.1f}" y1="{at:g}" y2="{at:g}"/>'
                f'<circle class="{style}" cx="{x(middle):.1f}" cy="{at:g}" r="5">{shown}</circle>'
            )
    middle_of = left + reach / 2
    drawn.append(
        f'<text class="axis" x="{middle_of:g}" y="{floor + 36:g}" text-anchor="middle">'
        f"champion minus baseline, in {escape(unit)}</text>"
    )
    return _svg(Frame(width, floor + 44), "".join(drawn), "champion minus baseline in each environment")


def share_bar(parts: Sequence[tuple[str, float, str]], width: float = 900) -> str:
    """One bar, divided among (name, amount, style)."""
    total, at, drawn = sum(amount for _, amount, _ in parts) or 1.0, 0.0, []
    for name, amount, style in parts:
        wide = width * amount / total
        drawn.append(
            f'<rect class="{style}" x="{at:.1f}" y="0" width="{wide:.1f}" height="26">'
            f"<title>{escape(name)}: {amount / total:.0%}</title></rect>"
        )
        at += wide
    return _svg(Frame(width, 26), "".join(drawn), "shares of the time")


def timeline_chart(tracks: Sequence[tuple[str, Sequence[tuple[float, float, str, str]]]], width: float = 900) -> str:
    """A row for each (name, spans); a span is (begin, end, style, title), in seconds."""
    left, step = 74.0, 26.0
    over = max((end for _, spans in tracks for _, end, *_ in spans), default=1.0)
    unit, size = next(((name, size) for name, size in (("h", 3600.0), ("min", 60.0)) if over > 3 * size), ("s", 1.0))
    scale, reach, drawn = Scale(0.0, over / size), width - left - 10, []
    for row, (name, spans) in enumerate(tracks):
        drawn.append(f'<text class="name" x="0" y="{row * step + 16:g}">{escape(name)}</text>')
        for begin, end, style, title in spans:
            x, wide = left + reach * begin / over, max(reach * (end - begin) / over, 0.4)
            drawn.append(
                f'<rect class="{style}" x="{x:.1f}" y="{row * step + 3:g}" width="{wide:.1f}" height="18">'
                f"<title>{escape(title)}</title></rect>"
            )
    floor = len(tracks) * step + 16
    for tick in scale.ticks(8):
        x = left + reach * scale.fraction(tick)
        drawn.append(f'<text class="tick" x="{x:.1f}" y="{floor:g}" text-anchor="middle">{_tick(tick)} {unit}</text>')
    return _svg(Frame(width, floor + 8), "".join(drawn), "timeline")


def _svg(frame: Frame, content: str, label: str) -> str:
    size = f"0 0 {frame.width:g} {frame.height:g}"
    return f'<svg class="chart" viewBox="{size}" role="img" aria-label="{escape(label)}">{content}</svg>'


def _cut(frame: Frame, content: str) -> str:
    """An inner viewport: what lies outside of the axes is not shown."""
    wide, high = frame.width - frame.left - frame.right, frame.height - frame.top - frame.bottom
    area = f"{frame.left:g} {frame.top:g} {wide:g} {high:g}"
    return (
        f'<svg x="{frame.left:g}" y="{frame.top:g}" width="{wide:g}" height="{high:g}" viewBox="{area}">{content}</svg>'
    )


def _x(frame: Frame, scale: Scale, value: float) -> float:
    return frame.left + scale.fraction(value) * (frame.width - frame.left - frame.right)


def _y(frame: Frame, scale: Scale, value: float) -> float:
    return frame.height - frame.bottom - scale.fraction(value) * (frame.height - frame.top - frame.bottom)


def _axes(frame: Frame, across: Scale, up: Scale, x: str, y: str, names: Sequence[str] = ()) -> str:
    right, floor = frame.width - frame.right, frame.height - frame.bottom
    found = []
    for tick in up.ticks(5):
        at = _y(frame, up, tick)
        found.append(f'<line class="grid" x1="{frame.left:g}" x2="{right:g}" y1="{at:.1f}" y2="{at:.1f}"/>')
        found.append(
            f'<text class="tick" x="{frame.left - 8:g}" y="{at + 4:.1f}" text-anchor="end">{_tick(tick)}</text>'
        )
    places = [(float(index), name) for index, name in enumerate(names)]
    for where, name in places or [(tick, _tick(tick)) for tick in across.ticks(max(int(frame.width / 130), 2))]:
        at = _x(frame, across, where)
        found.append(f'<text class="tick" x="{at:.1f}" y="{floor + 18:.1f}" text-anchor="middle">{escape(name)}</text>')
    middle = (frame.left + right) / 2
    found.append(
        f'<text class="axis" x="{middle:.1f}" y="{frame.height - 6:.1f}" text-anchor="middle">{escape(x)}</text>'
    )
    found.append(f'<text class="axis" x="{frame.left:g}" y="{frame.top - 12:.1f}">{escape(y)}</text>')
    return "".join(found)


def _tick(value: float) -> str:
    return f"{value:g}" if 1e-4 <= abs(value) < 1e4 or value == 0 else number(value)

"""A campaign in one picture: every trial in the order of decision, and how the champion climbed.

    png = draw(history, "cartpole-1", metric="return/mean", higher_is_better=True)

A pure function of the history: equal input gives equal bytes. Only matplotlib's objects are used, never pyplot, so
that it can be called in any thread. Shape says what colour says; a trial without a score lies at the lower edge.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.labels import Box, Boxes, Room, Spot, edge_of
from tasks.trial import History, Trial, VerdictKind, baseline, best
from tasks.wording import changes, headline, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

WIDTH, HEIGHT, DPI = 1200, 675, 100
"""Pixels, and pixels per inch of what matplotlib measures in points."""
FRAME = (0.075, 0.115, 0.775, 0.69)
"""Left, bottom, width and height of the axes, as shares of the picture."""
INK, GREY, FAINT, RULE = "#1f2328", "#59636e", "#8c959f", "#e4e7eb"
BLUE, VERMILLION, PURPLE = "#0072b2", "#d55e00", "#b0508c"
"""Of Okabe and Ito's palette (the purple a little darker): told apart by every kind of eye."""
LABELS = 8
"""New champions that are labelled at most: the last one, and those that gained most."""
FEW = 5
"""Scores below which their spread says little about which of them is far out."""
BAND = 0.075
"""The share of the axes' height, at the bottom, kept for trials without a score."""
LEADING = 4
"""Pixels between the two parts of a label."""
MINUS = "\N{MINUS SIGN}"


@dataclass(frozen=True)
class Mark:
    """How a verdict is drawn; `edge` is the outline's width as a share of the size."""

    name: str
    shape: str
    outline: str
    filling: str
    edge: float
    size: float = 1.0

    def style(self, size: float) -> dict[str, Any]:
        return {
            "linestyle": "none", "marker": self.shape, "markersize": size * self.size, "markeredgecolor": self.outline,
            "markerfacecolor": self.filling, "markeredgewidth": size * self.edge,
        }  # fmt: skip


MARKS: dict[VerdictKind, Mark] = {
    "discard": Mark("discarded", "s", FAINT, FAINT, 0.0, 0.85),
    "cancelled": Mark("cancelled", "v", PURPLE, "white", 0.16),
    "crash": Mark("crashed", "x", VERMILLION, VERMILLION, 0.2),
    "keep": Mark("kept", "o", "white", BLUE, 0.1, 1.15),
}
"""In the order in which they are drawn, the kept ones on top."""


@dataclass(frozen=True)
class Window:
    """The heights that are shown; worse ones are off the scale."""

    low: float
    high: float

    def __contains__(self, height: float) -> bool:
        return self.low <= height <= self.high


def draw(history: History, campaign: str, *, metric: str, higher_is_better: bool) -> bytes:
    """The picture as a PNG of WIDTH x HEIGHT pixels."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    canvas = FigureCanvasAgg(figure(history, campaign, metric=metric, higher_is_better=higher_is_better))
    canvas.draw()  # type: ignore[no-untyped-call]
    pixels = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")  # type: ignore[no-untyped-call]
    file = io.BytesIO()
    # A palette is enough for it, and a third of the size: it travels inside a document.
    pixels.quantize(128, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(file, "PNG")
    return file.getvalue()


def figure(history: History, campaign: str, *, metric: str, higher_is_better: bool) -> Figure:
    """The picture before it is turned into pixels; the champions' labels carry the gid `label`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    picture = Figure(figsize=(WIDTH / DPI, HEIGHT / DPI), dpi=DPI, facecolor="white")
    FigureCanvasAgg(picture)  # what measures texts
    axes = picture.add_axes(FRAME, facecolor="white")
    window = visible(history, higher_is_better)
    _frame(axes, history, window)
    _lines(axes, history)
    _trials(axes, history, window)
    _title(
        picture,
        headline(history, campaign),
        f"{metric}, {'higher' if higher_is_better else 'lower'} is better",
    )
    _legend(picture, history, window)
    _margin(axes, history, window)
    _annotate(axes, history, window)
    return picture


def visible(history: History, higher_is_better: bool) -> Window:
    """The heights to show: all of them, unless some are so bad that the others would lie on one line.

    In terms of goodness, the worst quarter is left out, and what lies further below the rest than three times
    their spread is off the scale. A baseline or former champion may lie much further below: the climb is the story.
    """
    sign = 1.0 if higher_is_better else -1.0
    found = sorted(
        ((sign * h, t) for t in history if (h := height(t)) is not None), key=lambda pair: -pair[0]
    )
    if not found:
        return Window(0.0, 1.0)
    rest = [good for good, _ in found[: len(found) - len(found) // 4]]
    if 1 < len(found) < 4:
        rest = rest[: len(found) - 1]
    top, edge = rest[0], rest[-1]
    spread = (top - edge) or abs(edge) or 1.0
    reach = max(3 * spread, 5 * abs(edge) if len(found) < FEW else 0.0)
    story = max(20 * spread, 10 * abs(top), reach)
    seen = [
        (good, trial.score.se or 0.0)
        for good, trial in found
        if edge - good <= (story if trial.number == 0 or trial.verdict.kind == "keep" else reach)
    ]
    floor = max(edge - story, min(good for good, _ in seen) - 1.5 * spread)
    bottom = max(min(good - se for good, se in seen), floor)
    ceiling = min(max(good + se for good, se in seen), top + 1.5 * spread)
    pad = 0.06 * ((ceiling - bottom) or abs(top) or 1.0)
    low, high = sorted((sign * (bottom - pad), sign * (ceiling + pad)))
    return Window(low, high)


def height(trial: Trial) -> float | None:
    """Where a trial is drawn: at its score, or where it was when it was cancelled; None when it has no height."""
    return trial.runs[-1].reported if trial.verdict.kind == "cancelled" else trial.score.value


def champions(history: History) -> History:
    """The trials that became champion, in their order."""
    found: list[Trial] = []
    for trial in history:
        if trial.verdict.kind == "keep" and (not found or trial.score > found[-1].score):
            found.append(trial)
    return tuple(found)


def _frame(axes: Axes, history: History, window: Window) -> None:
    """Limits, ticks and the little that is drawn of the frame."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, ScalarFormatter

    axes.set_xlim(-0.7, max(len(history), 8) - 0.3)
    axes.set_ylim(window.low - (window.high - window.low) * BAND / (1 - BAND), window.high)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    axes.tick_params(colors=GREY, labelsize=11.5, length=0, pad=7, labelfontfamily="DejaVu Sans")
    axes.grid(axis="y", color=RULE, linewidth=1)
    axes.set_axisbelow(True)
    levels = MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]).tick_values(window.low, window.high)
    scored = any(height(trial) is not None for trial in history)
    axes.yaxis.set_major_locator(FixedLocator([level for level in levels if level in window and scored]))
    plain = ScalarFormatter(useOffset=False)
    plain.set_scientific(False)
    axes.yaxis.set_major_formatter(plain)
    stride = next(
        step
        for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
        if len(history) <= 20 * step or step == 1000
    )
    axes.xaxis.set_major_locator(FixedLocator(list(range(0, len(history), stride))))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: str(history[round(x)].number)))
    where: dict[str, Any] = {"transform": axes.transAxes, "ha": "center", "va": "center"}
    _text(axes, 0.5, -0.105, "trial, in the order of decision", INK, 12, **where)


def _lines(axes: Axes, history: History) -> None:
    """The baseline, and the champion's score over time."""
    first, steps = baseline(history), [(trial.settle, trial.score.value) for trial in champions(history)]
    if first and first.score.value is not None:
        axes.axhline(first.score.value, color=GREY, linewidth=1.4, dashes=(5, 4), zorder=2)
    if steps:
        xs, ys = zip(*steps, (axes.get_xlim()[1], steps[-1][1]), strict=True)
        axes.plot(xs, ys, color=BLUE, linewidth=2.2, drawstyle="steps-post", zorder=3)


def _trials(axes: Axes, history: History, window: Window) -> None:
    """A mark for every trial, with the error of its score; an arrow for those off the scale."""
    size = float(np.clip(11 - 1.6 * math.log2(max(len(history), 8) / 8), 4.5, 11))
    low, high = axes.get_ylim()
    lane, top = low + 0.5 * BAND * (high - low), high - 0.03 * (high - low)
    arrow: dict[str, Any] = {"linestyle": "none", "markersize": 1.3 * size, "zorder": 5, "clip_on": False}
    for kind, mark in MARKS.items():
        chosen = [(trial, height(trial)) for trial in history if trial.verdict.kind == kind]
        colour = mark.filling if mark.outline == "white" else mark.outline
        inside = [(trial, at) for trial, at in chosen if at is not None and at in window]
        if bars := [(trial.settle, at, trial.score.se) for trial, at in inside if trial.score.se]:
            style: dict[str, Any] = {"fmt": "none", "ecolor": colour, "elinewidth": max(size / 8, 0.7)}
            xs, levels, errors = zip(*bars, strict=True)
            axes.errorbar(xs, levels, errors, alpha=0.75 if len(history) <= 60 else 0.4, zorder=4, **style)
        drawn = inside + [(trial, lane) for trial, at in chosen if at is None]
        axes.plot(
            [trial.settle for trial, _ in drawn],
            [at for _, at in drawn],
            **mark.style(size),
            zorder=6 if kind == "keep" else 5,
            clip_on=False,
        )
        for trial, far in chosen:
            if far is not None and far not in window:
                shape, edge = ("$↓$", lane) if far < window.low else ("$↑$", top)
                axes.plot([trial.settle], [edge], marker=shape, color=colour, **arrow)


def _title(picture: Figure, sentence: str, facts: str) -> None:
    title = _text(picture, 0.03, 0.945, sentence, INK, 19, weight="bold", va="center")
    title.set_fontsize(min(19.0, 19.0 * 0.94 * WIDTH / title.get_window_extent().width))
    _text(picture, 0.03, 0.885, facts, GREY, 13, va="center")


def _legend(picture: Figure, history: History, window: Window) -> None:
    """What the marks mean, as far as they occur, in a row."""
    kinds = {trial.verdict.kind for trial in history}
    keys = [
        (MARKS[kind].name, MARKS[kind].style(9))
        for kind in ("keep", "discard", "cancelled", "crash")
        if kind in kinds
    ]
    if champions(history):
        keys.append(("champion so far", {"color": BLUE, "linewidth": 2.2}))
    if counts := {trial.score.n for trial in history if trial.score.se}:
        many = f"{counts.pop()} episodes" if len(counts) == 1 else "episodes"
        bar = {"linestyle": "none", "marker": "|", "markersize": 12, "markeredgewidth": 1.4, "color": GREY}
        keys.append((f"±1 se over {many}", bar))
    if far := [(trial, at) for trial in history if (at := height(trial)) is not None and at not in window]:
        trial, at = max(far, key=lambda pair: abs(pair[1]))
        more = f" and {len(far) - 1} more" if len(far) > 1 else ""
        arrow = {
            "linestyle": "none",
            "marker": "$↓$" if at < window.low else "$↑$",
            "markersize": 9,
            "color": GREY,
        }
        keys.append((f"off scale: trial {trial.number} at {number(at)}{more}", arrow))
    _row(picture, keys)


def _row(picture: Figure, keys: Sequence[tuple[str, dict[str, Any]]]) -> None:
    from matplotlib.lines import Line2D

    picture.legend(
        handles=[Line2D([], [], label=_printable(name), **style) for name, style in keys], ncols=8, frameon=False,
        loc="center left", bbox_to_anchor=(0.022, 0.835), prop={"family": "DejaVu Sans", "size": 11.5}, labelcolor=GREY,
        handletextpad=0.4, columnspacing=1.5, handlelength=1.4, borderpad=0,
    )  # fmt: skip


def _margin(axes: Axes, history: History, window: Window) -> None:
    """The names of the two lines, beside their right ends, moved apart where they would overlap."""
    first, champion = baseline(history), best(history)
    names: list[tuple[float, str, str]] = []
    if champion and champion.score.value is not None:
        which = "baseline" if champion is first else f"trial {champion.number}"
        names.append((champion.score.value, f"champion: {which}", BLUE))
    if first and first is not champion and first.score.value is not None:
        off = "" if first.score.value in window else ", off scale"
        names.append((first.score.value, f"baseline{off}", GREY))
    low, high = axes.get_ylim()
    levels = _apart([min(max((value - low) / (high - low), 0.04), 0.97) for value, *_ in names], 0.12)
    style: dict[str, Any] = {"transform": axes.transAxes, "va": "center", "gid": "margin"}
    for level, (value, name, colour) in zip(levels, names, strict=True):
        _text(axes, 1.012, level + 0.022, number(value), colour, 15, weight="bold", **style)
        _text(axes, 1.012, level - 0.026, name, colour, 11, **style)


def _apart(levels: list[float], gap: float) -> list[float]:
    """Two levels at least `gap` apart, in their order; one or none as it is."""
    if len(levels) < 2 or abs(levels[0] - levels[1]) >= gap:
        return levels
    middle, half = min(max(sum(levels) / 2, 0.1), 0.91), gap / 2 if levels[0] >= levels[1] else -gap / 2
    return [middle + half, middle - half]


def _annotate(axes: Axes, history: History, window: Window) -> None:
    """Label new champions with their trial and what it changed, where there is room."""
    crowned = champions(history)
    pairs = [(old, new) for old, new in pairwise((None, *crowned)) if new and new.number > 0]
    pairs.sort(key=lambda pair: (pair[1] is not crowned[-1], -_gain(*pair)))
    frame = axes.get_window_extent()
    room = Room(
        _obstacles(axes, history, window), (frame.x0, frame.y0 + BAND * frame.height, frame.x1, frame.y1)
    )
    for old, new in pairs[:LABELS]:
        if new.score.value is not None and new.score.value in window:
            x, y = axes.transData.transform((new.settle, new.score.value))
            any(_label(axes, room, (float(x), float(y)), new, lines) for lines in (changes(new, old), []))


def _gain(old: Trial | None, new: Trial) -> float:
    return new.score.goodness - old.score.goodness if old else math.inf


def _label(axes: Axes, room: Room, anchor: Spot, trial: Trial, lines: list[str]) -> bool:
    """Write a trial's number and `lines` beside its mark, if there is room for them; whether there was."""
    paper = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
    style: dict[str, Any] = {"transform": None, "va": "bottom", "zorder": 2.5, "gid": "label", "bbox": paper}
    texts = [_text(axes, 0, 0, f"trial {trial.number}", INK, 11, weight="bold", **style)]
    if lines:
        texts.append(_text(axes, 0, 0, "\n".join(lines), GREY, 10.5, linespacing=1.25, **style))
    sizes = [text.get_window_extent() for text in texts]
    size = max(one.width for one in sizes), sum(one.height for one in sizes) + LEADING * (len(texts) - 1)
    box = room.take(anchor, size, far=130 if lines else 60)
    if box is None:
        for text in texts:
            text.remove()
        return False
    texts[-1].set_position(box[:2])
    texts[0].set_position((box[0], box[3] - sizes[0].height))
    xs, ys = zip(anchor, edge_of(box, anchor), strict=True)
    axes.plot(xs, ys, transform=None, color=FAINT, linewidth=0.9, zorder=2)
    return True


def _obstacles(axes: Axes, history: History, window: Window) -> Boxes:
    """What no label may cover: marks with their error bars, the champion's line and the baseline's."""
    marks = [
        (trial.settle, at, trial.score.se or 0.0)
        for trial in history
        if (at := height(trial)) is not None and at in window
    ]
    boxes = [_box(axes, (x, at - se), (x, at + se), 6) for x, at, se in marks]
    ends = axes.get_xlim()
    steps = [(trial.settle, trial.score.value or 0.0) for trial in champions(history)]
    for (x, value), (until, after) in pairwise([*steps, (ends[1], steps[-1][1])] if steps else []):
        boxes += [_box(axes, (x, value), (until, value), 2), _box(axes, (until, value), (until, after), 2)]
    first = baseline(history)
    if first and first.score.value is not None:
        boxes.append(_box(axes, (ends[0], first.score.value), (ends[1], first.score.value), 2))
    return np.array(boxes, dtype=np.float64).reshape(-1, 4)


def _box(axes: Axes, one: Spot, other: Spot, border: float) -> Box:
    """The pixels between two points of the data, with a border."""
    (left, bottom), (right, top) = np.sort(axes.transData.transform([one, other]), axis=0)
    return left - border, bottom - border, right + border, top + border


def _text(at: Axes | Figure, x: float, y: float, text: str, colour: str, size: float, **more: Any) -> Text:
    """Plain text: no mathematics, whatever a parameter is called, and only what the font can show."""
    font: dict[str, Any] = {"color": colour, "fontsize": size, "family": "DejaVu Sans", "parse_math": False}
    return at.text(x, y, _printable(text), **font, **more)


def _printable(text: str) -> str:
    """What the font that comes with matplotlib can show, with minus signs for the hyphens before numbers."""
    shown = "".join(c if c in f"\n→{MINUS}±…" or (ord(c) < 0x250 and c.isprintable()) else "?" for c in text)
    return re.sub(r"(?<!\w)-(?=\d)", MINUS, shown)

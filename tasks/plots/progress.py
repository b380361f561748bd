"""A campaign in one picture: every trial in the order of decision, how the champion climbed, and what was proven.

    png = draw(history, "cartpole-1", metric="return/mean", higher_is_better=True)

The champion's line is what is believed of its level, luck allowed for, in a band of one standard deviation between
training runs: what lies within it could be luck. A certificate stands at the right end. Shape says what colour says;
a trial without a score lies at the lower edge.

A pure function: equal input gives equal bytes. Only matplotlib's objects are used, never pyplot, so that it can be
called in any thread.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.deciding.certificate import Certificate
from tasks.describe import changes, headline, number, outcome
from tasks.plots import certificate_column
from tasks.plots.data import Level, Placed, Window, champions, levels, placed, visible
from tasks.plots.label_placement import Box, Boxes, Room, Spot, edge_of
from tasks.plots.lettering import DPI, GREY, HEIGHT, INK, WIDTH, row_of_keys, text_at, title
from tasks.trial import History, Trial, VerdictKind, baseline, best

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FRAME = (0.075, 0.115, 0.775, 0.69)
"""Left, bottom, width and height of the axes, as shares of the picture."""
FAINT, RULE = "#8c959f", "#e4e7eb"
BLUE, VERMILLION, PURPLE = "#0072b2", "#d55e00", "#b0508c"
"""Of Okabe and Ito's palette (the purple a little darker): told apart by every kind of eye."""
LABELS = 8
"""New champions that are labelled at most: the last one, and those that gained most."""
BAND = 0.075
"""The share of the axes' height, at the bottom, kept for trials without a score."""
SHADE = 0.13
"""How much of its colour a band has."""
MARGIN = 0.859
"""Where the texts at the right begin, as a share of the picture's width."""
LEADING = 4
"""Pixels between the two parts of a label."""


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
class Night:
    """What is drawn, worked out once."""

    history: History
    trials: tuple[Placed, ...]
    levels: tuple[Level, ...]
    certificate: Certificate | None
    """The newest one."""
    window: Window

    @property
    def start(self) -> float | None:
        """The baseline's mean over all of its runs."""
        return next((one.at for one in self.trials if one.trial.number == 0), None)

    def of(self, trial: Trial) -> Placed:
        return next(one for one in self.trials if one.trial is trial)


def draw(
    history: History,
    campaign: str,
    *,
    metric: str,
    higher_is_better: bool,
    certificates: Sequence[Certificate] = (),
) -> bytes:
    """The picture as a PNG of WIDTH x HEIGHT pixels. (certificates: those of the campaign's own environment)"""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    canvas = FigureCanvasAgg(
        figure(history, campaign, metric=metric, higher_is_better=higher_is_better, certificates=certificates)
    )
    canvas.draw()  # type: ignore[no-untyped-call]
    pixels = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")  # type: ignore[no-untyped-call]
    file = io.BytesIO()
    # A palette is enough for it, and a third of the size: it travels inside a document.
    pixels.quantize(128, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(file, "PNG")
    return file.getvalue()


def figure(
    history: History,
    campaign: str,
    *,
    metric: str,
    higher_is_better: bool,
    certificates: Sequence[Certificate] = (),
) -> Figure:
    """The picture before it is turned into pixels; the champions' labels carry the gid `label`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    picture = Figure(figsize=(WIDTH / DPI, HEIGHT / DPI), dpi=DPI, facecolor="white")
    FigureCanvasAgg(picture)  # what measures texts
    certificate = certificates[-1] if certificates else None
    left, bottom, width, high = FRAME
    narrower = certificate_column.GAP if certificate else 0.0
    axes = picture.add_axes((left, bottom, width - narrower, high), facecolor="white")
    known = levels(history)
    also = [one.level + sd for one in known[-1:] for sd in (-one.sd, 0.0, one.sd)]
    also += certificate_column.heights(certificate) if certificate else []
    window = visible(history, higher_is_better, also)
    night = Night(history, placed(history), known, certificate, window)
    _frame(axes, night)
    _lines(axes, night)
    _trials(axes, night)
    if certificate:
        certificate_column.column(
            picture, axes, certificate, {"champion": BLUE, "baseline": GREY}, _lane(axes)
        )
    facts = f"{metric}, {'higher' if higher_is_better else 'lower'} is better"
    proof = f"  ·  {outcome(certificate)}" if certificate else ""
    title(picture, headline(history, campaign, certificates), facts + proof)
    _legend(picture, night)
    _margin(picture, axes, night)
    _annotate(axes, night)
    return picture


def _frame(axes: Axes, night: Night) -> None:
    """Limits, ticks and the little that is drawn of the frame."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, ScalarFormatter

    history, window = night.history, night.window
    axes.set_xlim(-0.7, max(len(history), 8) - 0.3)
    axes.set_ylim(window.low - (window.high - window.low) * BAND / (1 - BAND), window.high)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    axes.tick_params(colors=GREY, labelsize=11.5, length=0, pad=7, labelfontfamily="DejaVu Sans")
    axes.grid(axis="y", color=RULE, linewidth=1)
    axes.set_axisbelow(True)
    levels = MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]).tick_values(window.low, window.high)
    scored = any(one.at is not None for one in night.trials)
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
    text_at(axes, 0.5, -0.105, "trial, in the order of decision", INK, 12, **where)


def _lines(axes: Axes, night: Night) -> None:
    """The baseline, and the champion's level over time in the band of what could be luck."""
    if night.start is not None:
        axes.axhline(night.start, color=GREY, linewidth=1.4, dashes=(5, 4), zorder=2)
    if not night.levels:
        return
    xs = [*(float(one.settle) for one in night.levels), axes.get_xlim()[1]]
    ys = np.array([one.level for one in (*night.levels, night.levels[-1])])
    sds = np.array([one.sd for one in (*night.levels, night.levels[-1])])
    low, high = (np.clip(edge, night.window.low, night.window.high) for edge in (ys - sds, ys + sds))
    axes.fill_between(xs, low, high, step="post", color=BLUE, alpha=SHADE, linewidth=0, zorder=1)
    axes.plot(xs, ys, color=BLUE, linewidth=2.2, drawstyle="steps-post", zorder=3)


def _lane(axes: Axes) -> float:
    """The height of trials without a score."""
    low, high = axes.get_ylim()
    return low + 0.5 * BAND * (high - low)


def _trials(axes: Axes, night: Night) -> None:
    """A mark for every trial, with the error of its score; an arrow for those off the scale."""
    many, window = len(night.history), night.window
    size = float(np.clip(11 - 1.6 * math.log2(max(many, 8) / 8), 4.5, 11))
    low, high = axes.get_ylim()
    lane, top = _lane(axes), high - 0.03 * (high - low)
    arrow: dict[str, Any] = {"linestyle": "none", "markersize": 1.3 * size, "zorder": 5, "clip_on": False}
    for kind, mark in MARKS.items():
        chosen = [(one.trial, one.at, one.error) for one in night.trials if one.trial.verdict.kind == kind]
        colour = mark.filling if mark.outline == "white" else mark.outline
        inside = [(trial, at, error) for trial, at, error in chosen if at is not None and at in window]
        if bars := [(trial.settle, at, error) for trial, at, error in inside if error]:
            style: dict[str, Any] = {"fmt": "none", "ecolor": colour, "elinewidth": max(size / 8, 0.7)}
            xs, heights, errors = zip(*bars, strict=True)
            axes.errorbar(xs, heights, errors, alpha=0.75 if many <= 60 else 0.4, zorder=4, **style)
        drawn = [(trial, at) for trial, at, _ in inside]
        drawn += [(trial, lane) for trial, at, _ in chosen if at is None]
        axes.plot(
            [trial.settle for trial, _ in drawn],
            [at for _, at in drawn],
            **mark.style(size),
            zorder=6 if kind == "keep" else 5,
            clip_on=False,
        )
        for trial, far, _ in chosen:
            if far is not None and far not in window:
                shape, edge = ("$↓$", lane) if far < window.low else ("$↑$", top)
                axes.plot([trial.settle], [edge], marker=shape, color=colour, **arrow)


def _legend(picture: Figure, night: Night) -> None:
    """What the marks mean, as far as they occur, in a row."""
    kinds = {trial.verdict.kind for trial in night.history}
    band: dict[str, Any] = {"linewidth": 10, "solid_capstyle": "butt"}
    keys = [
        (MARKS[kind].name, MARKS[kind].style(9))
        for kind in ("keep", "discard", "cancelled", "crash")
        if kind in kinds
    ]
    if night.levels:
        keys.append(("champion's level", {"color": BLUE, "linewidth": 2.2}))
        if night.levels[-1].sd > 1e-3 * (night.window.high - night.window.low):
            keys.append(("±1 sd between runs", {"color": BLUE, "alpha": SHADE, **band}))
    if over := _over(night.trials):
        bar = {"linestyle": "none", "marker": "|", "markersize": 12, "markeredgewidth": 1.4, "color": GREY}
        keys.append((f"±1 se over {over}", bar))
    if night.certificate:
        keys.append(("95 % interval of a mean", {"color": GREY, "alpha": 2 * SHADE, **band}))
    if far := [
        (one.trial, one.at) for one in night.trials if one.at is not None and one.at not in night.window
    ]:
        trial, at = max(far, key=lambda pair: abs(pair[1]))
        more = f" and {len(far) - 1} more" if len(far) > 1 else ""
        shape = "$↓$" if at < night.window.low else "$↑$"
        arrow = {"linestyle": "none", "marker": shape, "markersize": 9, "color": GREY}
        keys.append((f"off scale: trial {trial.number} at {number(at)}{more}", arrow))
    row_of_keys(picture, keys)


def _over(trials: Sequence[Placed]) -> str:
    """What the error bars are over, in words; empty when there are none."""
    barred = [one for one in trials if one.error and one.trial.verdict.kind != "cancelled"]
    counts = {one.trial.score.n for one in barred if one.runs == 1}
    episodes = f"{counts.pop()} episodes" if len(counts) == 1 else "episodes" * bool(counts)
    runs = "runs" * any(one.runs > 1 for one in barred)
    return " or ".join(part for part in (episodes, runs) if part)


def _margin(picture: Figure, axes: Axes, night: Night) -> None:
    """The names of the two lines, beside their right ends, moved apart where they would overlap."""
    from matplotlib.transforms import blended_transform_factory

    names = _fresh_names(night.certificate) if night.certificate else _names(night)
    low, high = axes.get_ylim()
    heights = _apart([min(max((value - low) / (high - low), 0.04), 0.97) for value, *_ in names], 0.12)
    where = blended_transform_factory(picture.transFigure, axes.transAxes)
    style: dict[str, Any] = {"transform": where, "va": "center", "gid": "margin"}
    for at, (value, name, colour) in zip(heights, names, strict=True):
        text_at(axes, MARGIN, at + 0.022, number(value), colour, 15, weight="bold", **style)
        text_at(axes, MARGIN, at - 0.026, name, colour, 11, **style)


def _names(night: Night) -> list[tuple[float, str, str]]:
    """The champion's level and the baseline's mean: value, name, colour."""
    first, champion, start = baseline(night.history), best(night.history), night.start
    names: list[tuple[float, str, str]] = []
    if champion and night.levels and champion is not first:
        names.append((night.levels[-1].level, f"champion: trial {champion.number}", BLUE))
    if first and start is not None:
        off = "" if start in night.window else ", off scale"
        stands = champion is first
        names.append((start, "champion: baseline" if stands else f"baseline{off}", BLUE if stands else GREY))
    return names


def _fresh_names(certificate: Certificate) -> list[tuple[float, str, str]]:
    """The means of both arms over their fresh runs."""
    mine, theirs = certificate.mean("champion"), certificate.mean("baseline")
    names = [(mine, f"trial {certificate.champion}, fresh", BLUE), (theirs, "baseline, fresh", GREY)]
    return [(value, name, colour) for value, name, colour in names if value is not None]


def _apart(levels: list[float], gap: float) -> list[float]:
    """Two levels at least `gap` apart, in their order; one or none as it is."""
    if len(levels) < 2 or abs(levels[0] - levels[1]) >= gap:
        return levels
    middle, half = min(max(sum(levels) / 2, 0.1), 0.91), gap / 2 if levels[0] >= levels[1] else -gap / 2
    return [middle + half, middle - half]


def _annotate(axes: Axes, night: Night) -> None:
    """Label new champions with their trial and what it changed, where there is room."""
    crowned = champions(night.history)
    pairs = [(old, new) for old, new in pairwise((None, *crowned)) if new and new.number > 0]
    pairs.sort(key=lambda pair: (pair[1] is not crowned[-1], -_gain(*pair)))
    frame = axes.get_window_extent()
    room = Room(_obstacles(axes, night), (frame.x0, frame.y0 + BAND * frame.height, frame.x1, frame.y1))
    for old, new in pairs[:LABELS]:
        at = night.of(new).at
        if at is not None and at in night.window:
            x, y = axes.transData.transform((new.settle, at))
            any(_label(axes, room, (float(x), float(y)), new, lines) for lines in (changes(new, old), []))


def _gain(old: Trial | None, new: Trial) -> float:
    return new.score.goodness - old.score.goodness if old else math.inf


def _label(axes: Axes, room: Room, anchor: Spot, trial: Trial, lines: list[str]) -> bool:
    """Write a trial's number and `lines` beside its mark, if there is room for them; whether there was."""
    paper = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
    style: dict[str, Any] = {"transform": None, "va": "bottom", "zorder": 2.5, "gid": "label", "bbox": paper}
    texts = [text_at(axes, 0, 0, f"trial {trial.number}", INK, 11, weight="bold", **style)]
    if lines:
        texts.append(text_at(axes, 0, 0, "\n".join(lines), GREY, 10.5, linespacing=1.25, **style))
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


def _obstacles(axes: Axes, night: Night) -> Boxes:
    """What no label may cover: marks with their error bars, the line of the champion's level and the baseline's."""
    marks = [
        (one.trial.settle, one.at, one.error)
        for one in night.trials
        if one.at is not None and one.at in night.window
    ]
    boxes = [_box(axes, (x, at - error), (x, at + error), 6) for x, at, error in marks]
    ends = axes.get_xlim()
    steps = [(float(one.settle), one.level) for one in night.levels]
    for (x, value), (until, after) in pairwise([*steps, (ends[1], steps[-1][1])] if steps else []):
        boxes += [_box(axes, (x, value), (until, value), 2), _box(axes, (until, value), (until, after), 2)]
    if night.start is not None:
        boxes.append(_box(axes, (ends[0], night.start), (ends[1], night.start), 2))
    return np.array(boxes, dtype=np.float64).reshape(-1, 4)


def _box(axes: Axes, one: Spot, other: Spot, border: float) -> Box:
    """The pixels between two points of the data, with a border."""
    (left, bottom), (right, top) = np.sort(axes.transData.transform([one, other]), axis=0)
    return left - border, bottom - border, right + border, top + border

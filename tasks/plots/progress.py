"""A campaign in one picture: every trial in the order of decision, the champion estimate, and the certificate.

    png = draw(history, "cartpole-1", metric="return/mean", higher_is_better=True)

The band around the champion estimate is one standard deviation between training runs. Verdicts differ in shape as well
as in colour; trials without a score lie at the lower edge, and a certificate's fresh runs in a column at the right.

A pure function: equal input gives equal bytes. It avoids pyplot, whose state is global, so any thread may call it.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.deciding.certificate import Certificate
from tasks.describe import changes, headline, number, outcome
from tasks.plots.certificate_column import WIDTH_TAKEN, draw_column
from tasks.plots.data import EstimatePoint, PlottedTrial, Window, champions, estimates, plotted, visible
from tasks.plots.text import FONT, GREY, INK, Boxes, free_box, printable, text_at
from tasks.trial import History, Trial, VerdictKind, baseline, best

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT, DPI = 1200, 675, 100
"""Pixels, and pixels per inch of what matplotlib measures in points."""
FRAME = (0.075, 0.115, 0.775, 0.69)
"""Left, bottom, width and height of the axes, as shares of the picture."""
FAINT, RULE = "#8c959f", "#e4e7eb"
BLUE, VERMILLION, PURPLE = "#0072b2", "#d55e00", "#b0508c"
"""Okabe and Ito's palette (the purple a little darker), which colour-blind readers can tell apart."""
LABELS = 8
"""Most champions that are labelled: the last one, and those that gained most."""
BAND = 0.075
"""The share of the axes' height, at the bottom, for trials without a score."""
SHADE = 0.13
"""Opacity of bands."""
MARGIN = 0.859
"""Where the texts at the right begin, as a share of the picture's width."""


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
"""In drawing order: kept trials lie on top."""


@dataclass(frozen=True)
class PlotData:
    """All that is drawn, computed once."""

    history: History
    trials: tuple[PlottedTrial, ...]
    estimates: tuple[EstimatePoint, ...]
    certificate: Certificate | None
    window: Window

    @property
    def baseline(self) -> float | None:
        """The baseline's mean over all of its runs."""
        return next((point.at for point in self.trials if point.trial.number == 0), None)

    @property
    def scored(self) -> list[tuple[PlottedTrial, float]]:
        """The trials with a height."""
        return [(point, point.at) for point in self.trials if point.at is not None]


def draw(
    history: History,
    campaign: str,
    *,
    metric: str,
    higher_is_better: bool,
    certificates: Sequence[Certificate] = (),
) -> bytes:
    """The picture as a PNG of WIDTH x HEIGHT pixels. (certificates: those of the campaign's own environment)"""
    from PIL import Image

    picture = figure(
        history, campaign, metric=metric, higher_is_better=higher_is_better, certificates=certificates
    )
    canvas: Any = picture.canvas
    canvas.draw()
    pixels = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")  # type: ignore[no-untyped-call]
    file = io.BytesIO()
    # A palette needs a third of the bytes, and the picture travels inside a document.
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
    """The picture before it becomes pixels; the labels of champions carry the gid `label`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    picture = Figure(figsize=(WIDTH / DPI, HEIGHT / DPI), dpi=DPI, facecolor="white")
    FigureCanvasAgg(picture)  # needed to measure text
    certificate = certificates[-1] if certificates else None
    points = estimates(history)
    also = [point.value + sd for point in points[-1:] for sd in (-point.sd, 0.0, point.sd)]
    also += (
        [run.score.value for run in certificate.runs if run.score.value is not None] if certificate else []
    )
    data = PlotData(history, plotted(history), points, certificate, visible(history, higher_is_better, also))
    left, bottom, width, height = FRAME
    axes = picture.add_axes((left, bottom, width - (WIDTH_TAKEN if certificate else 0), height))
    _frame(axes, data)
    _lines(axes, data)
    _trials(axes, data)
    if certificate:
        draw_column(picture, axes, certificate, {"champion": BLUE, "baseline": GREY}, _lane(axes))
    facts = f"{metric}, {'higher' if higher_is_better else 'lower'} is better"
    facts += f"  ·  {outcome(certificate)}" if certificate else ""
    _title(picture, 0.945, headline(history, campaign, certificates), INK, 19, "bold")
    _title(picture, 0.885, facts, GREY, 13, "normal")
    _legend(picture, _keys(data))
    _margin(picture, axes, data)
    _labels(axes, data)
    return picture


def _frame(axes: Axes, data: PlotData) -> None:
    """Limits, ticks and grid."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, ScalarFormatter

    history, window = data.history, data.window
    axes.set_xlim(-0.7, max(len(history), 8) - 0.3)
    axes.set_ylim(window.low - (window.high - window.low) * BAND / (1 - BAND), window.high)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    axes.tick_params(colors=GREY, labelsize=11.5, length=0, pad=7, labelfontfamily=FONT)
    axes.grid(axis="y", color=RULE, linewidth=1)
    axes.set_axisbelow(True)
    ticks = MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]).tick_values(window.low, window.high)
    axes.yaxis.set_major_locator(FixedLocator([tick for tick in ticks if tick in window and data.scored]))
    plain = ScalarFormatter(useOffset=False)
    plain.set_scientific(False)
    axes.yaxis.set_major_formatter(plain)
    stride = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if len(history) <= 20 * step)
    axes.xaxis.set_major_locator(FixedLocator(list(range(0, len(history), stride))))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: str(history[round(x)].number)))
    where: dict[str, Any] = {"transform": axes.transAxes, "ha": "center", "va": "center"}
    text_at(axes, 0.5, -0.105, "trial, in the order of decision", INK, 12, **where)


def _lines(axes: Axes, data: PlotData) -> None:
    """The baseline, and the champion estimate in its band."""
    if data.baseline is not None:
        axes.axhline(data.baseline, color=GREY, linewidth=1.4, dashes=(5, 4), zorder=2)
    if data.estimates:
        xs, ys, sds = _steps(axes, data)
        low, high = (np.clip(edge, data.window.low, data.window.high) for edge in (ys - sds, ys + sds))
        axes.fill_between(xs, low, high, step="post", color=BLUE, alpha=SHADE, linewidth=0, zorder=1)
        axes.plot(xs, ys, color=BLUE, linewidth=2.2, drawstyle="steps-post", zorder=3)


def _steps(axes: Axes, data: PlotData) -> tuple[Boxes, Boxes, Boxes]:
    """The champion estimate up to the right edge: places, values and standard deviations."""
    points = [(point.settle, point.value, point.sd) for point in data.estimates]
    xs, ys, sds = np.array([*points, (axes.get_xlim()[1], *points[-1][1:])]).T
    return xs, ys, sds


def _lane(axes: Axes) -> float:
    """The height of trials without a score."""
    low, high = axes.get_ylim()
    return low + 0.5 * BAND * (high - low)


def _trials(axes: Axes, data: PlotData) -> None:
    """A mark for every trial, with the error of its score; an arrow for those off the scale."""
    many, window, lane = len(data.history), data.window, _lane(axes)
    size = float(np.clip(11 - 1.6 * math.log2(max(many, 8) / 8), 4.5, 11))
    for kind, mark in MARKS.items():
        points = [point for point in data.trials if point.trial.verdict.kind == kind]
        inside = [point for point in points if point.at is None or point.at in window]
        heights = [lane if point.at is None else point.at for point in inside]
        places, errors = [point.trial.settle for point in inside], [point.error for point in inside]
        colour = mark.filling if mark.outline == "white" else mark.outline
        bars: dict[str, Any] = {
            "fmt": "none",
            "ecolor": colour,
            "elinewidth": max(size / 8, 0.7),
            "zorder": 4,
        }
        if any(errors):
            axes.errorbar(places, heights, errors, alpha=0.75 if many <= 60 else 0.4, **bars)
        axes.plot(places, heights, **mark.style(size), zorder=6 if kind == "keep" else 5, clip_on=False)
        for point in points:
            if point.at is not None and point.at not in window:
                below = point.at < window.low
                edge = lane if below else window.high - 0.03 * (window.high - window.low)
                shape: dict[str, Any] = {"marker": "$↓$" if below else "$↑$", "markersize": 1.3 * size}
                axes.plot([point.trial.settle], [edge], color=colour, **shape, zorder=5, clip_on=False)


def _title(picture: Figure, y: float, words: str, colour: str, size: float, weight: str) -> None:
    """A line across the top, smaller where it would be too long."""
    text = text_at(picture, 0.03, y, words, colour, size, va="center", weight=weight)
    text.set_fontsize(min(size, size * 0.9 * WIDTH / text.get_window_extent().width))


def _keys(data: PlotData) -> list[tuple[str, dict[str, Any]]]:
    """The legend's names and styles, only for what the picture contains."""
    kinds: tuple[VerdictKind, ...] = ("keep", "discard", "cancelled", "crash")
    present = {trial.verdict.kind for trial in data.history}
    keys = [(MARKS[kind].name, MARKS[kind].style(9)) for kind in kinds if kind in present]
    band: dict[str, Any] = {"linewidth": 10, "solid_capstyle": "butt"}
    if data.estimates:
        keys.append(("champion estimate", {"color": BLUE, "linewidth": 2.2}))
        if data.estimates[-1].sd > 1e-3 * (data.window.high - data.window.low):
            keys.append(("±1 sd between runs", {"color": BLUE, "alpha": SHADE, **band}))
    barred = [point for point in data.trials if point.error]
    counts = {point.trial.score.n for point in barred if point.runs == 1}
    units = f"{counts.pop()} episodes" if len(counts) == 1 else "episodes" * bool(counts)
    over = [name for name in (units, "runs" * any(point.runs > 1 for point in barred)) if name]
    if over:
        bar = {"linestyle": "none", "marker": "|", "markersize": 12, "markeredgewidth": 1.4, "color": GREY}
        keys.append((f"±1 se over {' or '.join(over)}", bar))
    if data.certificate:
        keys.append(("95 % interval of a mean", {"color": GREY, "alpha": 2 * SHADE, **band}))
    if far := [(abs(at), at, point.trial.number) for point, at in data.scored if at not in data.window]:
        _, at, trial = max(far)
        arrow = {"marker": "$↓$" if at < data.window.low else "$↑$", "markersize": 9, "color": GREY}
        more = f" and {len(far) - 1} more" * (len(far) > 1)
        keys.append((f"off scale: trial {trial} at {number(at)}{more}", {"linestyle": "none", **arrow}))
    return keys


def _legend(picture: Figure, keys: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """The legend in one row, in the largest size that fits."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], label=printable(name), **style) for name, style in keys]
    for size in (11.5, 10.5, 9.5, 8.5, 7.5):
        for old in picture.legends:
            old.remove()
        legend = picture.legend(
            handles=handles, ncols=len(keys) or 1, frameon=False, loc="center left", bbox_to_anchor=(0.022, 0.835),
            prop={"family": FONT, "size": size}, labelcolor=GREY, handletextpad=0.4, columnspacing=1.5,
            handlelength=1.4, borderpad=0,
        )  # fmt: skip
        if legend.get_window_extent().x1 <= 0.985 * WIDTH:
            return


def _margin(picture: Figure, axes: Axes, data: PlotData) -> None:
    """Value and name of the two lines beside their right ends, moved apart where they would overlap."""
    from matplotlib.transforms import blended_transform_factory

    low, high = axes.get_ylim()
    names = _names(data)
    heights = [min(max((value - low) / (high - low), 0.04), 0.97) for value, *_ in names]
    if len(heights) == 2 and abs(heights[0] - heights[1]) < 0.12:
        middle, half = min(max(sum(heights) / 2, 0.1), 0.91), math.copysign(0.06, heights[0] - heights[1])
        heights = [middle + half, middle - half]
    style: dict[str, Any] = {"va": "center", "gid": "margin"}
    style["transform"] = blended_transform_factory(picture.transFigure, axes.transAxes)
    for at, (value, name, colour) in zip(heights, names, strict=True):
        text_at(axes, MARGIN, at + 0.022, number(value), colour, 15, weight="bold", **style)
        text_at(axes, MARGIN, at - 0.026, name, colour, 11, **style)


def _names(data: PlotData) -> list[tuple[float, str, str]]:
    """Value, name and colour of champion and baseline: of their fresh runs where there is a certificate."""
    if data.certificate:
        mine, theirs = data.certificate.mean("champion"), data.certificate.mean("baseline")
        fresh = [(mine, f"trial {data.certificate.champion}, fresh", BLUE), (theirs, "baseline, fresh", GREY)]
        return [(value, name, colour) for value, name, colour in fresh if value is not None]
    first, champion, start = baseline(data.history), best(data.history), data.baseline
    names: list[tuple[float, str, str]] = []
    if champion and data.estimates and champion is not first:
        names.append((data.estimates[-1].value, f"champion: trial {champion.number}", BLUE))
    if start is not None and champion is first:
        names.append((start, "champion: baseline", BLUE))
    elif start is not None:
        names.append((start, "baseline" if start in data.window else "baseline, off scale", GREY))
    return names


def _labels(axes: Axes, data: PlotData) -> None:
    """Label champions with their number and what they changed, where there is room."""
    kept = champions(data.history)
    pairs = [(old, new) for old, new in zip((None, *kept), kept, strict=False) if new.number > 0]
    pairs.sort(key=lambda pair: (pair[1] is not kept[-1], -_gain(*pair)))
    heights = {point.trial.number: at for point, at in data.scored if at in data.window}
    taken = _obstacles(axes, data)
    for old, new in pairs[:LABELS]:
        if new.number in heights:
            anchor = axes.transData.transform((new.settle, heights[new.number]))
            for lines in (changes(new, old), []):
                box = _label(axes, taken, anchor, new, lines)
                if box is not None:
                    taken = np.vstack([taken, box])
                    break


def _gain(old: Trial | None, new: Trial) -> float:
    return new.score.goodness - old.score.goodness if old else math.inf


def _label(axes: Axes, taken: Boxes, anchor: Boxes, trial: Trial, lines: list[str]) -> Boxes | None:
    """Write a trial's number and `lines` beside its mark, off the boxes `taken`; its box, or None without room."""
    style: dict[str, Any] = {"transform": None, "va": "bottom", "zorder": 2.5, "gid": "label"}
    style["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
    texts = [text_at(axes, 0, 0, f"trial {trial.number}", INK, 11, weight="bold", **style)]
    if lines:
        texts.append(text_at(axes, 0, 0, "\n".join(lines), GREY, 10.5, linespacing=1.25, **style))
    sizes = np.array([text.get_window_extent().size for text in texts])
    size = np.array([sizes[:, 0].max(), sizes[:, 1].sum() + 4 * (len(texts) - 1)])
    (left, low), (right, high) = axes.get_window_extent().get_points()
    frame = np.array([left, low + BAND * (high - low), right, high])
    box = free_box(anchor, size, taken, frame, far=110 if lines else 55)
    if box is None:
        for text in texts:
            text.remove()
        return None
    texts[-1].set_position((box[0], box[1]))
    texts[0].set_position((box[0], box[3] - sizes[0, 1]))
    end = np.clip(anchor, box[:2] - 3, box[2:] + 3)
    axes.plot(*zip(anchor, end, strict=True), transform=None, color=FAINT, linewidth=0.9, zorder=2)
    return box


def _obstacles(axes: Axes, data: PlotData) -> Boxes:
    """Boxes that no label may cover: marks with their error bars, the champion estimate, the baseline."""

    def boxes(starts: Any, ends: Any, border: float) -> Boxes:
        one, other = (axes.transData.transform(np.reshape(points, (-1, 2))) for points in (starts, ends))
        return np.hstack([np.minimum(one, other) - border, np.maximum(one, other) + border])

    marks = [(point.trial.settle, at, point.error) for point, at in data.scored if at in data.window]
    found = [
        boxes([(x, at - error) for x, at, error in marks], [(x, at + error) for x, at, error in marks], 6)
    ]
    if data.estimates:
        xs, ys, _ = _steps(axes, data)
        corners = np.stack([xs[1:], ys[:-1]], 1)
        found.append(boxes(np.stack([xs, ys], 1)[:-1], corners, 2))
        found.append(boxes(corners, np.stack([xs, ys], 1)[1:], 2))
    if data.baseline is not None:
        found.append(boxes(*([(x, data.baseline)] for x in axes.get_xlim()), 2))
    return np.vstack(found)

"""A campaign in one picture: every trial in the order of decision, the champion estimate, and the certificate.

    picture = draw(history, "cartpole-1", metric="return/mean", higher_is_better=True)

The band around the champion estimate is one standard deviation between training runs. Verdicts differ in shape as well
as in colour; trials without a score lie at the lower edge, and a certificate's fresh runs in a column at the right.

A pure function: equal input gives equal bytes. It avoids pyplot, whose state is global, so any thread may call it.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.certifying.certificate import Certificate
from tasks.describe import changes, headline, outcome
from tasks.numbers import number
from tasks.plots.certificate_column import WIDTH_TAKEN, draw_column
from tasks.plots.data import PlottedTrial, Window, estimates, plotted, visible
from tasks.plots.text import FONT, GREY, INK, Boxes, free_box, printable, text_at
from tasks.trial import History, baseline, best
from tasks.verdict_styles import BLUE, FAINT, VERDICTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT, DPI = 1200, 675, 100
"""Pixels, and pixels per inch of what matplotlib measures in points."""
FRAME = (0.075, 0.115, 0.775, 0.69)
"""Left, bottom, width and height of the axes, as shares of the picture."""
RULE = "#e4e7eb"
LABELS = 8
"""Most champions that are labelled: the last one, and those that gained most."""
BAND = 0.075
"""The share of the axes' height, at the bottom, for trials without a score."""
NAME_WIDTH = 20
"""Characters of a parameter's name in a label."""
MARGIN = 0.859
"""Where the texts at the right begin, as a share of the picture's width."""


@dataclass(frozen=True)
class PlotData:
    """The numbers that are drawn."""

    history: History
    trials: tuple[PlottedTrial, ...]
    estimates: Boxes
    """See `data.estimates`."""
    certificate: Certificate | None
    window: Window
    baseline: float | None
    """The mean of its runs."""


def png(picture: Figure) -> bytes:
    """A PNG of WIDTH x HEIGHT pixels."""
    from PIL import Image

    canvas: Any = picture.canvas
    canvas.draw()
    pixels = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    file = io.BytesIO()
    # A palette needs a third of the bytes, and the picture travels inside a document.
    pixels.quantize(128, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(file, "PNG")
    return file.getvalue()


def draw(
    history: History, campaign: str, *, metric: str, higher_is_better: bool, certificates: Sequence[Certificate] = ()
) -> Figure:
    """Draw a campaign; `certificates` are those of its own environment, oldest first."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    picture = Figure(figsize=(WIDTH / DPI, HEIGHT / DPI), dpi=DPI, facecolor="white")
    FigureCanvasAgg(picture)  # needed to measure text
    certificate = certificates[-1] if certificates else None
    trials, points = plotted(history), estimates(history)
    also = [level + sd for _, level, spread in points[-1:] for sd in (-spread, 0.0, spread)]
    also += [run.score.value for run in certificate.runs if run.score.value is not None] if certificate else []
    start = next((point.at for point in trials if point.trial.number == 0), None)
    data = PlotData(history, trials, points, certificate, visible(trials, higher_is_better, also), start)
    left, bottom, width, height = FRAME
    axes = picture.add_axes((left, bottom, width - (WIDTH_TAKEN if certificate else 0), height))
    _frame(axes, data)
    lane = float(np.interp(0.5 * BAND, [0, 1], axes.get_ylim()))
    _trials(axes, data, lane)
    _lines(axes, data)
    if certificate:
        draw_column(picture, axes, certificate, {"champion": BLUE, "baseline": GREY}, lane)
    facts = f"{metric}, {'higher' if higher_is_better else 'lower'} is better"
    facts += f"  ·  {outcome(certificate)}" if certificate else ""
    _title(picture, 0.945, headline(history, campaign, certificates), INK, 19, "bold")
    _title(picture, 0.885, facts, GREY, 13, "normal")
    _legend(picture)
    _margin(picture, axes, data)
    _labels(axes, data)
    return picture


def _frame(axes: Axes, data: PlotData) -> None:
    """Limits, ticks and grid."""
    from matplotlib.ticker import MaxNLocator

    history, window = data.history, data.window
    height = (window.high - window.low) / (1 - BAND)
    axes.set(xlim=(-0.7, max(len(history), 8) - 0.3), ylim=(window.high - height, window.high))
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    axes.tick_params(colors=GREY, labelsize=11.5, length=0, pad=7, labelfontfamily=FONT)
    axes.ticklabel_format(axis="y", style="plain", useOffset=False)
    axes.grid(axis="y", color=RULE, linewidth=1)
    axes.set_axisbelow(True)
    ticks = MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]).tick_values(window.low, window.high)
    scored = any(point.at is not None for point in data.trials)
    axes.set_yticks([tick for tick in ticks if tick in window and scored])
    stride = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if len(history) <= 20 * step)
    axes.set_xticks(
        range(0, len(history), stride), [str(trial.number) for trial in history[::stride]], parse_math=False
    )
    where: dict[str, Any] = {"transform": axes.transAxes, "ha": "center", "va": "center"}
    text_at(axes, 0.5, -0.105, "trial, in the order of decision", INK, 12, **where)


def _trials(axes: Axes, data: PlotData, lane: float) -> None:
    """A mark for every trial, with the error of its score; an arrow for those off the scale."""
    many, window = len(data.history), data.window
    size = float(np.clip(11 - 1.6 * math.log2(max(many, 8) / 8), 4.5, 11))
    common: dict[str, Any] = {"linestyle": "none", "clip_on": False, "zorder": 5}
    inside = [point for point in data.trials if point.at is None or point.at in window]
    for kind, shown in VERDICTS.items():
        spots = [
            (point.place, lane if point.at is None else point.at)
            for point in inside
            if point.trial.verdict.kind == kind and not _is_dot(point)
        ]
        if spots:
            mark: dict[str, Any] = {"markeredgewidth": 0.15 * size, **shown.plot}
            axes.plot(*zip(*spots, strict=True), **common | mark | {"markersize": size * mark["markersize"]})
    if dots := [(one.place, one.at or 0.0, one.trial.proposal.share) for one in inside if _is_dot(one)]:
        places, heights, shares = zip(*dots, strict=True)
        dot: dict[str, Any] = {"marker": "o", "markeredgewidth": 0, "color": FAINT, "markersize": 0.45 * size}
        axes.plot(places, heights, label=printable(f"{shares[0]:.0%} of the budget"), **common | dot)
    bars = [(one.place, one.at or 0.0, one.error) for one in inside if one.error and not _is_dot(one)]
    if bars:
        faint = 0.75 if many <= 60 else 0.4
        style: dict[str, Any] = {
            "fmt": "none",
            "ecolor": GREY,
            "elinewidth": max(size / 8, 0.7),
            "alpha": faint,
            "zorder": 4,
        }
        places, heights, errors = zip(*bars, strict=True)
        axes.errorbar(places, heights, errors, label=f"±1 se over {_averaged(inside)}", **style)
    far = [(point, point.at) for point in data.trials if point.at is not None and point.at not in window]
    for index, (point, at) in enumerate(sorted(far, key=lambda pair: -abs(pair[1]))):
        arrow, edge = ("$↓$", lane) if at < window.low else ("$↑$", window.high - 0.03 * (window.high - window.low))
        more = f" and {len(far) - 1} more" * (len(far) > 1)
        label = printable(f"off scale: trial {point.trial.number} at {number(at)}{more}") if index == 0 else None
        style = common | {"marker": arrow, "markersize": 1.3 * size, "color": GREY, "label": label}
        axes.plot([point.place], [edge], **style)


def _is_dot(point: PlottedTrial) -> bool:
    """Whether it is a short trial with a score, which is not like the scores beside it."""
    return point.trial.proposal.is_short and point.at is not None


def _averaged(points: Sequence[PlottedTrial]) -> str:
    """What the error bars are over, such as `16 episodes or runs`."""
    counts = {point.trial.score.n for point in points if point.error and point.runs == 1}
    units = f"{counts.pop()} episodes" if len(counts) == 1 else "episodes" * bool(counts)
    runs = "runs" * any(point.error and point.runs > 1 for point in points)
    return " or ".join(name for name in (units, runs) if name)


def _lines(axes: Axes, data: PlotData) -> None:
    """The baseline, and the champion estimate in its band."""
    if data.baseline is not None:
        axes.axhline(data.baseline, color=GREY, linewidth=1.4, dashes=(5, 4), zorder=2)
    if len(data.estimates):
        window, (xs, ys, sds) = data.window, _steps(axes, data)
        style: dict[str, Any] = {"color": BLUE, "linewidth": 2.2, "drawstyle": "steps-post", "zorder": 3}
        axes.plot(xs, ys, label="champion estimate", **style)
        label = "±1 sd between runs" if sds[-1] > 1e-3 * (window.high - window.low) else None
        low, high = (np.clip(edge, window.low, window.high) for edge in (ys - sds, ys + sds))
        style = {"step": "post", "color": BLUE, "alpha": 0.13, "linewidth": 0, "zorder": 1}
        axes.fill_between(xs, low, high, label=label, **style)


def _steps(axes: Axes, data: PlotData) -> Boxes:
    """The champion estimate up to the right edge, shape (3, points)."""
    return np.vstack([data.estimates, [axes.get_xlim()[1], *data.estimates[-1, 1:]]]).T


def _title(picture: Figure, y: float, words: str, colour: str, size: float, weight: str) -> None:
    """A line across the top, smaller where it would be too long."""
    text = text_at(picture, 0.03, y, words, colour, size, va="center", weight=weight)
    text.set_fontsize(min(size, size * 0.9 * WIDTH / text.get_window_extent().width))


def _legend(picture: Figure) -> None:
    """The legend in one row, in the largest size that fits."""
    handles = [handle for axes in picture.axes for handle in axes.get_legend_handles_labels()[0]]
    for size in (11.5, 10.5, 9.5, 8.5, 7.5):
        picture.legends.clear()
        legend = picture.legend(
            handles=handles, ncols=len(handles) or 1, frameon=False, loc="center left", bbox_to_anchor=(0.022, 0.835),
            prop={"family": FONT, "size": size}, labelcolor=GREY, handletextpad=0.4, columnspacing=1.5,
            handlelength=1.4, borderpad=0,
        )  # fmt: skip
        for line in legend.get_lines():
            line.set_markersize(8)
        if legend.get_window_extent().x1 <= 0.985 * WIDTH:
            return


def _margin(picture: Figure, axes: Axes, data: PlotData) -> None:
    """Value and name of champion and baseline at the right, moved apart where they would overlap."""
    from matplotlib.transforms import blended_transform_factory

    champion, fresh, start = best(data.history), data.certificate, data.baseline
    if fresh:
        lines = [(fresh.mean("champion"), f"trial {fresh.champion}, fresh", BLUE)]
        lines += [(fresh.mean("baseline"), "baseline, fresh", GREY)]
    elif champion is None or champion is baseline(data.history):
        lines = [(start, "champion: baseline", BLUE)]
    else:
        level = float(data.estimates[-1, 1]) if len(data.estimates) else None
        off = ", off scale" * (start is not None and start not in data.window)
        lines = [(level, f"champion: trial {champion.number}", BLUE), (start, f"baseline{off}", GREY)]
    shown = [(value, name, colour) for value, name, colour in lines if value is not None]
    low, high = axes.get_ylim()
    heights = [min(max((value - low) / (high - low), 0.04), 0.97) for value, *_ in shown]
    if len(heights) == 2 and abs(heights[0] - heights[1]) < 0.12:
        middle, half = min(max(sum(heights) / 2, 0.1), 0.91), math.copysign(0.06, heights[0] - heights[1])
        heights = [middle + half, middle - half]
    style: dict[str, Any] = {"va": "center", "gid": "margin"}
    style["transform"] = blended_transform_factory(picture.transFigure, axes.transAxes)
    for at, (value, name, colour) in zip(heights, shown, strict=True):
        text_at(axes, MARGIN, at + 0.022, number(value), colour, 15, weight="bold", **style)
        text_at(axes, MARGIN, at - 0.026, name, colour, 11, **style)


def _labels(axes: Axes, data: PlotData) -> None:
    """Label champions with their number and what they changed, or the number alone, where there is room."""
    kept = [trial for trial in data.history if trial.verdict.kind == "keep"]
    gains = [new.score.utility - old.score.utility for old, new in pairwise(kept)]
    order = sorted(range(1, len(kept)), key=lambda index: (index < len(kept) - 1, -gains[index - 1]))
    if kept and kept[0].number > 0:
        order = [0, *order]
    (left, low), (right, high) = axes.get_window_extent().get_points()
    frame, taken = np.array([left, low + BAND * (high - low), right, high]), _obstacles(axes, data)
    style: dict[str, Any] = {"transform": None, "va": "bottom", "zorder": 2.5, "gid": "label", "linespacing": 1.25}
    style["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
    marks = {point.trial.number: (point.place, point.at) for point in data.trials if point.at is not None}
    for index in order[:LABELS]:
        trial, (place, at) = kept[index], marks[kept[index].number]
        for lines in (changes(trial, kept[index - 1] if index else None, name_width=NAME_WIDTH), []):
            text = text_at(axes, 0, 0, "\n".join([f"trial {trial.number}", *lines]), INK, 10.5, **style)
            anchor = axes.transData.transform((place, at))
            box = free_box(anchor, np.array(text.get_window_extent().size), taken, frame, far=110 if lines else 55)
            if at not in data.window or box is None:
                text.remove()
                continue
            text.set_position((box[0], box[1]))
            ends = zip(anchor, np.clip(anchor, box[:2] - 3, box[2:] + 3), strict=True)
            axes.plot(*ends, transform=None, color=FAINT, linewidth=0.9, zorder=2)
            taken = np.vstack([taken, box])
            break


def _obstacles(axes: Axes, data: PlotData) -> Boxes:
    """Boxes that no label may cover: marks with their error bars, the champion estimate, the baseline."""
    segments: list[Any] = [
        ((point.place, point.at - point.error), (point.place, point.at + point.error))
        for point in data.trials
        if point.at is not None and point.at in data.window
    ]
    if data.baseline is not None:
        left, right = axes.get_xlim()
        segments.append(((left, data.baseline), (right, data.baseline)))
    if len(data.estimates):
        xs, ys, _ = _steps(axes, data)
        segments += pairwise(zip(np.repeat(xs, 2)[1:], np.repeat(ys, 2)[:-1], strict=True))
    ends = axes.transData.transform(np.reshape(segments, (-1, 2))).reshape(-1, 2, 2)
    return np.hstack([ends.min(1) - 4, ends.max(1) + 4])

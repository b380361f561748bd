"""The column of fresh runs at the right end of a certified campaign's picture."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Any

from tasks.deciding.certificate import Certificate
from tasks.deciding.group_design import Arm
from tasks.deciding.statistics import CONFIDENCE, quantile
from tasks.plots.text import FONT, GREY, INK, text_at

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLACE = (0.735, 0.115, 0.115, 0.69)
"""Left, bottom, width and height, as shares of the picture."""
WIDTH_TAKEN = 0.13
"""The share of the picture's width that the main axes give up for it."""


def draw_column(picture: Figure, beside: Axes, certificate: Certificate, colours: dict[Arm, str], lane: float) -> None:
    """Draw every fresh run, with the mean of each arm in its interval, at the scale of the axes `beside`.

    Args:
        lane: The height of runs without a score.
    """
    axes = picture.add_axes(PLACE, facecolor="#f6f8fa")
    axes.set(xlim=(-0.6, 1.6), ylim=beside.get_ylim(), yticks=beside.get_yticks().tolist())
    axes.set_xticks([0, 1], [f"trial {certificate.champion}", "baseline"])
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelsize=9.5, pad=7, labelfontfamily=FONT, labelleft=False, colors=GREY)
    axes.grid(axis="y", color="#e4e7eb", linewidth=1)
    axes.set_axisbelow(True)
    text_at(axes, 0.5, -0.105, "fresh runs", INK, 12, transform=axes.transAxes, ha="center", va="center")
    for x, (arm, colour) in enumerate(colours.items()):
        scores = [score.value for score in certificate.scores(arm)]
        spots = [x + (n - (len(scores) - 1) / 2) * 0.16 for n in range(len(scores))]
        style: dict[str, Any] = {"color": colour, "linestyle": "none", "zorder": 6, "clip_on": False}
        runs = [(spot, score) for spot, score in zip(spots, scores, strict=True) if score is not None]
        values = [score for _, score in runs]
        axes.plot([spot for spot, _ in runs], values, marker="D", markersize=4.5, **style)
        crashed = [spot for spot, score in zip(spots, scores, strict=True) if score is None]
        axes.plot(crashed, [lane] * len(crashed), marker="x", markersize=8, markeredgewidth=1.6, **style)
        if values:
            mean, half, ends = statistics.fmean(values), half_interval(values), [x - 0.45, x + 0.45]
            style = {"color": colour, "alpha": 0.16, "linewidth": 0}
            label = "95 % interval of a mean" if arm == "baseline" else None
            axes.fill_between(ends, mean - half, mean + half, label=label, **style)
            axes.plot(ends, [mean, mean], color=colour, linewidth=2.2, zorder=5)


def half_interval(values: list[float]) -> float:
    """Half the two-sided confidence interval of a mean, by Student's t; 0 below two values."""
    if len(values) < 2:
        return 0.0
    return quantile((1 + CONFIDENCE) / 2, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))

"""The column of a certificate at the right end of a campaign's picture: every fresh run, and the means of both arms."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Any

from tasks.deciding.certificate import Arm, Certificate
from tasks.deciding.statistics import CONFIDENCE, quantile
from tasks.plots.lettering import GREY, INK, text_at

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLACE = (0.735, 0.115, 0.115, 0.69)
"""Left, bottom, width and height, as shares of the picture."""
GAP = 0.13
"""How much narrower it makes what stands to its left."""
PAPER = "#f6f8fa"
ARMS: tuple[Arm, Arm] = ("champion", "baseline")
WIDE = 0.5
"""Columns on each side of the two means."""


def heights(certificate: Certificate) -> list[float]:
    """The scores of all fresh runs."""
    return [fresh.score.value for fresh in certificate.runs if fresh.score.value is not None]


def interval(values: list[float]) -> float:
    """Half of the two-sided interval of a mean at CONFIDENCE, by Student's t; 0 below two values."""
    if len(values) < 2:
        return 0.0
    reach = quantile((1 + CONFIDENCE) / 2, len(values) - 1)
    return reach * statistics.stdev(values) / math.sqrt(len(values))


def column(
    picture: Figure, beside: Axes, certificate: Certificate, colours: dict[Arm, str], lane: float
) -> Axes:
    """Draw it at the scale of the axes `beside`; runs without a score lie at the height `lane`."""
    from matplotlib.ticker import FixedFormatter, FixedLocator

    axes = picture.add_axes(PLACE, facecolor=PAPER)
    axes.set_xlim(-0.6, 1.6)
    axes.set_ylim(beside.get_ylim())
    axes.spines[:].set_visible(False)
    axes.yaxis.set_major_locator(FixedLocator(beside.get_yticks().tolist()))
    axes.tick_params(
        length=0, labelsize=9.5, pad=7, labelfontfamily="DejaVu Sans", labelleft=False, colors=GREY
    )
    axes.grid(axis="y", color="#e4e7eb", linewidth=1)
    axes.set_axisbelow(True)
    axes.xaxis.set_major_locator(FixedLocator([0, 1]))
    axes.xaxis.set_major_formatter(FixedFormatter([f"trial {certificate.champion}", "baseline"]))
    text_at(axes, 0.5, -0.105, "fresh runs", INK, 12, transform=axes.transAxes, ha="center", va="center")
    for x, arm in enumerate(ARMS):
        _arm(axes, x, certificate, arm, colours[arm], lane)
    return axes


def _arm(axes: Axes, x: int, certificate: Certificate, arm: Arm, colour: str, lane: float) -> None:
    scores = certificate.scores(arm)
    values = [score.value for score in scores if score.value is not None]
    spots = [x + (n - (len(scores) - 1) / 2) * 0.16 for n in range(len(scores))]
    style: dict[str, Any] = {"linestyle": "none", "zorder": 6, "clip_on": False}
    scored = [(at, score.value) for at, score in zip(spots, scores, strict=True) if score.value is not None]
    axes.plot(
        [at for at, _ in scored], [v for _, v in scored], marker="D", markersize=4.5, color=colour, **style
    )
    crashed = [at for at, score in zip(spots, scores, strict=True) if score.value is None]
    axes.plot(
        crashed, [lane] * len(crashed), marker="x", markersize=8, markeredgewidth=1.6, color=colour, **style
    )
    if not values:
        return
    mean, half = statistics.fmean(values), interval(values)
    axes.fill_between(
        [x - WIDE * 0.9, x + WIDE * 0.9], mean - half, mean + half, color=colour, alpha=0.16, linewidth=0
    )
    axes.plot([x - WIDE * 0.9, x + WIDE * 0.9], [mean, mean], color=colour, linewidth=2.2, zorder=5)

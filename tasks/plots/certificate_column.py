"""The column of fresh runs at the right end of a certified campaign's picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tasks.certifying.certificate import Certificate
from tasks.certifying.group_design import Arm
from tasks.describe import interval
from tasks.plots.text import FONT, GREY, INK, text_at

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLACE = (0.735, 0.115, 0.115, 0.69)
"""Left, bottom, width and height, as shares of the picture."""
WIDTH_TAKEN = 0.13
"""The share of the picture's width that the main axes give up for it."""


def draw_column(picture: Figure, beside: Axes, certificate: Certificate, colours: dict[Arm, str], lane: float) -> None:
    """Draw every run that was compared, the mean of each arm and the interval of the test, at the scale of `beside`.

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
    ends = interval(certificate)
    for x, (arm, colour) in enumerate(colours.items()):
        scores = [score.value for score in certificate.scores(arm)]
        spots = [x + (n - (len(scores) - 1) / 2) * min(0.16, 0.8 / len(scores)) for n in range(len(scores))]
        style: dict[str, Any] = {"color": colour, "linestyle": "none", "zorder": 6, "clip_on": False}
        runs = [(spot, score) for spot, score in zip(spots, scores, strict=True) if score is not None]
        axes.plot([spot for spot, _ in runs], [score for _, score in runs], marker="D", markersize=4.5, **style)
        crashed = [spot for spot, score in zip(spots, scores, strict=True) if score is None]
        axes.plot(crashed, [lane] * len(crashed), marker="x", markersize=8, markeredgewidth=1.6, **style)
        reused = certificate.reused if arm == "baseline" else ()
        again = [run.score.value for run in reused if run.score.value is not None]
        axes.plot([x + 0.45] * len(again), again, marker="D", markersize=4.5, fillstyle="none", **style)
        if (mean := certificate.mean(arm)) is not None:
            axes.plot([x - 0.45, x + 0.45], [mean, mean], color=colour, linewidth=2.2, zorder=5)
    if ends and (mean := certificate.mean("baseline")) is not None:
        # Drawn from the baseline's mean: it stays on the better side of that where the test passes.
        style = {"color": colours["champion"], "alpha": 0.16, "linewidth": 0}
        axes.fill_between([-0.45, 0.45], mean + ends[0], mean + ends[1], label="the test's interval", **style)
        axes.plot([-0.45, 0.55], [mean, mean], color=colours["baseline"], linewidth=1, linestyle=":", zorder=4)

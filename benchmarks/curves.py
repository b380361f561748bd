"""The picture of a comparison of proposers: how good the champion is after how many trials, problem by problem."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {
    "random_search": "#8a8a8a",
    "tpe": "#0072b2",
    "cmaes": "#e69f00",
    "gp": "#009e73",
    "learned": "#cc79a7",
    "optuna": "#56b4e9",
}
"""Told apart by the colour-blind too (Okabe and Ito)."""
OTHERS = ("#d55e00", "#000000", "#f0e442", "#7a3db8")
COLUMNS = 4


def draw(figures: dict[str, Any], path: Path) -> None:
    """Draw every problem's curves, each with its 95 % band, into one file."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    problems = figures["problems"]
    rows = -(-len(problems) // COLUMNS)
    style: Any = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.titlelocation": "left"}
    with mpl.rc_context(style):
        figure, grid = plt.subplots(
            rows, COLUMNS, sharey=True, figsize=(12.5, 2.9 * rows + 0.7), squeeze=False, layout="constrained"
        )
        panels = list(grid.flat)
        for panel, (problem, lanes) in zip(panels, problems.items(), strict=False):
            _panel(panel, problem, lanes)
        for panel in panels[len(problems) :]:
            panel.set_axis_off()
        for row in grid:
            row[0].set_ylabel("true score of the champion\n(share of the best known)")
        handles = {
            label: line for panel in panels for line, label in zip(*panel.get_legend_handles_labels(), strict=True)
        }
        figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=len(handles), frameon=False)
        figure.savefig(path, dpi=130)
        plt.close(figure)


def _panel(panel: Axes, problem: str, lanes: dict[str, Any]) -> None:
    spare = iter(OTHERS * len(lanes))
    for lane, row in lanes.items():
        mean, low, high = zip(*row["curve"], strict=True)
        colour = COLOURS.get(lane) or next(spare)
        label = f"{lane} (best of n)" if lane == "random_search" else lane
        panel.plot(range(len(mean)), mean, color=colour, label=label, linewidth=1.5)
        panel.fill_between(range(len(mean)), low, high, color=colour, alpha=0.13, linewidth=0)
    panel.axhline(0.9, color="#bbbbbb", linewidth=0.8, linestyle=(0, (4, 4)), zorder=0)
    campaigns = {row["campaigns"] for row in lanes.values()}
    panel.set_title(f"{problem}, {min(campaigns)} repetitions", fontsize=9.5)
    panel.set_xlabel("trials")
    panel.set_ylim(0, 1.02)
    panel.set_xlim(0, max(len(row["curve"]) for row in lanes.values()) - 1)

"""The picture of a transfer: fresh runs of baseline and champion on each robot, and what was published."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.headline.facts import TRANSFER
from benchmarks.headline.measure import RunRow
from benchmarks.headline.tables import arms_of, in_words
from benchmarks.pictures import BLUE, GREY, panels


def draw(runs: Sequence[RunRow], campaign: str, budget: float, path: Path) -> None:
    """One panel for each robot; its scale is its own."""
    arms = arms_of(runs, campaign, budget)
    with panels(len(arms), path) as axes:
        for axis, (name, *both) in zip(axes, arms, strict=True):
            for at, (arm, colour) in enumerate(zip(both, (GREY, BLUE), strict=True)):
                axis.plot([at] * len(arm.scores), arm.scores, "o", color=colour, alpha=0.8, markersize=5)
                if arm.scores:
                    axis.plot([at - 0.18, at + 0.18], [arm.mean] * 2, color=colour, linewidth=2)
                if name in TRANSFER:
                    axis.plot([at + 0.3], [TRANSFER[name][at]], "D", color=colour, fillstyle="none", markersize=5)
            axis.set_title(name, fontsize=9.5)
            axis.set_xticks([0, 1], ["baseline", "champion"])
            axis.set_xlim(-0.5, 1.6)
        axes[0].set_ylabel("mean return of a fresh run")
        words = f"lines: means; diamonds: published, one run each; {in_words(runs, campaign, budget)}"
        axes[0].figure.supxlabel(words, fontsize=8)

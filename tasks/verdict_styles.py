"""How each kind of verdict is shown: in the terminal, in MLflow and in progress.png."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tasks.trial import VerdictKind

BLUE, VERMILLION, PURPLE, FAINT = "#0072b2", "#d55e00", "#b0508c", "#8c959f"
"""Okabe and Ito's palette (the purple a little darker), which colour-blind readers can tell apart; and a grey."""


@dataclass(frozen=True)
class VerdictStyle:
    """How one kind is shown."""

    mark: str
    """One ASCII character, for tables."""
    style: str
    """Of rich."""
    run_status: str
    """Of the trial's run in MLflow."""
    plot: Mapping[str, Any]
    """Label and marker for matplotlib; `markersize` is relative."""


VERDICTS: dict[VerdictKind, VerdictStyle] = {
    "keep": VerdictStyle(
        "+", "bold green", "FINISHED",
        {"label": "kept", "marker": "o", "color": BLUE, "markeredgecolor": "white", "markersize": 1.15},
    ),
    "discard": VerdictStyle(
        "-", "dim", "FINISHED",
        {"label": "discarded", "marker": "s", "color": FAINT, "markeredgewidth": 0, "markersize": 0.85},
    ),
    "cancelled": VerdictStyle(
        "~", "yellow", "KILLED",
        {"label": "cancelled", "marker": "v", "color": PURPLE, "markerfacecolor": "white", "markersize": 1.0},
    ),
    "crash": VerdictStyle(
        "x", "bold red", "FAILED",
        {"label": "crashed", "marker": "x", "color": VERMILLION, "markersize": 1.0},
    ),
}  # fmt: skip

"""Fidelity: the share of the budget at which a campaign runs new points first (tasks/deciding/halving.py)."""

from __future__ import annotations

from dataclasses import dataclass

LEAST, MOST = 0.05, 0.8
"""Shares of the budget that short trials may have."""
PAYS = 0.7
"""Rank correlation of short runs with whole ones from which on they pay, in simulation (benchmarks/decisions.py)."""


@dataclass(frozen=True)
class Fidelity:
    """At which share of the budget a campaign runs new points first, and why."""

    share: float = 1.0
    """1: all of them in full."""
    words: str = ""

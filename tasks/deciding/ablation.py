"""Ablation of a champion: one run without each of its changes, to see which of them matter.

With one run each, only large effects show. The other changes are candidates for removal, no more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from environments.score import Score
from tasks.trial import Proposal, Run, Trial

CLEAR = 2.0
"""A change matters if its loss is at least this many standard errors."""


@dataclass(frozen=True)
class Removed:
    """The champion without one of its changes."""

    change: str
    """A parameter's name, or `its edit`."""
    run: Run
    score: Score


@dataclass(frozen=True)
class Ablation:
    champion: int
    mean: float
    """Mean of the champion's fresh runs, in goodness."""
    runs: int
    """Number of these runs."""
    sd: float
    """Standard deviation between training runs."""
    removed: tuple[Removed, ...]

    def loss(self, one: Removed) -> float | None:
        """How much worse the champion is without the change; None if that run has no score."""
        return None if one.score.value is None else self.mean - one.score.goodness

    def words(self, one: Removed) -> str:
        loss = self.loss(one)
        if loss is None:
            return f"without {one.change}: crashed"
        error = self.sd * math.sqrt(1 + 1 / self.runs)
        seen = "better without it" if loss < 0 else "it carries"
        told = seen if abs(loss) > CLEAR * error else f"no more than noise (se {error:.2g})"
        return f"without {one.change}: {abs(loss):.4g} {'worse' if loss > 0 else 'better'}, {told}"


def parts(champion: Trial, baseline: Trial) -> tuple[tuple[str, Proposal], ...]:
    """The champion without each of its changes, with the name of the change."""
    proposal, before = champion.proposal, baseline.proposal.params
    names = [name for name, value in proposal.params.items() if before.get(name, value) != value]
    found = [(name, replace(proposal, params={**proposal.params, name: before[name]})) for name in names]
    if proposal.edit:
        found.append(("its edit", replace(proposal, edit=None)))
    return tuple(found)

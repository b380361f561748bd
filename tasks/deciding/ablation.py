"""The ablation of a champion: the same again without each of its changes, to see which of them carry it.

One run each, so only a change that matters much is seen to; the others are candidates for removal, no more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from environments.score import Score
from tasks.trial import Proposal, Run, Trial

CLEAR = 2.0
"""Standard errors from which on a change is said to matter."""


@dataclass(frozen=True)
class Removed:
    """The champion without one of its changes."""

    change: str
    """A parameter's name, or `its edit`."""
    run: Run
    score: Score


@dataclass(frozen=True)
class Ablation:
    """What became of a champion without each of its changes."""

    champion: int
    mean: float
    """Of the champion's fresh runs, in goodness."""
    runs: int
    """How many these were."""
    sd: float
    """Between training runs."""
    removed: tuple[Removed, ...]

    def loss(self, one: Removed) -> float | None:
        """How much worse it is without the change; None when that has no score."""
        return None if one.score.value is None else self.mean - one.score.goodness

    def words(self, one: Removed) -> str:
        """What the run without a change says of it."""
        loss = self.loss(one)
        if loss is None:
            return f"without {one.change}: crashed"
        error = self.sd * math.sqrt(1 + 1 / self.runs)
        seen = "better without it" if loss < 0 else "it carries"
        clear = abs(loss) > CLEAR * error
        return f"without {one.change}: {abs(loss):.4g} {'worse' if loss > 0 else 'better'}" + (
            f", {seen}" if clear else f", no more than noise (se {error:.2g})"
        )


def parts(champion: Trial, baseline: Trial) -> tuple[tuple[str, Proposal], ...]:
    """The champion without each of its changes against the baseline, with the change's name."""
    proposal, before = champion.proposal, baseline.proposal.params
    names = [name for name, value in proposal.params.items() if before.get(name, value) != value]
    found = [(name, replace(proposal, params={**proposal.params, name: before[name]})) for name in names]
    if proposal.edit:
        found.append(("its edit", replace(proposal, edit=None)))
    return tuple(found)

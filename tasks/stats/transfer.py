"""A champion in another environment: what of it can be tried there, and on top of what.

What the champion changed is laid over that environment's own defaults and program. A parameter that does not exist
there, is fixed, or may not have the champion's value is left out, and said. An edit needs the same program there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from environments import Environment
from environments.plugins import Refused
from tasks.stats.design import Arm
from tasks.trial import Params, Proposal, Trial


@dataclass(frozen=True)
class Conditions:
    """Conditions under which the runs of a certificate were made."""

    budget: float = 1.0
    """Training budget of each run, in that of the environment."""
    changed: Params | None = None
    """Parameters that the champion changes of another environment's baseline; None in the campaign's own."""
    left_out: tuple[str, ...] = ()
    """What of the champion could not be tried in another environment, and why."""

    @property
    def name(self) -> str:
        """Their part of a name; empty for the environment's own budget."""
        return "" if self.budget == 1 else f"-{self.budget:g}x"


CAMPAIGNS = Conditions()
"""Those of a campaign's own certificates."""


@dataclass(frozen=True)
class Arms:
    """What champion and baseline run in another environment."""

    champion: Proposal
    baseline: Proposal
    left_out: tuple[str, ...] = ()
    """What of the champion cannot be tried there, and why."""

    def of(self, arm: Arm) -> Proposal:
        return self.champion if arm == "champion" else self.baseline

    @property
    def changed(self) -> Params:
        """Parameters that differ from that environment's baseline."""
        return {n: value for n, value in self.champion.params.items() if self.baseline.params[n] != value}


def arms_there(champion: Trial, first: Trial, there: Environment) -> Arms:
    """Both arms in another environment. Refused if nothing that the champion changed can be tried there."""
    old, defaults = first.proposal.params, there.defaults
    taken, left_out = dict(defaults), []
    for name, value in champion.proposal.params.items():
        if name in old and old[name] == value:
            continue
        if name not in there.space:
            why = f"is fixed at {there.fixed[name]!r}" if name in there.fixed else "does not exist"
            left_out.append(f"{name} {why}")
            continue
        try:
            taken[name] = there.space[name].check(value)
        except ValueError as wrong:
            left_out.append(f"{name} {wrong}")
    edit = champion.proposal.edit
    if taken == defaults and not edit:
        why = "; ".join(left_out) or "its values are the defaults there"
        raise Refused(f"--on {there.name}: nothing that trial {champion.number} changed can be tried there: {why}")
    return Arms(
        replace(champion.proposal, params=taken), replace(first.proposal, params=defaults, edit=None), tuple(left_out)
    )

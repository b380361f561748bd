"""History -> Proposal: the baseline first, then what the proposer says."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from environments import Environment, plugins
from tasks import workspace
from tasks.checkpoint import At, stored
from tasks.proposers import Pending, Proposer
from tasks.trial import History, Proposal
from tasks.workspace import TrialDir

PROPOSERS = "tasks.proposers"
NOTHING_PENDING: Pending = MappingProxyType({})
"""A campaign that runs one trial at a time decides each before it proposes the next."""


@stored("propose")
def propose(
    at: At, environment: Environment, proposer: Proposer, place: TrialDir, history: History, seed: int
) -> Proposal | None:
    """The next proposal, or None when there is nothing left to try. A proposal once stored is never remade."""
    stored_at = place.proposal
    if stored_at.is_file():
        return workspace.PROPOSAL.validate_json(stored_at.read_bytes())
    proposal = next_proposal(environment, proposer, history, seed)
    if proposal is not None:
        workspace.write(stored_at, workspace.PROPOSAL.dump_json(proposal, indent=2).decode() + "\n")
    return proposal


def next_proposal(
    environment: Environment,
    proposer: Proposer,
    history: History,
    seed: int,
    pending: Pending = NOTHING_PENDING,
) -> Proposal | None:
    """The baseline for an empty history, else the proposer's suggestion, checked against the space.

    Raises:
        Refused: the proposer suggested a parameter or a value outside the space.
    """
    if not history:
        return Proposal(environment.defaults, rationale="the environment's own program and parameters")
    suggestion = proposer.propose(environment.space, history, pending, seed)
    if suggestion is None:
        return None
    return Proposal(
        params=environment.complete(suggestion.params),
        rationale=suggestion.rationale,
        parent=0,
        seen=len(history),
        pending=tuple(sorted(pending)),
        proposer=type(proposer).__module__.rpartition(".")[2],
    )


def load(name: str, options: dict[str, Any]) -> Proposer:
    """A proposer by name, with its options checked.

    Raises:
        Refused: no such proposer, or an option that it does not take.
    """
    return plugins.make(PROPOSERS, name, Proposer, options)  # type: ignore[type-abstract]

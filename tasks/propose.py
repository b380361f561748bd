"""Brief -> Proposal: the baseline first, then the proposer's suggestion, checked before it costs any compute.

    propose   asks the proposer, checks its suggestion, and asks again with the reason when a check fails
    checks    parameters, duplicates, and a run of seconds (tasks/proposing/validation.py)

A proposer that asks somebody outside (a language model, a coding agent) may come back with nothing that can be tried.
Then another proposer takes the turn, and the proposal says so: which it was that could not, and why.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from environments import plugins
from environments.plugins import Refused
from tasks.checkpoint import At, stored
from tasks.editing.edits import EditFailed
from tasks.proposers import Proposer
from tasks.proposers.random_search import RandomSearch
from tasks.proposing.brief import Brief, Refusal, Suggestion, Unavailable, Unusable
from tasks.proposing.validation import ProposalChecks
from tasks.store import inbox, workspace
from tasks.store.seeds import derive
from tasks.system.clock import clock
from tasks.system.files import write_atomic
from tasks.trial import NOTHING_BOUGHT, Proposal

PROPOSERS = "tasks.proposers"
TURNS = 3
"""How often a proposer is asked for one trial: once, and twice again with what was wrong."""
DRAWS = 8
"""The same for one that asks nobody, and only has to draw again."""
INBOX = "inbox"
"""What a trial has for its proposer when a person, or an outside agent, left it in the inbox."""


@stored("propose")
def propose(
    at: At, checks: ProposalChecks, proposer: Proposer, fallback: Proposer, brief: Brief
) -> Proposal | Nothing:
    """The next proposal, or why there is none. A proposal once stored is never remade."""
    stored_at = checks.place.proposal
    if stored_at.is_file():
        return workspace.PROPOSAL.validate_json(stored_at.read_bytes())
    began = clock()
    proposal = from_inbox(checks, brief) or next_proposal(checks, proposer, fallback, brief)
    if isinstance(proposal, Proposal):
        proposal = replace(proposal, seconds=round(clock() - began, 3))
        write_atomic(stored_at, workspace.PROPOSAL.dump_json(proposal, indent=2).decode() + "\n")
    return proposal


@dataclass(frozen=True)
class Nothing:
    """There is nothing to be tried now."""

    because: str = ""
    """Who was asked and could not propose, and why; empty when everything has been tried."""


def next_proposal(
    checks: ProposalChecks, proposer: Proposer, fallback: Proposer, brief: Brief
) -> Proposal | Nothing:
    """The baseline for an empty history, else what the proposer suggests, or the fallback where it cannot.

    Raises:
        Refused: a proposer that asks nobody suggested a parameter or a value outside the space.
    """
    if not brief.history:
        return Proposal(checks.environment.defaults, rationale="the environment's own program and parameters")
    answer = ask(checks, proposer, brief)
    if not isinstance(answer, GivenUp):
        return answer or Nothing()
    instead = f"{name_of(proposer)}: {answer.reason}"
    other = ask(checks, fallback, brief)
    if isinstance(other, GivenUp):  # it has closed in on one point: elsewhere there is more
        other = ask(checks, RandomSearch(), brief)
    if other is None or isinstance(other, GivenUp):
        return Nothing(instead if proposer.asks else "")
    return replace(
        other,
        usage=answer.usage + other.usage,
        turned_down=answer.turned_down + other.turned_down,
        instead_of=instead,
    )


def from_inbox(checks: ProposalChecks, brief: Brief) -> Proposal | None:
    """The first idea of the inbox that can be tried; those before it are refused, each with its reason."""
    for name, idea in checks.inbox_proposals if brief.history else ():
        suggestion = Suggestion(idea.params, idea.rationale, idea.files, proposer=INBOX)
        found = _checked(checks, brief, suggestion)
        if isinstance(found, Proposal):
            return replace(found, inbox=name)
        inbox.refuse(checks.place.path.parents[1], name, found.reason)
    return None


class GivenUp:
    """A proposer that had nothing to try, although it should have had."""

    def __init__(self, reason: str, refusals: tuple[Refusal, ...], extra: Unavailable | None = None) -> None:
        self.reason = reason
        self.turned_down = turned_down(refusals)
        self.usage = sum((one.usage for one in refusals), extra.usage if extra else NOTHING_BOUGHT)


def ask(checks: ProposalChecks, proposer: Proposer, brief: Brief) -> Proposal | GivenUp | None:
    """One proposer's proposal for one trial; None when it has nothing left to try."""
    refusals: tuple[Refusal, ...] = ()
    for seed in _seeds(brief.seed, TURNS if proposer.asks else DRAWS):
        told = replace(brief, seed=seed, refusals=refusals)
        try:
            suggestion = proposer.propose(told)
        except Unusable as unusable:
            refusals += (replace(unusable.refusal, proposer=unusable.refusal.proposer or name_of(proposer)),)
            continue
        except Unavailable as gone:
            return GivenUp(str(gone), refusals, gone)
        except Refused as wrong:  # a prompt that somebody has changed meanwhile, a key that is gone
            if not proposer.asks:
                raise
            return GivenUp(str(wrong), refusals)
        if suggestion is None:
            return None
        named = replace(suggestion, proposer=suggestion.proposer or name_of(proposer))
        if not proposer.asks:
            checks.environment.complete(named.params)  # what it knows of the space it has from us
        found = _checked(checks, told, named)
        if isinstance(found, Proposal):
            return found
        refusals += (found,)
    return GivenUp(f"turned down {len(refusals)} times, the last time: {refusals[-1].reason}", refusals)


def _checked(checks: ProposalChecks, brief: Brief, suggestion: Suggestion) -> Proposal | Refusal:
    """The suggestion as a proposal, or why it cannot be tried."""
    said = suggestion.text, suggestion.proposer, suggestion.usage
    try:
        proposal = proposal_of(checks, brief, suggestion)
        reason = checks.fault(brief, proposal)
    except (Refused, EditFailed) as wrong:
        return Refusal(str(wrong), *said)
    return Refusal(reason, *said) if reason else proposal


def proposal_of(checks: ProposalChecks, brief: Brief, suggestion: Suggestion) -> Proposal:
    """The suggestion with everything that a trial needs to know.

    Raises:
        Refused: a parameter or a value outside the space, a file that may not be changed.
    """
    edit, parent = checks.program_of(brief, suggestion)
    return Proposal(
        params=checks.environment.complete(suggestion.params),
        edit=edit,
        rationale=suggestion.rationale,
        parent=parent,
        seen=len(brief.history),
        pending=tuple(sorted(brief.pending)),
        proposer=suggestion.proposer,
        usage=sum((one.usage for one in brief.refusals), suggestion.usage),
        model=suggestion.model,
        category=suggestion.category,
        turned_down=turned_down(brief.refusals),
        switch=suggestion.switch,
    )


def turned_down(refusals: tuple[Refusal, ...]) -> tuple[str, ...]:
    return tuple(f"{one.proposer}: {one.reason}" for one in refusals)


def name_of(proposer: Proposer) -> str:
    """The plug-in's name: its file's."""
    return type(proposer).__module__.rpartition(".")[2]


def _seeds(seed: int, count: int) -> Iterator[int]:
    """The trial's own seed, then others that come from it."""
    yield seed
    yield from (derive(seed, "propose", turn, 1) for turn in range(1, count))


def load(name: str, options: dict[str, Any]) -> Proposer:
    """A proposer by name, with its options checked.

    Raises:
        Refused: no such proposer, or an option that it does not take.
    """
    return plugins.make(PROPOSERS, name, Proposer, options)  # type: ignore[type-abstract]

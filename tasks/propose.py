"""Propose: brief -> Proposal, checked before it costs any compute. The baseline first, then the suggestions."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from prefect import State, task

from environments import plugins
from environments.plugins import Refused, name_of
from tasks.checkpoint import KEPT, ended
from tasks.editing.edits import EditFailed
from tasks.proposers import Proposer
from tasks.proposers.random_search import RandomSearch
from tasks.proposing.brief import Brief, Refusal, Suggestion, Unavailable, Unusable
from tasks.proposing.validation import ProposalChecks
from tasks.store import inbox, workspace
from tasks.system.files import write_atomic
from tasks.task_key import TaskKey, derive
from tasks.trial import NOTHING_BOUGHT, Proposal, Trial, Usage, best

PROPOSERS = "tasks.proposers"
INBOX = "inbox"


@task(**KEPT, cache_key_fn=lambda _, given: f"{given['key']}/propose")
def propose(
    key: TaskKey, checks: ProposalChecks, proposer: Proposer, fallback: Proposer, brief: Brief
) -> State[Proposal | Nothing]:
    """The next proposal, or why there is none. It is also written as proposal.json, for people and other commands."""
    began = time.monotonic()
    proposal = from_inbox(checks, brief) or next_proposal(checks, proposer, fallback, brief)
    if isinstance(proposal, Nothing):
        return ended(proposal, f"nothing to try: {proposal.because or 'everything has been tried'}")
    proposal = replace(proposal, seconds=round(time.monotonic() - began, 3))
    write_atomic(checks.place.proposal, workspace.PROPOSAL.dump_json(proposal, indent=2) + b"\n", lasting=True)
    return ended(proposal, f"{proposal.proposer}: {proposal.rationale or 'no rationale'}")


@dataclass(frozen=True)
class Nothing:
    because: str = ""
    """Who was asked and failed, and why; empty when everything has been tried."""
    turned_down: tuple[str, ...] = ()
    usage: Usage = NOTHING_BOUGHT
    """Of these suggestions, and of whoever had to give up."""


def next_proposal(checks: ProposalChecks, proposer: Proposer, fallback: Proposer, brief: Brief) -> Proposal | Nothing:
    """The baseline for an empty history, else the proposer's suggestion, or the fallback's."""
    if not brief.history and 0 not in brief.pending:
        return Proposal(checks.environment.defaults, rationale="the environment's own program and parameters")
    answer = ask(checks, proposer, brief)
    if isinstance(answer, Proposal) or not answer.because:
        return answer
    instead = f"{name_of(proposer)}: {answer.because}"
    other = ask(checks, fallback, brief)
    if isinstance(other, Nothing) and other.because:  # it has converged to one point; the fallback looks elsewhere
        other = ask(checks, RandomSearch(), brief)
    usage, down = answer.usage + other.usage, answer.turned_down + other.turned_down
    if isinstance(other, Proposal):
        return replace(other, usage=usage, turned_down=down, instead_of=instead)
    return Nothing(instead, usage=usage) if proposer.asks else Nothing()


def from_inbox(checks: ProposalChecks, brief: Brief) -> Proposal | None:
    """The first valid proposal of the inbox; invalid ones before it are refused with their reasons."""
    for entry in checks.inbox_entries if brief.history else ():
        try:
            idea = inbox.read(entry)
        except Refused as wrong:
            inbox.refuse(entry, str(wrong))
            continue
        suggestion = Suggestion({**brief.start, **idea.params}, idea.rationale, idea.files, proposer=INBOX)
        start = next((trial for trial in brief.history if trial.number == idea.base), best(brief.history))
        found = _checked(checks, brief, suggestion, start)
        if isinstance(found, Proposal):
            return replace(found, inbox=entry.stem)
        inbox.refuse(entry, found.reason)
    return None


def ask(checks: ProposalChecks, proposer: Proposer, brief: Brief) -> Proposal | Nothing:
    """One proposer's proposal for one trial; Nothing where it gives up, or without a reason has nothing left to try."""
    refusals: tuple[Refusal, ...] = ()

    def nothing(because: str = "", more: Usage = NOTHING_BOUGHT) -> Nothing:
        return Nothing(because, turned_down(refusals), sum((one.usage for one in refusals), more))

    for turn in range(proposer.turns):
        seed = derive(brief.seed, "propose", turn, 1) if turn else brief.seed
        told = replace(brief, seed=seed, refusals=refusals)
        try:
            suggestion = proposer.propose(told)
        except Unusable as unusable:
            refusals += (replace(unusable.refusal, proposer=unusable.refusal.proposer or name_of(proposer)),)
            continue
        except Unavailable as gone:
            return nothing(str(gone), gone.usage)
        except Refused as wrong:  # such as a broken prompt file, or a missing key
            if not proposer.asks:
                raise
            return nothing(str(wrong))
        if suggestion is None:
            return nothing()
        named = replace(suggestion, proposer=suggestion.proposer or name_of(proposer))
        checked = _checked(checks, told, named, best(brief.history))
        if isinstance(checked, Proposal):
            return checked
        refusals += (checked,)
    return nothing(f"turned down {len(refusals)} times, the last time: {refusals[-1].reason}")


def _checked(
    checks: ProposalChecks, brief: Brief, suggestion: Suggestion, start: Trial | None
) -> Proposal | Refusal:  # fmt: skip
    """The suggestion as a proposal, or why it cannot be tried. (start: the trial whose program it changes)"""
    try:
        edit, parent = checks.program_of(suggestion, start)
        proposal = Proposal(
            params=checks.environment.complete(suggestion.params),
            edit=edit,
            rationale=suggestion.rationale,
            parent=parent,
            seen=1 + max((trial.order for trial in brief.history), default=-1),
            proposer=suggestion.proposer,
            usage=sum((one.usage for one in brief.refusals), suggestion.usage),
            model=suggestion.model,
            category=suggestion.category,
            expected=suggestion.expected,
            turned_down=turned_down(brief.refusals),
            switch=suggestion.switch,
        )
        reason = checks.fault(brief, proposal)
    except (Refused, EditFailed) as wrong:
        reason = str(wrong)
    return Refusal(reason, suggestion.text, suggestion.proposer, suggestion.usage) if reason else proposal


def turned_down(refusals: tuple[Refusal, ...]) -> tuple[str, ...]:
    return tuple(f"{one.proposer}: {one.reason}" for one in refusals)


def load(name: str, options: dict[str, Any]) -> Proposer:
    """A proposer by name; Refused if there is none, or it does not take an option."""
    return plugins.make(PROPOSERS, name, Proposer, options)  # type: ignore[type-abstract]

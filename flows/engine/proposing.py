"""Whose turn it is to propose: the brief of the next trial, and what follows from the answer.

A proposal that needs approval keeps its number and waits; meanwhile the fallback proposes later numbers. Where every
trial needs approval, the campaign waits.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from environments import earlier_trials
from flows import approval as forms
from flows.engine.attempt import Attempt
from flows.engine.night import Night
from flows.engine.stopping import NOTHING_LEFT, Stop
from tasks.propose import Nothing
from tasks.proposers import Proposer
from tasks.proposing.brief import Brief, RejectedProposal
from tasks.proposing.validation import ProposalChecks, champions_files
from tasks.spending import note_bought
from tasks.store import inbox
from tasks.store.approval import Parked
from tasks.store.earlier_campaigns import lessons
from tasks.task_key import TaskKey
from tasks.trial import History, Proposal, budgets_used


@dataclass(frozen=True)
class Turn:
    """The arguments of one proposal, and what they rest on."""

    night: Night
    under_way: Sequence[Attempt]
    key: TaskKey
    arguments: tuple[TaskKey, ProposalChecks, Proposer, Proposer, Brief]
    parked: tuple[Parked, ...]
    known: tuple[object, ...]
    """What the brief and the approvals rest on."""

    def without(self, answer: Nothing) -> Stop | None:
        """How the night goes on without a proposal: it ends, or it waits where trials or people have to end first."""
        ledger = self.night.ledger
        # Not kept: a resumed campaign may find a proposal in the inbox, or get an answer.
        (ledger.results / f"{self.key}/propose").unlink(missing_ok=True)
        note_bought(ledger, answer.usage)
        self.night.nothing_for = self.known
        if self.under_way or _waiting(self.parked) or self.arguments[2].waits:
            return None
        asks_again = f"nothing to try without {answer.because}; `nightshift resume` asks again"
        return Stop("stopped", asks_again) if answer.because else NOTHING_LEFT

    def waits_for_approval(self, proposal: Proposal) -> bool:
        """Whether it needs an approval that it does not have; then a person is asked."""
        number, advanced, history = self.key.number, self.night.spec.advanced, self.night.history
        if number == 0 or any(one.number == number for one in self.parked):
            return False
        is_new = proposal.edit not in {None, *(trial.proposal.edit for trial in history)}
        if advanced.approval == "none" or (advanced.approval == "code" and not is_new):
            return False
        forms.ask(self.night.ledger, number, proposal, advanced.approval_minutes)
        return True


def next_turn(night: Night, under_way: Sequence[Attempt]) -> Turn | None:
    """The next proposal to ask for; None while the baseline, an approval or a trial under way is waited for."""
    spec, ledger, history = night.spec, night.ledger, night.history
    if under_way and not history:
        return None  # nothing can be compared before the baseline
    parked = forms.collect(ledger)
    number = _next_number(history, parked, under_way)
    waiting = _waiting(parked)
    if waiting and spec.advanced.approval == "all" and not any(one.number == number for one in parked):
        return None
    ideas = inbox.waiting(ledger.path, ledger.proposals(history))
    known = (
        len(history), *(one.number for one in under_way), *((one.number, one.state) for one in parked),
        *ideas,
    )  # fmt: skip
    if known == night.nothing_for:
        return None
    key, place = ledger.key(number), ledger.place(number, attempt=1)
    checks = ProposalChecks(ledger.environment, spec.isolation, ledger.program, place, key.marker(), ideas)
    proposer = spec.loaded_fallback if waiting and spec.advanced.approval == "code" else spec.loaded_proposer
    arguments = key, checks, proposer, spec.loaded_fallback, _brief(night, under_way, key, parked, proposer)
    return Turn(night, under_way, key, arguments, parked, known)


def _next_number(history: History, parked: Sequence[Parked], under_way: Sequence[Attempt]) -> int:
    """The lowest number that is not decided, running, waiting for approval or rejected."""
    taken = {trial.number for trial in history} | {one.number for one in under_way}
    taken |= {one.number for one in parked if one.state != "approved"}
    return next(number for number in itertools.count() if number not in taken)


def _brief(
    night: Night, under_way: Sequence[Attempt], key: TaskKey, parked: Sequence[Parked], proposer: Proposer
) -> Brief:  # fmt: skip
    spec, ledger, history = night.spec, night.ledger, night.history
    pending = {one.number: one.proposal for one in under_way}
    reserve = spec.time_for_the_certificate(ledger.environment, history)
    left = replace(
        night.money.left_for_models(history, len(pending)),
        trials=max(spec.trials - budgets_used(history), 0.0),
        seconds=max(spec.hours * 3600 - night.lock.spent - reserve, 0.0),
    )
    return Brief(
        ledger.environment.space,
        history,
        {one.number: one.proposal for one in _waiting(parked)} | pending,
        ledger.seed("propose", key),
        problem=ledger.environment,
        files=champions_files(ledger.environment, ledger.program, history),
        earlier=lessons(ledger.path),
        imported=earlier_trials.read(ledger.environment.folder),
        left=left,
        rejected=tuple(
            RejectedProposal(one.number, one.proposal, one.words) for one in parked if one.state == "rejected"
        ),
        keep_rule=night.rule.in_words(history) if proposer.asks else "",
        traces=ledger.place(key.number, attempt=1).path,
    )


def _waiting(parked: Sequence[Parked]) -> tuple[Parked, ...]:
    return tuple(one for one in parked if one.state == "waiting")

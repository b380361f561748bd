"""Whose turn it is to propose: the brief of the next trial, and what follows from the answer.

A proposal that needs approval keeps its number and waits; meanwhile the fallback proposes later numbers. Where every
trial needs approval, the campaign waits.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

from environments import earlier_trials
from flows import approval as forms
from flows.engine.attempt import Attempt, Future
from flows.engine.night import Night
from flows.engine.stopping import NOTHING_LEFT, Stop
from tasks.checkpoint import result_of
from tasks.propose import Nothing, load
from tasks.proposers import Proposer
from tasks.proposing.brief import Brief
from tasks.proposing.validation import ProposalChecks, champions_files
from tasks.spending import BOUGHT, note_bought
from tasks.store import campaign_lock, inbox
from tasks.store.earlier_campaigns import lessons
from tasks.task_key import TaskKey
from tasks.trial import History, Parked, Proposal, budgets_used


def next_attempt(
    night: Night, under_way: Sequence[Attempt], ask: Callable[..., Future]
) -> Attempt | Stop | None:  # fmt: skip
    """The trial to begin: one to run again, the baseline, the inbox's next, one that was approved, or a proposer's. A
    Stop where there is nothing to propose; None while the baseline, an approval or a trial under way is waited for.
    (ask: submits the task `propose`)
    """
    if again := night.rerun_due(under_way):
        return again
    spec, ledger, history = night.spec, night.ledger, night.history
    while history or not under_way:  # nothing can be compared before the baseline
        parked = forms.collect(ledger)
        key, waiting = ledger.key(_next_number(history, parked, under_way)), _waiting(parked)
        is_parked = any(one.number == key.number for one in parked)
        if waiting and spec.advanced.approval == "all" and not is_parked:
            return None
        ideas = inbox.waiting(ledger.path, ledger.proposals(history))
        known = (
            len(history), *(one.number for one in under_way), *((one.number, one.state) for one in parked), *ideas,
        )  # fmt: skip
        if known == night.nothing_for:
            return None
        place, slots = ledger.place(key.number, attempt=1), night.bench.slots
        checks = ProposalChecks(ledger.environment, spec.isolation, ledger.program, place, key.marker(), slots, ideas)
        fallback = load(spec.advanced.fallback, {})
        proposer = fallback if waiting and spec.advanced.approval == "code" else spec.loaded_proposer
        brief = _brief(night, under_way, key, parked, proposer)
        proposed = ask(key, checks, proposer, fallback, brief)
        if isinstance(proposal := result_of(proposed), Nothing):
            # Not kept: a resumed campaign may find a proposal in the inbox, or get an answer.
            (ledger.results / f"{key}/propose").unlink(missing_ok=True)
            note_bought(ledger, proposal.usage)
            night.nothing_for = known
            if under_way or waiting or proposer.waits:
                return None
            asks_again = f"nothing to try without {proposal.because}; `nightshift resume` asks again"
            return Stop("stopped", asks_again) if proposal.because else NOTHING_LEFT
        if is_parked or not _needs_approval(night, key.number, proposal):
            return Attempt(night, key, proposal, [proposed])
        forms.ask(ledger, key.number, proposal, spec.advanced.approval_minutes)
    return None


def _needs_approval(night: Night, number: int, proposal: Proposal) -> bool:
    is_new = proposal.edit not in {None, *(trial.proposal.edit for trial in night.history)}
    approval = night.spec.advanced.approval
    return number > 0 and (approval == "all" or (approval == "code" and is_new))


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
    bought = sum(event["event"] == BOUGHT for event in ledger.events())  # in vain: a resumed campaign asks anew
    left = replace(
        night.money.left_for_models(history, len(pending)),
        trials=max(spec.trials - budgets_used(history), 0.0),
        seconds=max(spec.hours * 3600 - campaign_lock.spent(night.ledger) - reserve, 0.0),
    )
    return Brief(
        ledger.environment.space,
        history,
        {one.number: one.proposal for one in _waiting(parked)} | pending,
        ledger.seed("propose", key) + bought,
        problem=ledger.environment,
        files=champions_files(ledger.environment, ledger.program, history),
        earlier=lessons(ledger.path),
        imported=earlier_trials.read(ledger.environment.folder),
        left=left,
        rejected=tuple(one for one in parked if one.state == "rejected"),
        keep_rule=night.rule.in_words(history) if proposer.asks else "",
        traces=ledger.place(key.number, attempt=1).path,
    )


def _waiting(parked: Sequence[Parked]) -> tuple[Parked, ...]:
    return tuple(one for one in parked if one.state == "waiting")

"""The next trial: a proposal from the inbox, from the proposer, or one that was approved.

A proposal that needs approval keeps its number and waits. Meanwhile the campaign goes on with later numbers, proposed
by the fallback proposer, and comes back to it once it is approved. Where every trial needs approval, the campaign
waits.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from environments import earlier_trials
from environments.earlier_trials import EarlierTrial
from flows import approval as forms
from flows.engine import stopping
from flows.engine.campaign_state import CampaignState
from flows.engine.stopping import NOTHING_LEFT, Stop
from flows.engine.worker_pool import AHEAD, WorkerPool
from flows.spec.campaign_spec import CampaignSpec
from tasks.cache_key import is_kept, kept, whole
from tasks.llm.trials import BEST, NEWEST
from tasks.propose import Nothing, propose
from tasks.proposing import curves
from tasks.proposing.brief import Brief, Pending, RejectedProposal, RemainingBudget
from tasks.proposing.validation import ProposalChecks, champions_files, problem_of
from tasks.spending.spent import note_bought
from tasks.store import inbox, provenance
from tasks.store.approval import Parked
from tasks.store.campaign_lock import Life
from tasks.store.earlier_campaigns import lessons
from tasks.store.ledger import Ledger
from tasks.system import interrupt
from tasks.system.files import write_atomic
from tasks.trial import History, Proposal, budgets_used

LEFT, LEFT_FILE = TypeAdapter(RemainingBudget), "left.json"
WAITS: Literal["waits"] = "waits"
FULL: Literal["full"] = "full"
Next = tuple[int, Proposal] | Stop | Literal["waits", "full"]


def undone(state: CampaignState, finished: History) -> Iterator[tuple[int, Proposal]]:
    """What a resumed campaign does first: replay finished trials, then record the one that is only decided."""
    spec, ledger = state.spec, state.ledger
    for trial in finished[len(state.history) :]:
        at, place = ledger.at(trial.number, attempt=1), ledger.place(trial.number, attempt=1)
        checks = ProposalChecks(ledger.environment, spec.isolation, ledger.program, place, at.marker)
        brief = Brief(ledger.environment.space, state.history)
        nobody = whole(spec.loaded_fallback)  # a stored proposal asks no proposer again
        found = kept(propose, ledger.results)(at, whole(checks), nobody, nobody, whole(brief))
        assert isinstance(found, Proposal), "a trial that is finished was proposed"
        yield trial.number, found
    if (number := state.decided()) is not None:
        found = proposed(state, {}, forms.collect(ledger), number, spent=0.0)
        assert isinstance(found, Proposal), "a trial that is decided was proposed"
        yield number, found


def next_trial(state: CampaignState, pool: WorkerPool, life: Life, most: int) -> Next:
    """Number and proposal of the next trial; or `waits`, or `full`, or why there is no next trial.

    `waits`: all workers are busy, the next step depends on a running trial, or an approval is missing.

    Args:
        most: Decided trials at which this flow run is full and another continues.
    """
    interrupt.check()
    if stopping.crashed_baseline(state.history):
        pool.call_off()  # nothing beside it can be compared
    under_way = pool.under_way
    if pool.is_full(len(state.resting)) or (
        under_way and not state.history and not may_begin_beside_the_baseline(state, under_way)
    ):
        return WAITS
    coming = hindrance(state, under_way, life, most) or coming_proposal(state, under_way, life.spent)
    return WAITS if under_way and (coming == FULL or isinstance(coming, Stop)) else coming


def may_begin_beside_the_baseline(state: CampaignState, under_way: Pending) -> bool:
    """Whether a slot is free that no run of the baseline needs, for a trial whose proposal needs no score.

    What was learned elsewhere is placed by the baseline's score. On other machines training and judgement are one
    run, and the judgement needs the baseline's.
    """
    spec, learns_from = state.spec, state.ledger.campaign.learn_from
    if not spec.loaded_proposer.unscored or spec.launch != "here" or learns_from or _imported(state.ledger):
        return False
    resting = state.resting
    left, others = state.runner.baseline_runs_left, len(under_way) - 1 - len(resting)
    return 0 < left < spec.parallel - others and len(resting) < AHEAD


def hindrance(state: CampaignState, under_way: Pending, life: Life, most: int) -> Stop | Literal["full"] | None:
    """Why no trial may follow those under way; None if one may."""
    spec, ledger, history = state.spec, state.ledger, state.history
    budgets = math.fsum(proposal.share for number, proposal in under_way.items() if number)
    enough = stopping.stop(spec, ledger.environment, history, life.spent, life.asked_to_stop, budgets)
    if enough is None and (shortage := state.budget.shortage(history, under_way)):
        enough = Stop("finished" if shortage.certifies else "stopped", shortage.reason)
    if enough is None or (enough.state == "finished" and spec.loaded_rule.certifies):
        enough = stopping.full(ledger.path) or enough  # for a trial, or for the runs of a certificate
    return enough or (FULL if len(history) + len(under_way) >= most else None)


def coming_proposal(state: CampaignState, under_way: Pending, spent: float) -> Next:
    """The next proposal that may run, or why there is none."""
    spec, ledger, history = state.spec, state.ledger, state.history
    while True:
        parked = forms.collect(ledger)
        number = next_number(history, parked, under_way)
        held = _waiting(parked) and spec.advanced.approval == "all"
        if held and not any(one.number == number for one in parked):
            return WAITS
        ideas = inbox.waiting(ledger.path, ledger.proposals(history))
        known = len(history), *under_way, *((one.number, one.state) for one in parked), *(name for name, _ in ideas)
        if known == state.nothing_for:
            return WAITS
        found = proposed(state, under_way, parked, number, spent)
        if isinstance(found, Nothing):
            state.nothing_for = known
            if _waiting(parked):
                return WAITS
            asks_again = f"nothing to try without {found.because}; `nightshift resume` asks again"
            return Stop("stopped", asks_again) if found.because else NOTHING_LEFT
        if not _needs_a_word(spec, history, parked, number, found):
            return number, found
        forms.ask(ledger, number, found, spec.advanced.approval_minutes)


def next_number(history: History, parked: Sequence[Parked], under_way: Pending) -> int:
    """The lowest number that is not decided, running, waiting for approval or rejected."""
    taken = {trial.number for trial in history} | set(under_way)
    taken |= {one.number for one in parked if one.state != "approved"}
    return next(number for number in itertools.count() if number not in taken)


def proposed(
    state: CampaignState, under_way: Pending, parked: Sequence[Parked], number: int, spent: float
) -> Proposal | Nothing:
    """The proposal of a trial: the stored one, or a new one."""
    spec, ledger, history = state.spec, state.ledger, state.history
    waiting, place = _waiting(parked), ledger.place(number)
    at, fallback = ledger.at(number), spec.loaded_fallback
    proposer = fallback if waiting and spec.advanced.approval == "code" else spec.loaded_proposer
    rejected = tuple(RejectedProposal(one.number, one.proposal, one.words) for one in parked if one.state == "rejected")
    for name, why in inbox.broken(ledger.path).items():
        inbox.refuse(ledger.path, name, why)
    inbox_proposals = inbox.waiting(ledger.path, ledger.proposals(history))
    checks = ProposalChecks(ledger.environment, spec.isolation, ledger.program, place, at.marker, inbox_proposals)
    money = state.budget.left_for_models(history, under_way)
    left = _when_begun(place.path / LEFT_FILE, budget_left(spec, ledger, history, spent, money))
    brief = Brief(
        ledger.environment.space,
        history,
        {one.number: one.proposal for one in waiting} | _undecided(under_way, history),
        ledger.seed("propose", at),
        problem=problem_of(ledger.environment),
        files=champions_files(ledger.environment, ledger.program, history),
        earlier=lessons(ledger.path),
        imported=_imported(ledger),
        left=replace(left, usd=money.usd, tokens=money.tokens),
        told_left=left,
        lost=state.budget.reader.lost,
        share=ledger.fidelity.share,
        rejected=rejected,
        keep_rule=spec.loaded_rule.in_words(history) if proposer.asks else "",
        curves=_curves(ledger, history) if proposer.asks else {},
        traces=place.path,
        baseline_seed=ledger.seed("train", ledger.at(0)),
    )
    is_left = is_kept(ledger.results, at, "propose")
    found = kept(propose, ledger.results)(at, whole(checks), whole(proposer), whole(fallback), whole(brief))
    if isinstance(found, Nothing):  # not stored: a resumed campaign may find a proposal or get an answer
        (ledger.results / f"{at}/propose").unlink(missing_ok=True)
        (place.path / LEFT_FILE).unlink()
        provenance.note_turned_down(ledger, number, found.turned_down)
        note_bought(ledger, found.usage)
        if is_left:  # a killed process stored it
            return proposed(state, under_way, parked, number, spent)
    return found


def _imported(ledger: Ledger) -> tuple[EarlierTrial, ...]:
    return earlier_trials.read(ledger.environment.folder)


def _undecided(under_way: Pending, history: History) -> dict[int, Proposal]:
    """The trials under way without those that were decided since: a worker is freed a moment later."""
    decided = {trial.number for trial in history}
    return {number: proposal for number, proposal in under_way.items() if number not in decided}


def _curves(ledger: Ledger, history: History) -> dict[int, curves.Table]:
    """What the trials that a model is told of in full reported on the way."""
    return curves.tables(ledger.path, curves.worth_reading(history, NEWEST, BEST), ledger.environment.metric)


def _when_begun(path: Path, now: RemainingBudget) -> RemainingBudget:
    """The budget left when the trial's turn first began."""
    if not path.is_file():
        write_atomic(path, LEFT.dump_json(now).decode() + "\n")
    return LEFT.validate_json(path.read_bytes())


def budget_left(
    spec: CampaignSpec, ledger: Ledger, history: History, spent: float, money: RemainingBudget = RemainingBudget()
) -> RemainingBudget:
    """The budget left before the next trial; one trial at most, where there is no time for a short one and another.

    Args:
        money: What models may take (flows/spending/budget.py).
    """
    reserve, share = spec.time_for_the_certificate(ledger.environment, history), ledger.fidelity.share
    seconds, trials = max(spec.hours * 3600 - spent - reserve, 0.0), max(spec.trials - budgets_used(history), 0.0)
    until = math.inf if spec.deadline is None else spec.deadline - time.time() - reserve
    a_trial = spec.time_for_a_trial(ledger.environment, history)
    a_short_one = a_trial - (1 - share) * ledger.environment.budget_seconds
    one_more = share < 1 and min(seconds, until) < a_short_one + a_trial
    trials = min(trials, 1.0) if one_more else trials
    return replace(money, trials=trials, seconds=seconds, slots=spec.parallel)


def _waiting(parked: Sequence[Parked]) -> tuple[Parked, ...]:
    return tuple(one for one in parked if one.state == "waiting")


def _needs_a_word(
    spec: CampaignSpec, history: History, parked: Sequence[Parked], number: int, proposal: Proposal
) -> bool:
    """Whether a proposal needs an approval that it does not have."""
    # A promotion runs what was approved already.
    if number == 0 or proposal.promotes is not None or any(one.number == number for one in parked):
        return False
    if spec.advanced.approval == "code":
        return proposal.edit not in {None, *(trial.proposal.edit for trial in history)}
    return spec.advanced.approval == "all"

"""Proposing ahead: the next proposal is made while every slot is busy, so that none waits for a language model.

Only for proposers that say so (`Proposer.ahead`): a numeric one answers in milliseconds, and by the newest score. The
proposal is stored like any other, so the next trial, or a resumed campaign, finds it and asks nobody again. It was made
without the scores of the trials under way, which it knows as pending. It may stay without a trial, where the campaign
ends first.

The smoke run of an edited program needs a core. It is made ahead only where the slots leave one free, so that it slows
no training down.
"""

from __future__ import annotations

import os

from flows.engine.campaign_state import CampaignState
from flows.engine.next_trial import coming_proposal, hindrance, next_number
from flows.engine.worker_pool import WorkerPool
from tasks.store import approval
from tasks.store.campaign_lock import Life


class ProposingAhead:
    """Makes the proposal after the trials under way, once for each set of them."""

    def __init__(self, state: CampaignState) -> None:
        self._state = state
        self._asked_for: tuple[int, ...] = ()

    def propose(self, pool: WorkerPool, life: Life, most: int) -> None:
        """Make and store it, where it is due; returns at once where it is not. (most: as in `next_trial`)"""
        state, under_way = self._state, pool.under_way
        seen = len(state.history), *under_way
        if not (pool.is_full() and state.history and self._is_wanted) or seen == self._asked_for:
            return
        self._asked_for = seen  # whatever comes of it: where nobody answers, the trial itself asks again
        if hindrance(state, under_way, life, most) is None:
            number = next_number(state.history, tuple(approval.parked(state.ledger.trials)), under_way)
            state.ledger.event("ahead", number=number)
            coming_proposal(state, under_way, life.spent)

    @property
    def _is_wanted(self) -> bool:
        spec, ledger = self._state.spec, self._state.ledger
        proposer = spec.loaded_proposer
        # Which short trial is promoted depends on every score, and what waits for approval changes who proposes.
        if not proposer.ahead or ledger.fidelity.share < 1 or spec.advanced.approval != "none":
            return False
        granted = spec.parallel * ledger.environment.cores if spec.launch == "here" else 0
        return not proposer.edits or granted < len(os.sched_getaffinity(0))

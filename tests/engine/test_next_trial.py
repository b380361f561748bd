"""What comes next, and how often a proposer is asked for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from flows.engine import next_trial
from flows.engine.campaign_state import CampaignState
from flows.engine.next_trial import WAITS, coming_proposal
from flows.engine.stopping import NOTHING_LEFT
from flows.spending.budget import CampaignBudget
from tasks.propose import Nothing
from tasks.store import inbox
from tasks.store.inbox import InboxProposal
from tasks.trial import Proposal, Usage
from tests.support.histories import tried
from tests.support.noisy import campaign, noisy
from tests.support.runners import bench


def test_who_had_nothing_to_propose_is_asked_again_once_something_has_changed(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = campaign(noisy(tmp_path / "noisy"))
    runner, asked = bench(ledger, (tried((), 0.0),)), list[int]()
    unused: Any = None
    state = CampaignState(runner.spec, ledger, unused, runner.slots, runner.history, unused, unused)

    def nobody(*_: object) -> Nothing:
        asked.append(1)
        return Nothing()

    monkeypatch.setattr(next_trial, "proposed", nobody)
    under_way = {1: Proposal({"x": 1.0})}
    assert coming_proposal(state, under_way, 0.0) == NOTHING_LEFT, "which waits for what is under way"
    assert [coming_proposal(state, under_way, 0.0) for _ in range(3)] == [WAITS] * 3
    assert len(asked) == 1

    inbox.add(ledger.path, InboxProposal({"x": 2.0}))
    coming_proposal(state, under_way, 0.0)
    assert len(asked) == 2, "a person has left a proposal"
    assert coming_proposal(state, {}, 0.0) == NOTHING_LEFT
    assert len(asked) == 3, "a slot is free, and its trial may have taught something"


def test_that_nothing_was_found_is_asked_again_where_the_process_was_killed_before_it_said_so(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = campaign(noisy(tmp_path / "noisy"))
    runner, unused = bench(ledger, (tried((), 0.0),)), cast(Any, None)
    money = CampaignBudget(runner.spec, ledger, 0)
    state = CampaignState(runner.spec, ledger, unused, runner.slots, runner.history, unused, money)
    left = ledger.results / f"{ledger.at(1)}/propose"
    left.parent.mkdir(parents=True)
    left.write_text("{}")
    idea = Proposal({"x": 1.0})

    def stored_or_new(*_: object) -> Nothing | Proposal:
        return Nothing("an answer", usage=Usage(1, 20, 3, 0.5)) if left.exists() else idea

    monkeypatch.setattr(next_trial, "kept", lambda *_: stored_or_new)
    assert next_trial.proposed(state, {}, (), 1, 0.0) == idea
    assert money.spent(runner.history).models.usd == 0.5, "what the models took counts"

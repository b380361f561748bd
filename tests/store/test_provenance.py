"""What happened to proposals, of which some have no trial."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tasks.store.approval import Parked
from tasks.store.provenance import TURNED_DOWN, Incident, incidents, sources
from tasks.trial import Usage
from tests.support.histories import tried
from tests.support.ledgers import created


def test_what_was_turned_down_is_shown_once_with_its_trial_or_without_one(tmp_path: Path) -> None:
    ledger, trial = created(tmp_path), tried((), 2.25, kind="keep", higher_is_better=False)
    assert incidents(ledger, (trial,)) == ()
    ledger.event(TURNED_DOWN, trial=1, reasons=("scripted: far out",))
    ledger.event(TURNED_DOWN, trial=1, reasons=("scripted: no", "scripted: nor\nthis\nneither"))
    told = (Incident(1, "turned down", "scripted: no"), Incident(1, "turned down", "scripted: nor ... neither"))
    assert incidents(ledger, (trial,)) == told
    followed = replace(trial, number=1, proposal=replace(trial.proposal, turned_down=("scripted: no",)))
    assert incidents(ledger, (trial, followed)) == told


def test_costs_count_for_who_was_asked_and_trials_for_who_made_them() -> None:
    trial = tried((), 2.25, kind="keep", higher_is_better=False)
    own = replace(trial.proposal, proposer="llm", model="m", usage=Usage(1, 10, 5, 0.5))
    fell = replace(own, proposer="tpe", model="", instead_of="llm: no answer")
    history = (trial, replace(trial, number=1, proposal=own), replace(trial, number=2, proposal=fell))
    waits = Parked(3, replace(own, usage=Usage(1, 0, 0, 0.25)), until=0.0)
    assert [one.words for one in sources(history, (waits,))] == [
        "llm (m): 1 trial, 1 kept, 2 calls, 15 tokens, 0.75 USD",
        "tpe: 1 trial, 1 kept",
        "llm: 0 trials, 0 kept, 1 call, 15 tokens, 0.50 USD",
    ]

"""What happened to proposals, of which some have no trial."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tasks.store.provenance import TURNED_DOWN, Incident, incidents, note_turned_down
from tests.support.histories import tried
from tests.support.ledgers import created


def test_what_was_turned_down_without_a_trial_is_noted_once_and_shown(tmp_path: Path) -> None:
    ledger, history = created(tmp_path), (tried((), 2.25, kind="keep", higher_is_better=False),)
    note_turned_down(ledger, 1, ())
    assert incidents(ledger, history) == ()
    for _ in range(3):  # a campaign that waits asks again and again
        note_turned_down(ledger, 1, ("scripted: far out: x must be at most 5",))
    assert [event["event"] for event in ledger.events()].count(TURNED_DOWN) == 1
    assert incidents(ledger, history) == (Incident(1, "turned down", "scripted: far out: x must be at most 5"),)
    note_turned_down(ledger, 1, ("scripted: no", "scripted: nor this"))
    assert [one.words for one in incidents(ledger, history)] == ["scripted: no", "scripted: nor this"]


@pytest.mark.parametrize(("rationale", "words"), [("clip it", "idea 0001: clip it"), ("", "idea 0001")])
def test_an_idea_of_a_person_is_told_with_its_reason_if_it_has_one(tmp_path: Path, rationale: str, words: str) -> None:
    trial = tried((), 2.25, higher_is_better=False)
    asked = replace(trial, proposal=replace(trial.proposal, inbox="0001", rationale=rationale))
    assert incidents(created(tmp_path), (asked,)) == (Incident(0, "inbox", words),)

"""What a campaign tells: derived from what is known, once, and a silence too."""

from __future__ import annotations

import os
import time
from pathlib import Path

from flows.server import announcements
from flows.server.announcements import STALL_SECONDS, TOLD, Announcement
from tasks.store import approval, workspace
from tasks.store.ledger import Ledger
from tasks.system.files import write_atomic
from tasks.trial import Proposal
from tests.support.histories import certified
from tests.support.ledgers import created
from tests.support.outcomes import night


def note(ledger: Ledger, *told: Announcement) -> None:
    for one in told:
        ledger.event(TOLD, what=one.what, key=one.key)


def test_a_champion_is_told_once_and_its_successor_again(tmp_path: Path) -> None:
    ledger = created(tmp_path)
    assert announcements.due(ledger, night([2.25, 3.0], up=False), ()) == []
    (first,) = announcements.due(ledger, night([2.25, 3.0, 1.0], up=False), ())
    assert (first.what, first.key) == ("champion", "2") and "n: about" in first.text
    note(ledger, first)
    assert announcements.due(ledger, night([2.25, 3.0, 1.0, 1.5], up=False), ()) == []
    (second,) = announcements.due(ledger, night([2.25, 3.0, 1.0, 1.5, 0.5], up=False), ())
    assert second.key == "4"


def test_a_new_champion_is_not_told_with_the_certificate_of_an_earlier_one_alone(tmp_path: Path) -> None:
    passed = certified(1, (1.0, 1.1, 0.9, 1.0), (2.0, 2.1, 2.2, 2.1), higher_is_better=False, error=0.01)
    history = night([2.25, 1.0, 0.5], up=False)
    (champion, _) = announcements.due(created(tmp_path), history, (passed,))
    assert champion.key == "2" and champion.text.endswith("; trial 2 is not certified yet, and trial 1 ships")


def test_only_a_certificate_that_was_passed_is_told_each_once(tmp_path: Path) -> None:
    ledger, history = created(tmp_path), night([2.25], up=False)
    passed = certified(1, (1.0, 1.1, 0.9, 1.0), (2.0, 2.1, 2.2, 2.1), higher_is_better=False, error=0.01)
    not_passed = certified(2, (2.0, 2.2, 1.9), (2.0, 2.1, 2.2), higher_is_better=False, error=0.01, look=2)
    elsewhere = certified(1, (1.0, 1.1, 0.9, 1.0), (2.0, 2.1, 2.2, 2.1), higher_is_better=False, error=0.01, on="other")
    due = announcements.due(ledger, history, (passed, not_passed, elsewhere))
    assert [(one.what, one.key) for one in due] == [("certified", "1"), ("certified", "other-1")]
    assert due[0].subject == "n: trial 1 is certified" and due[0].text.startswith("certified: ")
    note(ledger, due[0])
    assert announcements.due(ledger, history, (passed, not_passed, elsewhere)) == due[1:]


def told(ledger: Ledger, since: float) -> list[Announcement]:
    silent = announcements.silence(ledger, since)
    return [] if silent is None else announcements.stalled(ledger, silent)


def test_a_campaign_in_which_nothing_finishes_is_stalled_once_until_something_does(tmp_path: Path) -> None:
    ledger, now = created(tmp_path), time.time()
    assert told(ledger, since=now) == []
    long_ago = now - STALL_SECONDS - 60
    (silent,) = told(ledger, since=long_ago)
    assert "31 minutes" in silent.text and "nightshift watch n" in silent.text
    note(ledger, silent)
    assert told(ledger, since=long_ago) == []
    finished = ledger.results / "some/evaluate"
    finished.parent.mkdir(parents=True)
    finished.touch()
    assert told(ledger, since=long_ago) == []
    os.utime(finished, (long_ago, long_ago))
    assert [one.key for one in told(ledger, since=long_ago)] == ["1"]


def test_a_long_training_is_no_silence(tmp_path: Path) -> None:
    ledger = created(tmp_path, advanced={"overrides": {"budget_seconds": 3600}}, hours=1000)
    assert told(ledger, since=time.time() - 3 * 3600 + 60) == []
    assert told(ledger, since=time.time() - 3 * 3600 - 60) != []


def test_a_certificate_for_a_longer_budget_is_no_silence_and_the_next_life_forgets_it(tmp_path: Path) -> None:
    ledger = created(tmp_path)
    long_ago = time.time() - STALL_SECONDS - 60
    ledger.event("life", pid=1)
    ledger.event("certify", look=1, budget=4, budget_seconds=1200.0)
    assert told(ledger, since=long_ago) == []
    (late,) = told(ledger, since=time.time() - 3660)
    assert "a training takes 20 at most" in late.text
    ledger.event("life", pid=2)
    assert told(ledger, since=long_ago) != []


def test_the_silence_ends_when_a_slot_is_given_or_an_approval(tmp_path: Path) -> None:
    long_ago = time.time() - STALL_SECONDS - 60
    ledger = created(tmp_path)
    ledger.event("waiting", number=1, who="cpu-0 is held by process 7")
    assert announcements.silence(ledger, long_ago) is not None
    ledger.event("slot", number=1, slot="cpu-0")
    assert announcements.silence(ledger, long_ago) is None
    other = created(tmp_path / "other", name="other")
    place = other.place(1)
    place.path.mkdir(parents=True)
    write_atomic(place.proposal, workspace.PROPOSAL.dump_json(Proposal({"x": 1.0})).decode())
    approval.park(other, approval.Parked(1, Proposal({"x": 1.0}), long_ago + 1e6))
    assert announcements.silence(other, long_ago) is not None
    approval.answer(other, 1, True, "", by="terminal")
    assert announcements.silence(other, long_ago) is None


def test_a_campaign_that_only_an_approval_can_move_says_so_once(tmp_path: Path) -> None:
    ledger = created(tmp_path)
    (asked,) = announcements.stalled(ledger, 1860.0, (4, 7))
    assert "waits for approval" in asked.subject and "nightshift approve n 4" in asked.text and "31 min" in asked.text
    note(ledger, asked)
    assert announcements.stalled(ledger, 9999.0, (4, 7)) == []
    assert announcements.stalled(ledger, 9999.0, (4, 7, 8)) != []

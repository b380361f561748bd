"""The outbox: what MLflow has not taken waits, and in the end every trial is there once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.record import reconcile
from tasks.store import workspace
from tasks.store.ledger import Ledger, machine
from tasks.system import interrupt
from tasks.system.files import write_atomic
from tasks.tracking.client import Unreachable
from tasks.tracking.outbox import Outbox, campaign_record
from tasks.tracking.receipts import is_tracked, waiting
from tasks.trial import Trial
from tests.support.fake_tracker import Shelf, night, notes, outbox_of, settled
from tests.support.histories import decided
from tests.support.ledgers import created


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return created(tmp_path)


def test_each_trial_is_sent_once_in_order(ledger: Ledger) -> None:
    shelf = Shelf()
    outbox = outbox_of(ledger, shelf)
    night(ledger, outbox, shelf)
    outbox.close("finished")
    assert (shelf.sent, outbox.waiting, shelf.ended) == ([0, 1, 2, 3], [], ["finished"])
    assert notes(ledger) == []


def test_with_each_trial_goes_how_the_campaign_stands(ledger: Ledger) -> None:
    shelf = Shelf()
    night(ledger, outbox_of(ledger, shelf), shelf)
    assert shelf.progress == [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_after_an_outage_every_trial_goes_with_how_the_campaign_stands_now(ledger: Ledger) -> None:
    shelf = Shelf()
    night(ledger, outbox_of(ledger, shelf), shelf, outages=(0, 1, 2))
    assert shelf.progress == [(0, 4), (1, 4), (2, 4), (3, 4)]


def test_the_end_is_shown_with_the_whole_history_and_the_campaigns_files(ledger: Ledger) -> None:
    shelf = Shelf()
    outbox = outbox_of(ledger, shelf, night(ledger, outbox_of(ledger, shelf), shelf))
    outbox.close("finished")
    assert shelf.shown == (4, ledger.path)


def test_a_campaign_says_on_which_machine_and_budget_it_ran(ledger: Ledger) -> None:
    spec = campaign_record(ledger, None).spec
    assert spec["machine"] == machine()
    assert spec["budget_seconds"] == f"{ledger.environment.budget_seconds:g}"


def test_what_was_set_over_the_environment_goes_along(tmp_path: Path) -> None:
    ledger = created(tmp_path, advanced={"overrides": {"budget_seconds": 3.0}})
    spec = campaign_record(ledger, None).spec
    assert (spec["set.budget_seconds"], spec["budget_seconds"]) == ("3.0", "3")


def test_a_budget_of_steps_is_called_what_it_is(tmp_path: Path) -> None:
    spec = campaign_record(created(tmp_path, advanced={"overrides": {"budget_steps": 3000}}), None).spec
    assert spec["budget_steps"] == "3000 (self-reported)"
    assert "budget_steps" not in campaign_record(created(tmp_path, name="m"), None).spec


@pytest.mark.parametrize("outages", [(0,), (1, 2), (0, 1, 2), (1, 3), (0, 1, 2, 3)])
def test_an_outage_loses_nothing_and_doubles_nothing(ledger: Ledger, outages: tuple[int, ...]) -> None:
    shelf = Shelf()
    outbox = outbox_of(ledger, shelf)
    night(ledger, outbox, shelf, outages)
    outbox.close("finished")
    assert (shelf.sent, outbox.waiting) == ([0, 1, 2, 3], [])


@pytest.mark.parametrize(
    ("outages", "expected"),
    [
        ((1, 2), [("connection refused", 1)]),
        ((0, 1, 2, 3), [("connection refused", 1)]),
        ((0, 2), [("connection refused", 1), ("connection refused", 1)]),
    ],
)
def test_an_outage_is_noted_once(ledger: Ledger, outages: tuple[int, ...], expected: list[tuple[str, int]]) -> None:
    shelf = Shelf()
    night(ledger, outbox_of(ledger, shelf), shelf, outages)
    assert notes(ledger) == expected


def test_what_waits_at_the_end_of_a_life_is_sent_by_the_next(ledger: Ledger) -> None:
    shelf = Shelf()
    outbox = outbox_of(ledger, shelf)
    history = night(ledger, outbox, shelf, outages=(2, 3))
    shelf.down = True
    outbox.close("finished")
    assert [trial.number for trial in outbox.waiting] == [2, 3]
    shelf.down = False
    following = outbox_of(ledger, shelf, history)
    assert [trial.number for trial in following.waiting] == [2, 3]
    following.drain()
    assert shelf.sent == [0, 1, 2, 3]


def test_what_was_sent_is_known_to_the_next_life(ledger: Ledger) -> None:
    shelf = Shelf()
    history = night(ledger, outbox_of(ledger, shelf), shelf)
    following = outbox_of(ledger, shelf, reconcile(ledger))
    assert following.waiting == []
    for trial in history:
        following.add(trial)
    following.drain()
    assert shelf.sent == [0, 1, 2, 3]


def test_a_trial_that_is_added_twice_is_sent_once(ledger: Ledger) -> None:
    shelf = Shelf()
    outbox = outbox_of(ledger, shelf)
    trial = settled(ledger, ())
    shelf.down = True
    for _ in range(2):
        outbox.add(trial)
        outbox.drain()
    shelf.down = False
    outbox.drain()
    assert shelf.sent == [0]


def test_a_record_that_is_rejected_does_not_hold_up_the_others(ledger: Ledger) -> None:
    shelf = Shelf()
    shelf.unwanted = {1}
    outbox = outbox_of(ledger, shelf)
    night(ledger, outbox, shelf)
    outbox.close("finished")
    assert (shelf.sent, [trial.number for trial in outbox.waiting]) == ([0, 2, 3], [1])
    assert shelf.ended == ["finished"]
    assert notes(ledger) == [("trial 1 has a tag that is too long", 1)]


def test_a_record_that_was_rejected_is_offered_again_to_whoever_would_have_it(ledger: Ledger) -> None:
    shelf = Shelf()
    shelf.unwanted = {1}
    history = night(ledger, outbox_of(ledger, shelf), shelf)
    shelf.unwanted = set()
    outbox_of(ledger, shelf, history).drain()
    assert shelf.sent == [0, 2, 3, 1]


def test_a_trial_that_was_decided_anew_is_sent_anew(ledger: Ledger) -> None:
    shelf = Shelf()
    outbox = outbox_of(ledger, shelf)
    trial = settled(ledger, ())
    outbox.add(trial)
    outbox.drain()
    changed = decided((), 1.0, {"x": 0.0}, higher_is_better=False)
    write_atomic(ledger.place(0).trial, workspace.TRIAL.dump_json(changed).decode())
    assert not is_tracked(ledger, changed)
    outbox.add(changed)
    outbox.drain()
    assert shelf.sent == [0, 0]


def test_a_trial_that_was_run_again_is_sent_and_counts_once(ledger: Ledger) -> None:
    shelf = Shelf()
    history = night(ledger, outbox_of(ledger, shelf), shelf)
    outbox = outbox_of(ledger, shelf, history)
    ledger.place(1, attempt=2).workspace.mkdir(parents=True)
    newest = replace(history[1], attempt=2, order=len(history))
    write_atomic(ledger.place_of(newest).trial, workspace.TRIAL.dump_json(newest).decode())
    outbox.add(newest)
    outbox.close("finished")
    assert shelf.sent == [0, 1, 2, 3, 1] and shelf.progress[-1] == (1, len(history))
    assert shelf.shown[0] == len(history)


def test_a_campaign_whose_tracker_is_down_ends_all_the_same(ledger: Ledger) -> None:
    shelf = Shelf()
    outbox = outbox_of(ledger, shelf)
    shelf.down = True
    outbox.close("failed")
    outbox.close("failed")
    assert notes(ledger) == [("connection refused", 1)] and waiting(ledger, ()) == 1
    shelf.down = False
    outbox.close("failed")
    assert shelf.ended == ["failed"] and waiting(ledger, ()) == 0


def test_a_server_that_hangs_is_not_asked_after_every_trial(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf, asked, now = Shelf(), [], [100.0]

    def hangs(_: Trial) -> None:
        asked.append(now[0])
        now[0] += 3.0
        raise Unreachable("timed out")

    monkeypatch.setattr("tasks.tracking.outbox.clock", lambda: now[0])
    monkeypatch.setattr(shelf, "open_campaign", hangs)
    outbox = outbox_of(ledger, shelf, (settled(ledger, ()),))
    for _ in range(40):
        outbox.drain()
        now[0] += 1.0
    assert asked == [100.0, 130.0]
    monkeypatch.undo()
    outbox.close("stopped")
    assert shelf.sent == [0] and not outbox.problem, "the end does not wait"


def test_who_is_asked_to_end_sends_no_further_trial_and_loses_none(ledger: Ledger) -> None:
    first = settled(ledger, ())
    history = (first, settled(ledger, (first,)))
    shelf = Shelf()
    outbox = outbox_of(ledger, shelf, history)
    for path in ("drain", "close"):
        with interrupt.asked(), pytest.raises(KeyboardInterrupt):
            outbox.drain() if path == "drain" else outbox.close("stopped")
        assert shelf.sent == [] and waiting(ledger, history) == 2
    outbox.close("stopped")
    assert shelf.sent == [0, 1]


def test_a_receipt_that_a_power_cut_has_emptied_counts_for_nothing(ledger: Ledger) -> None:
    shelf = Shelf()
    history = night(ledger, outbox_of(ledger, shelf), shelf)
    for left in ("", "{", "[]", "{}"):
        (ledger.place(2).path / "tracked.json").write_text(left)
        assert [is_tracked(ledger, trial) for trial in history] == [True, True, False, True]


def test_a_receipt_says_which_run_took_which_trial(ledger: Ledger) -> None:
    shelf = Shelf()
    night(ledger, outbox_of(ledger, shelf), shelf)
    receipt = json.loads((ledger.place(2).path / "tracked.json").read_text())
    assert receipt["run_id"] == "run-2" and len(receipt["of"]) == 16


def test_with_tracking_off_nothing_waits(ledger: Ledger) -> None:
    outbox = Outbox(ledger, "off", None, ())
    outbox.add(settled(ledger, ()))
    outbox.drain()
    outbox.close("finished")
    assert outbox.waiting == []

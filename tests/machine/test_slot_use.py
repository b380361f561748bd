"""Slot use: what slots were used for, from the events of a campaign."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.machine.slot_use import in_words, slot_use


def taken(time: float, number: int, slot: str = "cpu-0") -> dict[str, Any]:
    return {"time": time, "event": "slot", "number": number, "slot": slot}


def given_back(time: float, number: int, slot: str = "cpu-0", **seconds: float) -> dict[str, Any]:
    return {"time": time, "event": "slot free", "number": number, "slot": slot, **seconds}


def life(time: float) -> dict[str, Any]:
    return {"time": time, "event": "life"}


def test_the_time_between_two_trials_is_idle() -> None:
    events = [
        life(0), taken(10, 1), given_back(30, 1, train=14, start=2, judge=3),
        taken(35, 2), given_back(50, 2, train=14),
    ]  # fmt: skip
    use = slot_use(events)
    assert (use.seconds, use.train, use.start, use.judge) == (40, 28, 2, 3)
    assert use.idle == pytest.approx(7)
    assert sum(use.shares.values()) == pytest.approx(1)
    assert "17.5% idle" in in_words(use.shares)


def test_slots_side_by_side_are_summed() -> None:
    events = [taken(0, 1), taken(1, 2, "cpu-1"), given_back(10, 1, train=10), given_back(11, 2, "cpu-1", train=5)]
    assert slot_use(events).shares == {"training": 0.75, "start-up": 0, "judging": 0, "idle": 0.25}


def test_slots_of_the_same_name_on_two_machines_are_two() -> None:
    events = [
        taken(0, 1) | {"on": "a"}, taken(1, 2) | {"on": "b"},
        given_back(10, 1, train=10) | {"on": "a"}, given_back(11, 2, train=10) | {"on": "b"},
    ]  # fmt: skip
    assert slot_use(events).shares["training"] == 1


def test_time_for_which_others_hold_a_slot_is_not_the_campaigns() -> None:
    waits = {"time": 12, "event": "waiting", "number": 2, "who": "cpu-0 is held by another"}
    use = slot_use([taken(0, 1), given_back(10, 1, train=10), waits, taken(100, 2), given_back(110, 2, train=10)])
    assert (use.seconds, use.idle) == (22, 2)


def test_a_slot_that_another_campaign_has_meanwhile_is_not_idle() -> None:
    events = [
        taken(0, 1), given_back(10, 1, train=10), taken(11, 2, "cpu-1"), given_back(21, 2, "cpu-1", train=10),
        taken(22, 3), given_back(32, 3, train=10),
    ]  # fmt: skip
    use = slot_use(events)
    assert (use.seconds, use.idle) == (32, 2)


def test_time_between_two_processes_and_a_run_that_was_killed_count_nowhere() -> None:
    use = slot_use([life(0), taken(1, 1), given_back(5, 1, train=4), taken(6, 2), life(900), taken(901, 2)])
    assert use.seconds == 5, "4 of the run, and 1 until the next began"


def test_a_campaign_of_an_earlier_version_has_no_use() -> None:
    assert slot_use([life(0), taken(1, 1), taken(20, 2)]).shares == {}
    assert in_words({}) == ""

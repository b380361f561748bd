"""Slot use: what slots were used for, from the events of a campaign."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.machine.slot_use import in_words, slot_use


def taken(time: float, number: int, slot: str = "cpu-0") -> dict[str, Any]:
    return {"time": time, "event": "slot", "number": number, "slot": slot}


def given_back(time: float, number: int, slot: str = "cpu-0", **seconds: float) -> dict[str, Any]:
    return {"time": time, "event": "slot free", "number": number, "slot": slot, **seconds}


def begun(time: float, spent: float = 0.0, slots: int = 1) -> list[dict[str, Any]]:
    return [
        {"time": time, "event": "life", "spent_before": spent},
        {"time": time, "event": "slots", "parallel": slots, "locks": {}},
    ]


def ended(time: float) -> dict[str, Any]:
    return {"time": time, "event": "end", "state": "finished"}


def test_time_without_a_program_is_idle_from_the_first_second_to_the_last() -> None:
    events = [
        *begun(0), taken(10, 1), given_back(30, 1, train=14, start=2, judge=3),
        taken(35, 2), given_back(50, 2, train=14), ended(53),
    ]  # fmt: skip
    use = slot_use(events, 53)
    assert (use.seconds, use.train, use.start, use.judge, use.cut_off) == (53, 28, 2, 3, 0)
    assert use.idle == 20
    assert sum(use.shares.values()) == pytest.approx(1, abs=1e-3)
    assert in_words(use.shares) == "slots: 52.8% training, 3.8% start-up, 5.7% judging, 37.7% idle"


def test_a_slot_that_stands_still_beside_another_is_idle() -> None:
    use = slot_use([*begun(0, slots=2), taken(0, 1), given_back(100, 1, train=100), ended(100)], 100)
    assert use.shares == {"training": 0.5, "start-up": 0, "judging": 0, "idle": 0.5}


def test_slots_of_the_same_name_on_two_machines_are_two() -> None:
    events = [
        *begun(0, slots=2), taken(0, 1) | {"on": "a"}, taken(0, 2) | {"on": "b"},
        given_back(10, 1, train=10) | {"on": "a"}, given_back(10, 2, train=10) | {"on": "b"}, ended(10),
    ]  # fmt: skip
    assert slot_use(events, 10).shares["training"] == 1


def test_time_for_which_others_hold_a_slot_is_not_the_campaigns() -> None:
    waits = {"time": 12, "event": "waiting", "number": 2, "who": "cpu-0 is held by another"}
    first = [*begun(0), taken(0, 1), given_back(10, 1, train=10), waits]
    use = slot_use([*first, taken(100, 2), given_back(110, 2, train=10), ended(110)], 110)
    assert (use.seconds, use.idle) == (22, 2)
    assert slot_use([*first, ended(500)], 500).seconds == 12, "it waited until its end"


def test_two_runs_of_one_trial_wait_for_two_slots() -> None:
    waits = {"time": 0, "event": "waiting", "number": 3, "who": "another"}
    runs = [
        taken(50, 3), taken(60, 3, "cpu-1"), given_back(80, 3, train=30), given_back(80, 3, "cpu-1", train=20),
    ]  # fmt: skip
    assert slot_use([*begun(0, slots=2), waits, waits, *runs, ended(80)], 80).idle == 0


def test_a_run_that_a_kill_cut_off_is_named_and_the_time_until_the_next_process_is_nobodys() -> None:
    events = [
        *begun(0), taken(1, 1), given_back(5, 1, train=4), taken(6, 2),
        *begun(900, spent=20), taken(901, 2), given_back(915, 2, train=14), ended(916),
    ]  # fmt: skip
    use = slot_use(events, 36)
    assert (use.seconds, use.train, use.cut_off, use.idle) == (36, 18, 14, 4)
    assert "38.9% cut off" in in_words(use.shares)


def test_a_run_that_was_ended_with_its_campaign_and_used_nothing_is_cut_off() -> None:
    events = [*begun(0), taken(0, 1), given_back(40, 1, train=40), taken(40, 2), given_back(60, 2)]
    assert slot_use([*events, ended(60)], 60).cut_off == 20


def test_slots_that_are_named_after_the_end_of_a_process_are_not_its_own() -> None:
    events = [*begun(0), taken(0, 1), given_back(10, 1, train=8), ended(12), begun(500)[1]]
    assert (slot_use(events, 12).seconds, slot_use(events, 12).idle) == (12, 4)


def test_a_run_under_way_counts_nowhere() -> None:
    use = slot_use([*begun(0), taken(0, 1), given_back(10, 1, train=10), taken(12, 2)], 500)
    assert (use.seconds, use.train, use.idle) == (12, 10, 2)


def test_before_a_run_has_ended_there_is_no_use() -> None:
    assert slot_use([*begun(0), taken(1, 1)], 20).shares == {}
    assert slot_use([], 0).shares == {}
    assert in_words({}) == ""

"""Slot use: what slots were used for, from the events of a campaign."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.machine.slot_use import in_words, slot_use


def taken(time: float, number: int, slot: str = "cpu-0") -> dict[str, Any]:
    return {"time": time, "event": "slot", "number": number, "slot": slot}


def given_back(time: float, number: int, slot: str = "cpu-0", **more: float) -> dict[str, Any]:
    return {"time": time, "event": "slot free", "number": number, "slot": slot, **more}


def begun(time: float, spent: float = 0.0, slots: int = 1) -> list[dict[str, Any]]:
    return [
        {"time": time, "event": "life", "spent_before": spent},
        {"time": time, "event": "slots", "parallel": slots, "locks": {}},
    ]


def test_time_without_a_program_is_idle_from_the_first_second_to_the_last() -> None:
    events = [
        *begun(0), taken(10, 1), given_back(30, 1, train=14, start=2, judge=3),
        taken(35, 2), given_back(50, 2, train=14, proof=True),
    ]  # fmt: skip
    use = slot_use(events, 53)
    assert (use.seconds, use.train, use.start, use.judge, use.proof, use.idle) == (53, 28, 2, 3, 14, 20)
    assert sum(use.shares.values()) == pytest.approx(1, abs=1e-3)
    assert in_words(use.shares) == "slots: 52.8% training, 3.8% start-up, 5.7% judging, 37.7% idle"


def test_a_slot_that_stands_still_beside_another_is_idle() -> None:
    use = slot_use([*begun(0, slots=2), taken(0, 1), given_back(100, 1, train=100)], 100)
    assert use.shares == {"training": 0.5, "start-up": 0, "judging": 0, "idle": 0.5}


def test_slots_of_the_same_name_on_two_machines_are_two() -> None:
    events = [
        *begun(0, slots=2), taken(0, 1) | {"on": "a"}, taken(0, 2) | {"on": "b"},
        given_back(10, 1, train=10) | {"on": "a"}, given_back(10, 2, train=10) | {"on": "b"},
    ]  # fmt: skip
    assert slot_use(events, 10).shares["training"] == 1


def test_the_time_until_the_next_process_is_nobodys_and_a_run_that_a_kill_cut_off_idle() -> None:
    events = [
        *begun(0), taken(1, 1), given_back(5, 1, train=4), taken(6, 2),
        *begun(900, spent=20), taken(901, 2), given_back(915, 2, train=14),
    ]  # fmt: skip
    use = slot_use(events, 36)
    assert (use.seconds, use.train, use.idle) == (36, 18, 18)


def test_a_run_under_way_counts_nowhere() -> None:
    use = slot_use([*begun(0), taken(0, 1), given_back(10, 1, train=10), taken(12, 2)], 500)
    assert (use.seconds, use.train, use.idle) == (12, 10, 2)


def test_before_a_run_has_ended_there_is_no_use() -> None:
    assert slot_use([*begun(0), taken(1, 1)], 20).shares == {}
    assert slot_use([], 0).shares == {}
    assert in_words({}) == ""

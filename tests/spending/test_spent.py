"""What trials and campaigns cost."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows.spec.campaign_spec import CampaignSpec
from tasks.remote import jobs
from tasks.spending.spent import (
    HourlyRate,
    MachineCost,
    SpendingReader,
    Spent,
    note_bought,
    note_removed_late,
    note_rented,
    spent,
)
from tasks.store.ledger import Ledger
from tasks.task_key import TaskKey
from tasks.trial import Run, Trial, Usage
from tests.support.endpoints import remote_quadratic
from tests.support.histories import tried
from tests.support.ledgers import created
from tests.support.trusting import trusted


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return created(tmp_path)


def happened(ledger: Ledger, *events: dict[str, Any]) -> None:
    with (ledger.path / "events.jsonl").open("a") as file:
        file.writelines(json.dumps(event) + "\n" for event in events)


def life(time: float, before: float = 0.0) -> dict[str, Any]:
    return {"time": time, "event": "life", "spent_before": before}


def price(usd_per_hour: float) -> dict[str, Any]:
    return {"time": 0.0, "event": "price", "usd_per_hour": usd_per_hour}


def slot(time: float, number: int, name: str = "cpu-0", **on: str) -> dict[str, Any]:
    return {"time": time, "event": "slot", "number": number, "slot": name, **on}


def free(time: float, number: int, name: str = "cpu-0", **on: str) -> dict[str, Any]:
    return {"time": time, "event": "slot free", "number": number, "slot": name, **on}


def usd(found: Spent) -> float:
    return round(found.slots.usd, 6)


def paid(model: float | None = 0.0, rented: float | None = 0.0, slots: float = 0.0, calls: int = 0) -> Trial:
    trial = tried((), 50.0)
    proposal = replace(trial.proposal, usage=Usage(calls, usd=model))
    return replace(trial, proposal=proposal, runs=(replace(trial.runs[0], usd=rented),), slots_usd=slots)


def test_a_trial_costs_what_its_models_its_rented_machines_and_its_slots_cost() -> None:
    assert paid(model=0.25, rented=1.5, slots=0.5, calls=2).cost == 2.25
    assert paid(rented=1.5).cost == 1.5
    assert paid(model=0.0, calls=1).cost == 0.0, "a model of a known price, which is 0"


def test_nothing_bought_and_an_unknown_price_are_no_cost_of_zero() -> None:
    assert paid().cost is None
    assert paid(rented=None, slots=0.5).cost is None and paid(model=None, calls=1).cost is None


def test_slots_cost_their_stated_price_while_they_are_held(ledger: Ledger) -> None:
    happened(ledger, life(0.0), slot(10.0, 0), free(20.0, 0))
    assert spent(ledger, ()) == Spent(trials={0: MachineCost()}), "no price was stated"
    happened(ledger, price(3600.0), slot(30.0, 1, "gpu-0-1"), free(40.0, 1, "gpu-0-1"), slot(50.0, 2))
    found = spent(ledger, (), now=52.0)
    assert usd(found) == 12.0 and found.slots.gpu_hours == pytest.approx(2 * 10 / 3600)
    assert found.slot_rate == HourlyRate(3600.0, 2)
    assert {number: cost.usd for number, cost in found.trials.items()} == {0: 0.0, 1: 10.0, 2: 2.0}


def test_a_new_price_does_not_change_what_was_spent(ledger: Ledger) -> None:
    reader = SpendingReader(ledger)
    reader.note_price(0.0)
    assert not (ledger.path / "events.jsonl").exists(), "nothing costs anything"
    reader.note_price(3600.0)
    reader.note_price(3600.0)
    happened(ledger, slot(10.0, 1), free(20.0, 1))
    reader.note_price(7200.0)
    happened(ledger, slot(30.0, 2), free(40.0, 2))
    assert usd(reader.read((), now=99.0)) == 30.0 and usd(spent(ledger, (), now=99.0)) == 30.0
    assert [event["usd_per_hour"] for event in ledger.events() if event["event"] == "price"] == [3600.0, 7200.0]


def test_a_slot_that_a_kill_left_open_costs_until_the_end_of_its_process(ledger: Ledger) -> None:
    happened(ledger, price(3600.0), life(100.0), slot(110.0, 1), life(900.0, before=25.0))
    assert usd(spent(ledger, (), now=1000.0)) == 15.0
    happened(ledger, slot(910.0, 1), free(912.0, 1))
    assert usd(spent(ledger, (), now=1000.0)) == 17.0


def test_a_slot_elsewhere_outlives_the_campaigns_process(ledger: Ledger) -> None:
    happened(ledger, price(3600.0), life(100.0), slot(110.0, 1, on="gpu-box"), life(900.0, before=25.0))
    assert usd(spent(ledger, (), now=1000.0)) == 15.0
    happened(ledger, free(905.0, 1, on="gpu-box"))
    assert usd(spent(ledger, (), now=1000.0)) == 795.0


def test_a_machine_that_is_lost_costs_until_it_was_taken_for_lost(ledger: Ledger) -> None:
    died = {"time": 130.0, "event": "launch", "what": "died", "trial": 1}
    happened(ledger, price(3600.0), life(100.0), slot(110.0, 1, on="box"), slot(112.0, 2, on="other"), died)
    assert usd(spent(ledger, (), now=140.0)) == 20.0 + 28.0


def test_a_rented_machine_is_counted_once(ledger: Ledger) -> None:
    at, run = (
        TaskKey("id", "digest", 3),
        Run("trials/0003", 1, 50.0, "finished", wall_seconds=60.0, usd=1.5, rented_gpus=2),
    )
    place = ledger.place(3)
    for _ in range(2):
        note_rented(ledger, at, place, run)
    note_rented(ledger, at, place, Run("trials/0003", 1, 50.0, "finished", wall_seconds=60.0))
    found = spent(ledger, ())
    assert found.rented == MachineCost(1.5, 2 / 60) and found.usd == 1.5
    assert found.rented_rate == HourlyRate(90.0, 2), "an hour of it"
    note_rented(ledger, replace(at, part="run-2"), place, replace(run, usd=None))
    assert spent(ledger, ()).usd is None and "trial 3" in spent(ledger, ()).unknown


def test_what_a_machine_costs_that_is_removed_late_is_noted_later(tmp_path: Path) -> None:
    remote = remote_quadratic(tmp_path / "remote", "http://127.0.0.1:9")
    ledger = CampaignSpec.of(environment=str(trusted(remote)), name="n", tracking="off").open()

    def note(folder: str, run: str, ended: float, dollars: float, removed: bool = False) -> None:
        (ledger.trials / folder).mkdir(parents=True, exist_ok=True)
        fact = {
            "key": folder, "run": f"{ledger.campaign.campaign_id}/{run}", "started": 0, "ended": ended, "usd": dollars,
            "gpus": 2, "removed": removed,
        }  # fmt: skip
        with (ledger.trials / folder / jobs.COSTS).open("a") as costs:
            costs.write(json.dumps(fact) + "\n")

    runs = {
        "0003": "0003/1/run-1/0003",
        "0003/untrained": "0003/1/run-1/untrained",
        "0004-run-2": "0004/1/run-2/0004-run-2",
    }
    for folder, run in runs.items():
        note(folder, run, 1800, 1)
        note(folder, run, 3600, 2)
    note_removed_late(ledger)
    assert spent(ledger, ()).rented == MachineCost(6.0, 6.0)
    for ended in (7200, 9000):  # it was removed twice
        note("0003", runs["0003"], ended, ended / 1800, removed=True)
        note_removed_late(ledger)
    assert spent(ledger, ()).rented == MachineCost(8.0, 8.0)
    assert spent(ledger, ()).trials[3].usd == 6.0


def test_what_was_paid_for_a_run_that_was_cut_off_counts_and_its_rest_later(ledger: Ledger) -> None:
    at, place = TaskKey("id", "digest", 3), ledger.place(3)
    place.path.mkdir(parents=True)
    note_rented(ledger, at, place)
    assert not spent(ledger, ()).anything, "nothing was rented yet"
    with (place.path / jobs.COSTS).open("a") as costs:
        costs.write('{"key": "a", "started": 0, "ended": 1800, "usd": 4}\n')
        costs.flush()
        note_rented(ledger, at, place)
        assert spent(ledger, ()).usd == 4
        costs.write('{"key": "a", "started": 0, "ended": 9000, "usd": 20}\n')  # it was removed twice
        costs.write('{"key": "b", "started": 9000, "ended": 10800, "usd": 4}\n')
    note_rented(ledger, at, place, Run("trials/0003", 1, 50.0, "finished", wall_seconds=60.0, usd=8.0))
    assert spent(ledger, ()).usd == 8 and spent(ledger, ()).trials[3].usd == 8
    assert spent(ledger, ()).rented_rate.usd == 8, "of an hour on two machines, not of the last minute"


def test_model_calls_that_led_to_no_proposal_are_counted(ledger: Ledger) -> None:
    note_bought(ledger, Usage())
    assert not spent(ledger, ()).anything
    note_bought(ledger, Usage(2, 100, 10, 0.25))
    history = (paid(model=0.5, calls=1),)
    assert spent(ledger, history).models == Usage(3, 100, 10, 0.75)


def test_a_rerun_of_a_trial_costs_by_itself(ledger: Ledger) -> None:
    again = {"time": 30.0, "event": "rerun", "trial": 1}
    happened(ledger, price(3600.0), life(0.0), slot(10.0, 1), free(20.0, 1), again, slot(40.0, 1), free(44.0, 1))
    assert SpendingReader(ledger).slots_usd(1, now=50.0) == 4.0 and usd(spent(ledger, (), now=50.0)) == 14.0


@pytest.mark.parametrize("torn", ['{"time": 1', "[1, 2]\n", "\n"])
def test_a_line_that_is_no_event_is_passed_over(ledger: Ledger, torn: str) -> None:
    reader = SpendingReader(ledger)
    happened(ledger, price(3600.0), slot(10.0, 1))
    with (ledger.path / "events.jsonl").open("a") as file:
        file.write(torn)
    assert usd(reader.read((), now=20.0)) == 10.0
    with (ledger.path / "events.jsonl").open("a") as file:
        file.write("" if torn.endswith("\n") else "\n")
    happened(ledger, free(15.0, 1))
    assert usd(reader.read((), now=20.0)) == 5.0, "read on from where it was"

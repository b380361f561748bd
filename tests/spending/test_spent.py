"""What trials and campaigns cost."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tasks.remote import jobs
from tasks.spending.spent import MachineCost, note_bought, slots_usd, spent
from tasks.store.ledger import Ledger
from tasks.trial import Trial, Usage
from tests.support.histories import tried
from tests.support.ledgers import created


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return created(tmp_path)


def happened(ledger: Ledger, *events: dict[str, Any]) -> None:
    with (ledger.path / "events.jsonl").open("a") as file:
        file.writelines(json.dumps(event) + "\n" for event in events)


def life(time: float, pid: int = 1) -> dict[str, Any]:
    return {"time": time, "event": "life", "pid": pid}


def slot(time: float, number: int, name: str = "cpu-0", **more: Any) -> dict[str, Any]:
    """A slot at a dollar a second."""
    return {"time": time, "event": "slot", "number": number, "slot": name, "usd_per_hour": 3600.0, **more}


def free(time: float, number: int, name: str = "cpu-0", **more: Any) -> dict[str, Any]:
    return {"time": time, "event": "slot free", "number": number, "slot": name, **more}


def usd(ledger: Ledger, now: float | None = None) -> float:
    return round(spent(ledger, (), now).machines.usd, 6)


def paid(model: float | None = 0.0, rented: float | None = 0.0, slots: float = 0.0, calls: int = 0) -> Trial:
    trial = tried((), 50.0)
    proposal = replace(trial.proposal, usage=Usage(calls, usd=model))
    return replace(trial, proposal=proposal, runs=(replace(trial.runs[0], usd=rented),), slots_usd=slots)


def test_nothing_bought_and_an_unknown_price_are_no_cost_of_zero() -> None:
    assert paid(model=0.25, rented=1.5, slots=0.5, calls=2).cost == 2.25
    assert paid().cost is None
    assert paid(rented=None, slots=0.5).cost is None and paid(model=None, calls=1).cost is None


def test_slots_cost_their_stated_price_while_they_are_held(ledger: Ledger) -> None:
    happened(ledger, life(0.0), slot(10.0, 0, usd_per_hour=0.0), free(20.0, 0))
    assert not spent(ledger, ()).anything, "no price was stated"
    happened(ledger, slot(30.0, 1, "gpu-0-1"), free(40.0, 1, "gpu-0-1"), slot(50.0, 2))
    found = spent(ledger, (), now=52.0)
    assert found.machines.usd == pytest.approx(12.0) and found.machines.gpu_hours == pytest.approx(2 * 10 / 3600)
    assert found.gpus == 2


def test_a_slot_that_a_kill_left_open_costs_until_the_end_of_its_process(ledger: Ledger) -> None:
    seen, idea = {"time": 125.0, "event": "settled", "pid": 1}, {"time": 800.0, "event": "idea", "pid": 3}
    happened(ledger, life(100.0, 1), slot(110.0, 1), seen, idea, life(900.0, 2))
    assert usd(ledger, now=1000.0) == 15.0
    happened(ledger, slot(910.0, 1), free(912.0, 1))
    assert usd(ledger, now=1000.0) == 17.0


def test_a_slot_elsewhere_outlives_the_campaigns_process(ledger: Ledger) -> None:
    happened(ledger, life(100.0), slot(110.0, 1, on="gpu-box"), life(900.0), free(905.0, 1, on="gpu-box"))
    assert usd(ledger, now=1000.0) == 795.0


def test_a_rented_machine_costs_what_the_file_beside_its_run_says(ledger: Ledger) -> None:
    def note(folder: str, key: str, ended: float, dollars: float, removed: bool = False) -> None:
        (ledger.path / folder).mkdir(parents=True, exist_ok=True)
        fact = {"key": key, "run": "r", "started": 0, "ended": ended, "usd": dollars, "gpus": 2, "removed": removed}
        with (ledger.path / folder / jobs.COSTS).open("a") as costs:
            costs.write(json.dumps(fact) + "\n")

    for folder in ("trials/0003", "trials/0003/untrained", "trials/0004-run-2", "certificates/1-0003-baseline-1"):
        note(folder, "a", 1800, 1)
        note(folder, "a", 3600, 2)
    found = spent(ledger, ())
    assert found.machines == MachineCost(8.0, 8.0) and found.usd == 8.0
    assert found.rented_hour == MachineCost(2.0, 2)
    for ended in (7200, 9000):  # it was removed twice, after its run had been cut off
        note("trials/0003", "a", ended, ended / 1800, removed=True)
    assert usd(ledger) == 10.0


def test_model_calls_that_led_to_no_proposal_are_counted(ledger: Ledger) -> None:
    note_bought(ledger, Usage())
    assert not spent(ledger, ()).anything
    note_bought(ledger, Usage(2, 100, 10, 0.25))
    found = spent(ledger, (paid(model=0.5, calls=1),))
    assert found.models == Usage(3, 100, 10, 0.75)
    note_bought(ledger, Usage(1, 0, 0, None))
    assert spent(ledger, ()).usd is None


def test_a_rerun_of_a_trial_costs_by_itself(ledger: Ledger) -> None:
    again = {"time": 30.0, "event": "rerun", "trial": 1}
    happened(ledger, life(0.0), slot(10.0, 1), free(20.0, 1), again, slot(40.0, 1), free(44.0, 1))
    assert slots_usd(ledger, 1) == pytest.approx(4.0) and usd(ledger, now=50.0) == 14.0

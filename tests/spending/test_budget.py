"""Whether a campaign may start another trial under its own limits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from environments.plugins import Refused
from flows.budget import CampaignBudget, check_budget
from flows.spec.campaign_spec import CampaignSpec
from flows.status import document
from tasks.remote import jobs
from tasks.spending import MachineCost, note_bought, parts, spent
from tasks.store.ledger import Ledger
from tasks.trial import Trial, Usage
from tests.support.endpoints import remote_quadratic
from tests.support.histories import minimised, tried
from tests.support.ledgers import trusted
from tests.support.toy import quadratic

A_SECOND = 3600.0
"""USD per hour: a dollar a second. So a run of the environment may cost 7: 5 s of training and 2 s besides."""


def spec(
    tmp_path: Path, name: str = "n", rule: str = "greedy", price: float = A_SECOND, **advanced: Any
) -> CampaignSpec:
    folder = quadratic(tmp_path / "quad")
    advanced["usd_per_hour"] = price
    return CampaignSpec.of(environment=str(folder), name=name, rule=rule, tracking="off", advanced=advanced)


def budget(wanted: CampaignSpec, gpus: int = 0) -> CampaignBudget:
    ledger = wanted.open()
    money = CampaignBudget(wanted, ledger, ledger.environment)
    vars(money)["gpus"] = gpus
    return money


def ran(money: CampaignBudget, number: int, seconds: float, name: str = "cpu-0") -> None:
    """Have a trial hold a slot for so long."""
    price = money.spec.advanced.usd_per_hour
    happened(money.ledger, slot(1000.0, number, name, usd_per_hour=price), free(1000.0 + seconds, number, name))


def test_it_stops_before_the_trial_that_could_break_its_budget(tmp_path: Path, home: Path) -> None:
    money = budget(spec(tmp_path, max_usd=20.0))
    assert money.shortage(()) == ""
    ran(money, 0, 6.0)
    ran(money, 1, 6.0)
    known = minimised(3.0, 2.0)
    assert money.shortage(known) == "", "12 of 20 are spent, and one may take 6"
    assert money.shortage(known, 1), "another is under way"
    ran(money, 2, 6.0)
    shortage = money.shortage((*known, *minimised(3.0, 2.0, 2.0)[2:]))
    assert "max_usd = 20" in shortage and "18 USD used" in shortage


def test_the_certificate_is_reserved_from_the_start(tmp_path: Path, home: Path) -> None:
    with pytest.raises(Refused, match="max_usd = 44, "):
        check_budget(spec(tmp_path, "n", "certify", max_usd=44.0))
    check_budget(spec(tmp_path, "n", "greedy", max_usd=44.0))
    with pytest.raises(Refused, match=r"max_usd = 6\.9"):
        check_budget(spec(tmp_path, "n", "greedy", max_usd=6.9))


def test_an_ablation_asked_for_later_must_be_paid_for(tmp_path: Path, home: Path) -> None:
    wanted = spec(tmp_path, max_usd=20.0)
    wanted.store(wanted.open())
    check_budget(wanted)
    with pytest.raises(Refused, match="no budget for the ablation: max_usd = 20"):
        check_budget(spec(tmp_path, max_usd=20.0, ablation=True))


def test_gpu_hours_are_a_limit_of_their_own(tmp_path: Path, home: Path) -> None:
    money = budget(spec(tmp_path, max_gpu_hours=2 * 20.0 / 3600), gpus=2)
    assert money.shortage(()) == ""
    ran(money, 0, 15.0, "gpu-0-1")
    shortage = money.shortage(minimised(3.0))
    assert "max_gpu_hours" in shortage
    without = budget(spec(tmp_path, "cpu", max_gpu_hours=0.0))
    assert without.shortage(minimised(3.0)) == "", "it holds no GPU"


def test_a_rented_machine_counts_by_its_stated_price_before_the_first_run(tmp_path: Path, home: Path) -> None:
    folder = trusted(remote_quadratic(tmp_path / "far", "http://127.0.0.1:9", http="usd_per_second = 0.5"))
    wanted = CampaignSpec.of(
        environment=str(folder), name="far", rule="greedy", tracking="off", advanced={"max_usd": 1.0}
    )
    with pytest.raises(Refused, match=r"max_usd = 1\b"):
        check_budget(wanted)
    money = budget(wanted)
    assert money.shortage(())
    with pytest.raises(Refused, match="max_usd = 1"):
        money.check((), "a rerun", money.environment, 10.0)


def test_models_get_what_machines_leave(tmp_path: Path, home: Path) -> None:
    money = budget(spec(tmp_path, max_usd=20.0, max_tokens=1000))
    ran(money, 0, 6.0)
    note_bought(money.ledger, Usage(1, 300, 100, 1.0))
    left = money.left_for_models(minimised(3.0))
    assert left.usd == pytest.approx(20 - 6 - 1 - 6) and left.tokens == 600


def test_a_limit_that_cannot_be_checked_is_not_exceeded(tmp_path: Path, home: Path) -> None:
    money = budget(spec(tmp_path, max_usd=20.0))
    note_bought(money.ledger, Usage(1, 0, 0, None))
    assert money.left_for_models(minimised(3.0)).usd == 0.0
    shortage = money.shortage(minimised(3.0))
    assert "no known price" in shortage
    free = budget(spec(tmp_path, "free", price=0.0, max_usd=20.0))
    note_bought(free.ledger, Usage(1, 0, 0, None))
    assert free.shortage(minimised(3.0)) == "", "the fallback goes on"


def test_the_status_has_the_spending(tmp_path: Path, home: Path) -> None:
    wanted = spec(tmp_path, "n", "certify", max_usd=90.0, max_gpu_hours=2.0)
    money = budget(wanted)
    wanted.store(money.ledger)
    ran(money, 0, 6.0)
    found = document(money.ledger)
    costs = found["spent"]
    assert (costs["usd"], costs["machines_usd"], costs["models_usd"]) == (6.0, 6.0, None)
    assert parts(found) == ["6.00 of 90 USD", "0 of 2 GPU hours"]


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


def paid(model: float | None = 0.0, rented: float | None = 0.0, calls: int = 0) -> Trial:
    trial = tried((), 50.0)
    proposal = replace(trial.proposal, usage=Usage(calls, usd=model))
    return replace(trial, proposal=proposal, runs=(replace(trial.runs[0], usd=rented),))


def test_nothing_bought_and_an_unknown_price_are_no_cost_of_zero() -> None:
    assert paid(model=0.25, rented=1.5, calls=2).cost == 1.75
    assert paid().cost is None
    assert paid(rented=None).cost is None and paid(model=None, calls=1).cost is None


def test_slots_cost_their_stated_price_while_they_are_held(ledger: Ledger) -> None:
    happened(ledger, life(0.0), slot(10.0, 0, usd_per_hour=0.0), free(20.0, 0))
    assert not spent(ledger, ()).anything, "no price was stated"
    happened(ledger, slot(30.0, 1, "gpu-0-1"), free(40.0, 1, "gpu-0-1"), slot(50.0, 2))
    found = spent(ledger, (), now=52.0)
    assert found.machines.usd == pytest.approx(12.0) and found.machines.gpu_hours == pytest.approx(2 * 10 / 3600)


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

    own = ("trials/0003", "trials/0003/untrained", "trials/0004-run-2")
    for folder in (*own, "certificates/1-0003-baseline-1", "ablations/0003-1-1"):
        note(folder, "a", 1800, 1)
        note(folder, "a", 3600, 2)
    found = spent(ledger, ())
    assert found.machines == MachineCost(10.0, 10.0) and found.usd == 10.0
    for ended in (7200, 9000):  # it was removed twice, after its run had been cut off
        note("trials/0003", "a", ended, ended / 1800, removed=True)
    assert usd(ledger) == 12.0


def test_model_calls_that_led_to_no_proposal_are_counted(ledger: Ledger) -> None:
    note_bought(ledger, Usage())
    assert not spent(ledger, ()).anything
    note_bought(ledger, Usage(2, 100, 10, 0.25))
    found = spent(ledger, (paid(model=0.5, calls=1),))
    assert found.models == Usage(3, 100, 10, 0.75)
    note_bought(ledger, Usage(1, 0, 0, None))
    assert spent(ledger, ()).usd is None

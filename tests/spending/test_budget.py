"""Whether a campaign may start another trial under its own limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from environments.plugins import Refused
from flows.spec.campaign_spec import CampaignSpec
from flows.spending.budget import CampaignBudget, check_budget
from flows.spending.summary import parts
from flows.status import document
from tasks.spending.spent import note_bought
from tasks.trial import History, Usage
from tests.support.endpoints import remote_quadratic
from tests.support.histories import decided
from tests.support.toy import quadratic
from tests.support.trusting import trusted

A_SECOND = 3600.0
"""USD per hour: a dollar a second. So a run of the environment may cost 7: 5 s of training and 2 s besides."""


def spec(
    tmp_path: Path, name: str = "n", rule: str = "greedy", price: float = A_SECOND, **advanced: Any
) -> CampaignSpec:
    folder = quadratic(tmp_path / "quad")
    advanced["usd_per_hour"] = price
    return CampaignSpec.of(environment=str(folder), name=name, rule=rule, tracking="off", advanced=advanced)


def budget(wanted: CampaignSpec, gpus: int = 0) -> CampaignBudget:
    return CampaignBudget(wanted, wanted.open(), gpus)


def history(*scores: float) -> History:
    trials: History = ()
    for score in scores:
        trials += (decided(trials, score, {"x": 0.0}, seconds=5.0, wall=6.0, higher_is_better=False),)
    return trials


def ran(money: CampaignBudget, number: int, seconds: float, slot: str = "cpu-0") -> None:
    """Have a trial hold a slot for so long."""
    price = money.spec.advanced.usd_per_hour
    held, free = (
        {"event": "slot", "time": 1000.0, "usd_per_hour": price},
        {"event": "slot free", "time": 1000.0 + seconds},
    )
    with (money.ledger.path / "events.jsonl").open("a") as file:
        file.writelines(json.dumps({**event, "number": number, "slot": slot}) + "\n" for event in (held, free))


def test_it_stops_before_the_trial_that_could_break_its_budget(tmp_path: Path, home: Path) -> None:
    money = budget(spec(tmp_path, max_usd=20.0))
    assert money.shortage(()) == ""
    ran(money, 0, 6.0)
    ran(money, 1, 6.0)
    known = history(3.0, 2.0)
    assert money.shortage(known) == "", "12 of 20 are spent, and one may take 6"
    assert money.shortage(known, 1), "another is under way"
    ran(money, 2, 6.0)
    shortage = money.shortage((*known, *history(3.0, 2.0, 2.0)[2:]))
    assert "max_usd = 20" in shortage and "18 USD used" in shortage


def test_the_certificate_is_reserved_from_the_start(tmp_path: Path, home: Path) -> None:
    with pytest.raises(Refused, match=r"the certificate: max_usd = 44, "):
        check_budget(spec(tmp_path, "n", "certify", max_usd=44.0))
    check_budget(spec(tmp_path, "n", "greedy", max_usd=44.0))
    with pytest.raises(Refused, match=r"max_usd = 6\.9"):
        check_budget(spec(tmp_path, "n", "greedy", max_usd=6.9))


def test_gpu_hours_are_a_limit_of_their_own(tmp_path: Path, home: Path) -> None:
    money = budget(spec(tmp_path, max_gpu_hours=2 * 20.0 / 3600), gpus=2)
    assert money.shortage(()) == ""
    ran(money, 0, 15.0, "gpu-0-1")
    shortage = money.shortage(history(3.0))
    assert "max_gpu_hours" in shortage
    without = budget(spec(tmp_path, "cpu", max_gpu_hours=0.0))
    assert without.shortage(history(3.0)) == "", "it holds no GPU"


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
        money.check((), "a rerun", 10.0)


def test_models_get_what_machines_leave(tmp_path: Path, home: Path) -> None:
    money = budget(spec(tmp_path, max_usd=20.0, max_tokens=1000))
    ran(money, 0, 6.0)
    note_bought(money.ledger, Usage(1, 300, 100, 1.0))
    left = money.left_for_models(history(3.0))
    assert left.usd == pytest.approx(20 - 6 - 1 - 6) and left.tokens == 600


def test_a_limit_that_cannot_be_checked_is_not_exceeded(tmp_path: Path, home: Path) -> None:
    money = budget(spec(tmp_path, max_usd=20.0))
    note_bought(money.ledger, Usage(1, 0, 0, None))
    assert money.left_for_models(history(3.0)).usd == 0.0
    shortage = money.shortage(history(3.0))
    assert "no known price" in shortage
    free = budget(spec(tmp_path, "free", price=0.0, max_usd=20.0))
    note_bought(free.ledger, Usage(1, 0, 0, None))
    assert free.shortage(history(3.0)) == "", "the fallback goes on"


def test_the_status_has_the_spending(tmp_path: Path, home: Path) -> None:
    wanted = spec(tmp_path, "n", "certify", max_usd=90.0, max_gpu_hours=2.0)
    money = budget(wanted)
    wanted.store(money.ledger)
    ran(money, 0, 6.0)
    found = document(money.ledger)
    costs = found["spent"]
    assert (costs["usd"], costs["machines_usd"], costs["models_usd"]) == (6.0, 6.0, None)
    assert parts(found) == ["6.00 of 90 USD", "0 of 2 GPU hours"]

"""Whether a campaign may start another trial: its own limits, and the month's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from flows.engine.campaign_state import CampaignState
from flows.engine.redecide import hold_pending

import environments
from environments.plugins import Refused
from flows.engine import next_trial
from flows.spec.campaign_spec import CampaignSpec
from flows.spending.budget import CampaignBudget, check_budget
from flows.spending.outside import OutsideAccount
from flows.spending.summary import sentences
from flows.views.status import document
from tasks.llm.prompt_parts import told
from tasks.machine.slots import Slots
from tasks.proposing.brief import Brief
from tasks.spending.month import month
from tasks.spending.prices import FILE
from tasks.spending.spent import note_bought, note_rented
from tasks.store import attempts
from tasks.store.campaign_lock import CampaignLock
from tasks.task_key import TaskKey
from tasks.trial import History, Proposal, Run, Usage
from tests.support.endpoints import remote_quadratic
from tests.support.histories import decided
from tests.support.toy import quadratic
from tests.support.trusting import trusted

RUN = 7.0
"""USD that a run of the quadratic environment may cost at most: 5 s of training and 2 s besides, at a dollar a second."""


def stated(home: Path, cap: float | None = None, usd_per_hour: float = 3600.0) -> None:
    home.mkdir(exist_ok=True)
    month = "" if cap is None else f"usd_per_month = {cap}\n"
    (home / FILE).write_text(f"{month}[usd_per_hour]\nhere = {usd_per_hour}\n")


def spec(tmp_path: Path, name: str = "n", rule: str = "greedy", **advanced: Any) -> CampaignSpec:
    folder = quadratic(tmp_path / "quad")
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
    events = [{"event": "slot", "time": 1000.0}, {"event": "slot free", "time": 1000.0 + seconds}]
    with (money.ledger.path / "events.jsonl").open("a") as file:
        file.writelines(json.dumps({**event, "number": number, "slot": slot}) + "\n" for event in events)


def test_a_campaign_that_costs_nothing_knows_no_limit_of_money(tmp_path: Path, home: Path) -> None:
    stated(home, cap=0, usd_per_hour=0)
    wanted = spec(tmp_path, max_usd=0)
    assert check_budget(wanted, home).usd == 0.0
    with budget(wanted) as money:
        assert money.shortage(history(3.0)) is None


def test_it_stops_before_the_trial_that_could_break_its_budget(tmp_path: Path, home: Path) -> None:
    stated(home)
    with budget(spec(tmp_path, max_usd=20.0)) as money:
        assert money.shortage(()) is None
        ran(money, 0, 6.0)
        ran(money, 1, 6.0)
        known = history(3.0, 2.0)
        assert money.shortage(known) is None, "12 of 20 are spent, and one may take 6"
        assert money.shortage(known, [2]) is not None, "another is under way"
        ran(money, 2, 6.0)
        shortage = money.shortage((*known, *history(3.0, 2.0, 2.0)[2:]))
        assert shortage and shortage.certifies
        assert "max_usd = 20" in shortage.reason and "18 USD used" in shortage.reason and "6" in shortage.reason


def test_what_a_trial_under_way_has_cost_already_is_not_counted_twice(tmp_path: Path, home: Path) -> None:
    stated(home)
    with budget(spec(tmp_path, max_usd=16.5)) as money:
        ran(money, 0, 4.0)
        ran(money, 1, 5.0)
        assert money.shortage(history(3.0), [1]) is None, "4 and at most 6 for each of the two"


def test_the_certificate_is_reserved_from_the_start(tmp_path: Path, home: Path) -> None:
    stated(home)
    with pytest.raises(Refused, match=r"max_usd = 44, .* for the certificate.*greedy"):
        check_budget(spec(tmp_path, "n", "certify", max_usd=44.0), home)
    check_budget(spec(tmp_path, "n", "greedy", max_usd=44.0), home)
    with pytest.raises(Refused, match="may take 7"):
        check_budget(spec(tmp_path, "n", "greedy", max_usd=6.9), home)


def test_gpu_hours_are_a_limit_of_their_own(tmp_path: Path, home: Path) -> None:
    hours = 2 * 20.0 / 3600
    with budget(spec(tmp_path, max_gpu_hours=hours), gpus=2) as money:
        assert money.shortage(()) is None
        ran(money, 0, 15.0, "gpu-0-1")
        shortage = money.shortage(history(3.0))
        assert shortage and "max_gpu_hours" in shortage.reason
    with budget(spec(tmp_path, "cpu", max_gpu_hours=0.0)) as money:
        assert money.shortage(history(3.0)) is None, "it holds no GPU"


def test_rented_machines_count_by_what_they_cost_before(tmp_path: Path, home: Path) -> None:
    with budget(spec(tmp_path, max_usd=10.0)) as money:
        assert money.shortage(()) is None
        run = Run("trials/0000", 1, 5.0, "finished", wall_seconds=6.0, usd=6.0)
        note_rented(money.ledger, TaskKey("id", "digest", 0), money.ledger.place(0), run)
        shortage = money.shortage(history(3.0))
        assert shortage and "6 USD used, and one may take 6" in shortage.reason
        run = Run("trials/0001", 1, 5.0, "finished", wall_seconds=6.0, usd=None)
        note_rented(money.ledger, TaskKey("id", "digest", 1), money.ledger.place(1), run)
        shortage = money.shortage(history(3.0))
        assert shortage and "no known price" in shortage.reason and not shortage.certifies


def test_a_rented_machine_counts_by_its_stated_price_before_the_first_run(tmp_path: Path, home: Path) -> None:
    folder = trusted(remote_quadratic(tmp_path / "far", "http://127.0.0.1:9", http="usd_per_second = 0.5"))
    wanted = CampaignSpec.of(
        environment=str(folder), name="far", rule="greedy", tracking="off", advanced={"max_usd": 1.0}
    )
    with pytest.raises(Refused, match=r"max_usd = 1\b.* may take"):
        check_budget(wanted, home)
    with budget(wanted) as money:
        assert money.shortage(()) is not None
        with pytest.raises(Refused, match="max_usd = 1"):
            money.hold((), "a rerun", 10.0)


def test_models_get_what_machines_leave(tmp_path: Path, home: Path) -> None:
    stated(home)
    with budget(spec(tmp_path, max_usd=20.0, max_tokens=1000)) as money:
        ran(money, 0, 6.0)
        note_bought(money.ledger, Usage(1, 300, 100, 1.0))
        left = money.left_for_models(history(3.0))
        assert left.usd == pytest.approx(20 - 6 - 1 - 6) and left.tokens == 600
        note_bought(money.ledger, Usage(1, 0, 0, None))
        assert money.left_for_models(history(3.0)).usd == 0.0, "a limit that cannot be checked is not exceeded"


def test_what_a_model_is_told_of_the_money_stays_after_a_kill_and_its_limit_does_not(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stated(home)
    wanted, briefs = spec(tmp_path, max_usd=30.0), list[Brief]()

    def heard(*asked: Any) -> Proposal:
        briefs.append(asked[-1].unquote())
        return Proposal({"x": 0.0})

    monkeypatch.setattr(next_trial, "kept", lambda *_: heard)
    for _ in range(2):
        with budget(wanted) as money:
            state = CampaignState(wanted, money.ledger, None, Slots(home), history(3.0), lambda _: None, money)  # type: ignore[arg-type]
            next_trial.proposed(state, {}, (), 1, spent=0.0)
            ran(money, 1, 2.0)  # the second life pays for what the first one has held

    first, second = briefs
    assert first.left.usd is not None and second.left.usd == pytest.approx(first.left.usd - 2)
    assert told(first).left == told(second).left != ""


def test_two_campaigns_share_the_month(tmp_path: Path, home: Path) -> None:
    stated(home, cap=20)
    one, other = (budget(spec(tmp_path, name)) for name in ("one", "other"))
    with CampaignLock(one.ledger), CampaignLock(other.ledger), one, other:
        assert one.shortage(()) is None and other.shortage(()) is None
        ran(one, 0, 6.5)
        shortage = one.shortage(history(3.0))
        assert shortage is None, "6.5 are spent, 7 promised to the other, and 6 are left"
        ran(one, 1, 6.0)
        shortage = one.shortage(history(3.0, 2.0))
        assert shortage and "usd_per_month" in shortage.reason and FILE in shortage.reason
        assert shortage.certifies, "it has no certificate to pay for"
    assert month(home).usd == 12.5 and month(home).promised == 0.0
    stated(home, cap=20, usd_per_hour=2 * 3600)
    with pytest.raises(Refused, match=r"7\.50 USD are left"):
        check_budget(spec(tmp_path, "third"), home)


def test_a_killed_campaign_does_not_take_back_what_others_promised_since(tmp_path: Path, home: Path) -> None:
    stated(home, cap=10)
    killed, other = (budget(spec(tmp_path, name)) for name in ("killed", "other"))
    with CampaignLock(killed.ledger):
        killed.__enter__()
        assert killed.shortage(()) is None  # and is killed: it takes nothing back
    with CampaignLock(other.ledger), other:
        assert other.shortage(()) is None
        with CampaignLock(killed.ledger), killed:
            shortage = killed.shortage(())
            assert shortage and "3.00 USD are left" in shortage.reason
            assert month(home).promised == RUN


def test_what_a_killed_campaign_had_spent_is_promised_to_no_other(tmp_path: Path, home: Path) -> None:
    stated(home, cap=10)
    killed, other = (budget(spec(tmp_path, name)) for name in ("killed", "other"))
    with CampaignLock(killed.ledger):
        killed.__enter__()
        assert killed.shortage(()) is None
        ran(killed, 0, 5.0)  # and is killed before it writes that
    with CampaignLock(other.ledger), other:
        shortage = other.shortage(())
        assert shortage and "5.00 USD are left" in shortage.reason
    with CampaignLock(killed.ledger), killed:
        assert month(home).usd == 5.0, "it counts once"


def test_a_person_who_asks_for_more_than_the_month_has_is_refused(tmp_path: Path, home: Path) -> None:
    stated(home, cap=20)
    money = budget(spec(tmp_path))
    with CampaignLock(money.ledger), money, pytest.raises(Refused, match=r"the certificate may cost 21\.00 USD"):
        money.hold(history(3.0), "the certificate", seconds=21.0)


def test_a_model_has_of_the_month_what_its_newest_answers_leave(tmp_path: Path, home: Path) -> None:
    stated(home, cap=3, usd_per_hour=0)
    wanted = spec(tmp_path).model_copy(update={"proposer": "llm"})
    money = budget(wanted)
    with CampaignLock(money.ledger), money:
        note_bought(money.ledger, Usage(1, 0, 0, 2.6))
        assert money.shortage(()) is None
        assert money.left_for_models(()).usd == pytest.approx(0.4 / 4)


def test_a_model_is_refused_once_the_month_is_spent(tmp_path: Path, home: Path) -> None:
    stated(home, cap=0, usd_per_hour=0)
    wanted = spec(tmp_path).model_copy(update={"proposer": "llm"})
    with pytest.raises(Refused, match="asks a model"):
        check_budget(wanted, home)


def test_the_status_has_the_spending_the_next_trial_and_the_month(tmp_path: Path, home: Path) -> None:
    stated(home, cap=100)
    wanted = spec(tmp_path, "n", "certify", max_usd=90.0, max_gpu_hours=2.0)
    with budget(wanted) as money:
        ran(money, 0, 6.0)
    found = document(money.ledger)
    costs = found["spent"]
    assert (costs["usd"], costs["machines_usd"], costs["models_usd"]) == (6.0, 6.0, None)
    assert costs["next"]["trial"]["usd"] > RUN and costs["next"]["certificate"]["usd"] > RUN
    assert (costs["month"]["usd"], costs["month"]["cap"]) == (6.0, 100.0)
    words = " ".join(sentences(found))
    assert "6.00 of 90 USD" in words and "GPU hours: 0 of 2" in words and "6.00 of 100 USD in" in words
    assert "100" not in " ".join(sentences(found, of_month=False))


def test_a_budget_that_is_damaged_meanwhile_stops_the_campaign_and_breaks_no_view(tmp_path: Path, home: Path) -> None:
    stated(home)
    with budget(spec(tmp_path, "n", "certify", max_usd=90.0)) as money:
        assert money.shortage(()) is None
        (home / FILE).write_text("usd_per_month = \n")
        shortage = money.shortage(history(3.0))
        assert shortage and FILE in shortage.reason and not shortage.certifies
        assert FILE in money.for_the_certificate(history(3.0))
        assert FILE in " ".join(sentences(document(money.ledger)))
        ran(money, 0, 6.0)
    stated(home)
    assert month(home).usd == 6.0, "what was spent was written all the same"


def test_what_a_person_asks_for_keeps_the_campaigns_own_limits_too(tmp_path: Path, home: Path) -> None:
    stated(home)
    money = budget(spec(tmp_path, max_usd=20.0))
    with CampaignLock(money.ledger), money:
        ran(money, 0, 6.0)
        money.hold(history(3.0), "the certificate", seconds=14.0)
        with pytest.raises(Refused, match=r"the certificate may cost 15\.00 USD, and 6\.00 of max_usd = 20 are used"):
            money.hold(history(3.0), "the certificate", seconds=15.0)
    hours = budget(spec(tmp_path, "gpus", max_gpu_hours=1.0), gpus=2)
    with CampaignLock(hours.ledger), hours, pytest.raises(Refused, match="max_gpu_hours = 1"):
        hours.hold(history(3.0), "the certificate", seconds=1801.0)


def test_the_rerun_that_a_kill_cut_off_is_held_before_it_runs_again(tmp_path: Path, home: Path) -> None:
    stated(home, cap=6.5)
    money = budget(spec(tmp_path))
    known = history(3.0)
    with CampaignLock(money.ledger), money:
        hold_pending(money.spec, money.ledger, known, money)
        assert month(home).promised == 0.0, "nothing is pending"
        attempts.begin(money.ledger.path, 0, 2)
        with pytest.raises(Refused, match=r"running trial 0 again.*7\.00 USD"):
            hold_pending(money.spec, money.ledger, known, money)
        stated(home, cap=20)
        hold_pending(money.spec, money.ledger, known, money)
        assert month(home).promised == RUN


def test_runs_outside_of_campaigns_are_in_the_month_and_need_enough_left(tmp_path: Path, home: Path) -> None:
    stated(home, cap=20)
    environment = environments.load(quadratic(tmp_path / "quad"))
    account = OutsideAccount(home, "duel", "duel-1")
    for expected in (1.5, 3.0):
        account.check(environment)
        account.rented(Run("trial", 1, 5.0, "finished", usd=1.5))
        assert month(home).usd == expected
    with account.slot():
        pass
    assert 3.0 <= month(home).usd < 20.0
    stated(home, cap=9.5)
    with pytest.raises(Refused, match=r"a run may cost 7\.00 USD"):
        account.check(environment)
    account.rented(Run("trial", 1, 5.0, "finished", usd=None))
    assert month(home).unknown

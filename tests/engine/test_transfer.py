"""Certificates in other environments and with another training budget, as campaigns take them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomlkit

import environments
from environments import LONGEST
from environments.plugins import Refused
from flows.certify import certify
from flows.engine import certifying
from flows.engine.certifying import nothing_to_certify, path_of, store
from flows.engine.transfer import cost, longest, multiple, questions
from flows.spec.campaign_spec import CampaignSpec
from flows.status import document
from tasks.stats import holdout_uses
from tasks.stats.ablation import ablation_runs
from tasks.stats.certificate import Certificate
from tasks.stats.transfer import Conditions
from tasks.store.ledger import Ledger, frozen_elsewhere
from tasks.system.files import write_atomic
from tests.support.histories import certified
from tests.support.nights import question
from tests.support.noisy import BETTER, DRAW, TOML, campaign, noisy, settled
from tests.support.prefect_api import prefect_at
from tests.support.toy import nightshift

OTHER = TOML.replace("default = 0.0", "default = 7.0")


def decided(folder: Path, edit: str | None = None) -> Ledger:
    """A campaign whose champion has x = 40, and the edit."""
    ledger = campaign(noisy(folder / "noisy"))
    settled(ledger, {})
    settled(ledger, {"x": 40.0}, edit)
    return ledger


def certificate(server: str, ledger: Ledger, **asked: Any) -> Certificate:
    """What `nightshift certify` makes, with four runs of each arm."""
    with prefect_at(server):
        state = certify(ledger.campaign.name, runs=4, **asked, return_state=True)
    assert state.is_completed(), state.message
    return ledger.certificates()[-1]


def configs(ledger: Ledger, name: str) -> list[dict[str, Any]]:
    found = sorted((ledger.path / "certificates").glob(f"{name}-0001-*/workspace/config.json"))
    return [json.loads(path.read_text()) for path in found]


def test_a_budget_is_a_multiple_of_the_environments() -> None:
    assert [multiple(text) for text in ("", "4x", "0.5x")] == [1, 4, 0.5]
    for wrong in ("600", "x", "-2x", "0x", "4 x", "1e3x", "nanx", "infx", "99999x"):
        with pytest.raises(Refused, match="multiple of the environment's budget"):
            multiple(wrong)
    with pytest.raises(Refused, match="leave --budget out"):
        multiple("1.0x")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_longer_budget_is_a_question_of_its_own_and_runs_so_long(tmp_path: Path, server: str) -> None:
    ledger = decided(tmp_path)
    made = certificate(server, ledger, budget="4x")
    path_of(ledger, made).unlink()  # as if it was killed before it wrote that down
    assert certificate(server, ledger, budget="4x") == made, "nothing ran twice"
    assert made.elsewhere and (made.budget, made.look, made.environment) == (4, 1, "noisy")
    assert path_of(ledger, made).name == "1-at-4x-on-noisy.json"
    longer = [(one["budget_seconds"], one["budget_steps"]) for one in configs(ledger, "1-at-4x-on-noisy")]
    assert longer == [(20, 80)] * 8
    assert made.reused == () and not made.not_reused, "runs of another budget tell nothing of this one"
    own, (other,) = question(ledger), questions(ledger, (), "2x")
    assert nothing_to_certify(own) is None and own.look == 1, "its own is still to be taken"
    assert replace(other, budget=4.0).look == 2 and other.look == 1
    found = document(ledger)
    assert found["certificate"] is None and found["shipped"] is None
    (transferred,) = found["transfers"]
    assert (transferred["budget"], transferred["where"]) == (4, "noisy at 4x the budget")


@pytest.mark.timeout(200)
def test_both_arms_run_on_top_of_the_other_environments_own_baseline(tmp_path: Path, server: str) -> None:
    ledger = decided(tmp_path, BETTER)
    made = certificate(server, ledger, on=[str(noisy(tmp_path / "other", toml=OTHER))])
    assert made.conditions == Conditions(changed={"x": 40.0})
    assert sorted(one["params"]["x"] for one in configs(ledger, "1-on-other")) == [7.0] * 4 + [40.0] * 4
    means = made.mean("champion"), made.mean("baseline")
    assert means == (pytest.approx(90, abs=5), pytest.approx(7, abs=5)), "the edit was made there too"


def test_an_edit_needs_the_same_program_there_and_parameters_do_not(tmp_path: Path) -> None:
    other = noisy(tmp_path / "other", DRAW.replace("bonus = 0.0", "bonus = 1.0"), OTHER)
    ledger = decided(tmp_path, BETTER)
    with pytest.raises(Refused, match="the baseline program of other is another"):
        questions(ledger, [str(other)])
    assert not [*(ledger.path / "certificates").glob("*on-*")], "nothing was frozen"
    numbers = campaign(tmp_path / "noisy", "numbers")
    settled(numbers, {})
    settled(numbers, {"x": 40.0})
    (asked,) = questions(numbers, [str(other)], "2x")
    frozen = frozen_elsewhere(numbers.path, "other")
    assert "bonus = 1.0" in (frozen / "program/draw.py").read_text()
    assert asked.environment.budget_steps == 40 and asked.conditions.changed == {"x": 40.0}
    assert cost(asked, 5).startswith("other at 2x the budget: at most 5 v 5 runs of at most 10 s")


def test_what_a_certificate_costs_is_told_as_it_was_declared_if_it_goes_on(tmp_path: Path) -> None:
    ledger = decided(tmp_path)
    (asked,) = questions(ledger, (), "4x")
    assert " at most 2 v 2 runs" in cost(asked, 2)
    declared = certifying.DeclaredAnalysis(1, certifying.planned(asked, 5))
    text = certifying.DECLARATION.dump_json(declared).decode()
    write_atomic(ledger.path / "certificates/1-at-4x-on-noisy.begun", text)
    assert " at most 5 v 5 runs" in cost(asked, 2)
    settled(ledger, {"x": 50.0})
    assert " at most 2 v 2 runs" in cost(questions(ledger, (), "4x")[0], 2), "another champion begins anew"


def test_the_same_command_goes_on_with_the_environments_that_are_left(tmp_path: Path) -> None:
    first, second = (str(noisy(tmp_path / name, toml=OTHER)) for name in ("first", "second"))
    ledger = decided(tmp_path)
    made = replace(certified(1, (39.0, 41.0), (7.0, 8.0), on="first"), conditions=Conditions(changed={"x": 40.0}))
    store(ledger, made)
    left = questions(ledger, [first, second])
    assert [one.environment.name for one in left] == ["second"] and nothing_to_certify(left[0]) is None
    assert nothing_to_certify(questions(ledger, [first])[0]) is None, "more runs of it may follow"
    settled(ledger, {"x": 50.0})
    another = questions(ledger, [first, second])
    assert [one.environment.name for one in another] == ["first", "second"], "it is refused, not passed over"


def test_the_time_of_a_certificate_holds_that_of_the_ablation_after_it(tmp_path: Path) -> None:
    (alone,) = questions(decided(tmp_path))
    advanced = alone.spec.advanced.model_copy(update={"ablation": True})
    both = replace(alone, spec=alone.spec.model_copy(update={"advanced": advanced}))
    runs, more = certifying.planned(alone, 2).in_turn(1), sum(ablation_runs(changes=1))
    assert longest(both, 2, 1) == pytest.approx(longest(alone, 2, 1) * (runs + more) / runs)
    assert longest(replace(both, budget=4.0), 2, 1) == longest(replace(alone, budget=4.0), 2, 1), "none follows there"


def test_a_budget_beyond_what_an_environment_may_ask_for_is_refused(tmp_path: Path) -> None:
    long = noisy(tmp_path / "long", toml=OTHER.replace("budget_seconds = 5", "budget_seconds = 600000"))
    with pytest.raises(Refused, match=f"long would train for 500.0 h, and at most {LONGEST / 3600:.1f} h") as refused:
        questions(decided(tmp_path), [str(long)], "3x")
    assert "ask for at most 2.016x" in str(refused.value)


def test_runs_with_other_parameters_are_not_pooled_and_each_budget_wears_questions_out(tmp_path: Path) -> None:
    ledger, other = decided(tmp_path), noisy(tmp_path / "other", toml=OTHER)
    (asked,) = questions(ledger, [str(other)])
    before = replace(certified(1, (1.0, 2.0, 3.0), (1.5, 2.5, 0.5)), environment="other", elsewhere=True)
    store(ledger, before)
    assert asked.look == 2 and asked.earlier is None
    uses = [holdout_uses.charge(tmp_path / "pool", f"id{name}", 1) for name in ("", "-4x", "-4x")]
    assert [earlier for earlier, _ in uses] == [0, 1, 1]


def short(folder: Path, seconds: int = 1) -> Path:
    """CartPole with little of everything, as an environment of another name."""
    shutil.copytree(environments.find("cartpole"), folder)
    file = folder / "environment.toml"
    toml = tomlkit.parse(file.read_text())
    toml["budget_seconds"], toml["budget_steps"] = seconds, 2000
    toml["control"]["episodes"] = 3  # type: ignore[index]
    file.write_text(tomlkit.dumps(toml))
    return folder


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_champion_is_run_in_another_environment_which_says_what_carries_over_and_ships_nothing(
    tmp_path: Path, server: str
) -> None:
    ledger = CampaignSpec.of(environment=str(short(tmp_path / "here")), name="night", tracking="off").open()
    for params in ({}, {"learning_rate": 3e-3}):
        settled(ledger, params)
    there = short(tmp_path / "there")
    done = nightshift("certify", "night", "--on", str(there), "--runs", "4", "--json", server=server)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["certificate"] is None and found["shipped"] is None
    (transferred,) = found["transfers"]
    assert (transferred["environment"], transferred["trial"], transferred["runs"]) == ("there", 1, 4)
    assert all(value is not None for value in transferred["champion"]["values"] + transferred["baseline"]["values"])
    (one,) = ledger.certificates()
    assert one.elsewhere and path_of(ledger, one) == ledger.path / "certificates/1-on-there.json"
    assert nothing_to_certify(question(ledger)) is None, "its own is still to be taken"
    shutil.rmtree(there)
    short(there, seconds=2)
    changed = nightshift("certify", "night", "--on", str(there), server=server)
    assert changed.returncode == 2 and "there has changed since the first certificate" in changed.stderr

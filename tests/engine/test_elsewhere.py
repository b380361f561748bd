"""Certificates in other environments and with another training budget, as campaigns take them."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flows.engine.elsewhere import cost, longest, multiple, runners
from flows.engine.run_certificate import next_look, nothing_to_certify, path_of, store
from flows.engine.runner import Runner
from tasks.store.launch_request import LaunchRequest
from tests.support.runners import bench, prefect_at

from environments import LONGEST, Environment
from environments.plugins import Refused
from flows.engine import elsewhere, run_certificate
from flows.server.announcements import due
from flows.views.status import document
from tasks.certifying import holdout_uses
from tasks.certifying.ablation import ablation_runs
from tasks.certifying.group_design import ALPHA
from tasks.certifying.transfer import Conditions
from tasks.store.ledger import Ledger, freeze, frozen_elsewhere
from tasks.system.files import write_atomic
from tests.support.histories import certified
from tests.support.noisy import BETTER, DRAW, TOML, campaign, noisy, settled

OTHER = TOML.replace("default = 0.0", "default = 7.0")


def decided(folder: Path, edit: str | None = None) -> Ledger:
    """A campaign whose champion has x = 40, and the edit."""
    ledger = campaign(noisy(folder / "noisy"))
    settled(ledger, {})
    settled(ledger, {"x": 40.0}, edit)
    return ledger


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
@pytest.mark.timeout(200)
def test_a_longer_budget_is_a_question_of_its_own_and_runs_so_long(tmp_path: Path, server: str) -> None:
    ledger = decided(tmp_path)
    (runner,) = runners(ledger, (), "4x")
    assert runner.is_apart and (runner.environment.budget_seconds, runner.environment.budget_steps) == (20, 80)
    with prefect_at(server):
        made = run_certificate.certify(runner, 2)
        assert made is not None
        path_of(ledger, made).unlink()  # as if it was killed before it wrote that down
        again = run_certificate.certify(runners(ledger, (), "4x")[0], 2)
    assert again == made, "nothing ran twice"
    assert made.elsewhere and (made.budget, made.alpha, made.look, made.environment) == (4, ALPHA, 1, "noisy")
    assert path_of(ledger, made).name == "1-at-4x-on-noisy.json"
    assert [(one["budget_seconds"], one["budget_steps"]) for one in configs(ledger, "1-at-4x-on-noisy")] == [
        (20, 80)
    ] * 4
    assert made.reused == () and not made.not_reused, "runs of another budget tell nothing of this one"

    assert nothing_to_certify(bench(ledger)) is None and next_look(bench(ledger)) == 1, "its own is still to be taken"
    assert next_look(runner) == 2 and nothing_to_certify(runner) is not None
    assert next_look(runners(ledger, (), "2x")[0]) == 1
    found = document(ledger)
    assert found["certificate"] is None and found["shipped"] is None
    (transfer,) = found["transfers"]
    assert (transfer["budget"], transfer["where"]) == (4, "noisy at 4x the budget")
    assert [row["name"] for row in found["elsewhere"]["rows"]] == ["noisy at 4x the budget"]
    told = {one.key: one.subject for one in due(ledger, ledger.history(), ledger.certificates())}
    assert "noisy-4x-1" in told or not made.passed


@pytest.mark.timeout(200)
def test_both_arms_run_on_top_of_the_other_environments_own_baseline(tmp_path: Path, server: str) -> None:
    ledger = decided(tmp_path, BETTER)
    noisy(tmp_path / "other", toml=OTHER)
    (runner,) = runners(ledger, [str(tmp_path / "other")])
    with prefect_at(server):
        made = run_certificate.certify(runner, 2)
    assert made is not None and made.conditions == Conditions(changed={"x": 40.0})
    assert sorted(one["params"]["x"] for one in configs(ledger, "1-on-other")) == [7.0, 7.0, 40.0, 40.0]
    means = made.mean("champion"), made.mean("baseline")
    assert means == (pytest.approx(90, abs=5), pytest.approx(7, abs=5)), "the edit was made there too"


def test_an_edit_needs_the_same_program_there_and_parameters_do_not(tmp_path: Path) -> None:
    noisy(tmp_path / "other", DRAW.replace("bonus = 0.0", "bonus = 1.0"), OTHER)
    ledger = decided(tmp_path, BETTER)
    with pytest.raises(Refused, match="the baseline program of other is another"):
        runners(ledger, [str(tmp_path / "other")])
    fixed = noisy(tmp_path / "fixed", toml=OTHER.replace('editable = ["draw.py"]', 'editable = ["notes.py"]'))
    with pytest.raises(Refused, match="the champion's edit cannot be made there"):
        runners(ledger, [str(fixed)])
    assert not [*(ledger.path / "certificates").glob("*on-*")], "nothing was frozen"


def test_two_first_certificates_at_a_time_agree_and_what_a_killed_one_has_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = decided(tmp_path)
    killed = ledger.path / f"certificates/.on-harder.{2**22 + 1}"
    killed.mkdir(parents=True)
    other = noisy(tmp_path / "harder", toml=OTHER)

    def freeze_twice(environment: Environment, path: Path) -> None:
        for folder in (path, frozen_elsewhere(ledger.path, "harder")):
            freeze(environment, folder)

    monkeypatch.setattr(elsewhere, "freeze", freeze_twice)  # as another command does, in between
    (runner,) = runners(ledger, on=[str(other)])
    assert runner.elsewhere is not None and runner.elsewhere.name == "harder"
    assert [path.name for path in (ledger.path / "certificates").iterdir()] == ["on-harder"]


def test_what_a_certificate_costs_is_told_as_it_was_declared_if_it_goes_on(tmp_path: Path) -> None:
    ledger = decided(tmp_path)
    (runner,) = runners(ledger, (), "4x")
    assert " at most 2 v 2 runs" in cost(runner, 2)
    declared = run_certificate.DeclaredAnalysis(1, 5, run_certificate.planned(runner, ALPHA, 5))
    write_atomic(ledger.path / "certificates/1-at-4x-on-noisy.begun", run_certificate.LOOK.dump_json(declared).decode())
    assert " at most 5 v 5 runs" in cost(runner, 2)
    settled(ledger, {"x": 50.0})
    assert " at most 2 v 2 runs" in cost(runners(ledger, (), "4x")[0], 2), "another champion begins anew"


def test_the_same_command_goes_on_with_the_environments_that_are_left(tmp_path: Path) -> None:
    first, second = (str(noisy(tmp_path / name, toml=OTHER)) for name in ("first", "second"))
    ledger = decided(tmp_path)
    made = replace(certified(1, (39.0, 41.0), (7.0, 8.0), on="first"), conditions=Conditions(changed={"x": 40.0}))
    store(ledger, made)
    left = runners(ledger, [first, second])
    assert [one.environment.name for one in left] == ["second"] and nothing_to_certify(left[0]) is None
    assert nothing_to_certify(runners(ledger, [first])[0]) is not None, "nothing is left of it"
    settled(ledger, {"x": 50.0})
    another = runners(ledger, [first, second])
    assert [one.environment.name for one in another] == ["first", "second"], "it is refused, not passed over"


def test_the_time_of_a_certificate_holds_that_of_the_ablation_after_it(tmp_path: Path) -> None:
    (alone,) = runners(decided(tmp_path))
    advanced = alone.spec.advanced.model_copy(update={"ablation": True})
    both = replace(alone, spec=alone.spec.model_copy(update={"advanced": advanced}))
    runs, more = run_certificate.planned(alone, ALPHA, 2).in_turn(1), sum(ablation_runs(changes=1))
    assert longest(both, 2, 1) == pytest.approx(longest(alone, 2, 1) * (runs + more) / runs)
    assert longest(replace(both, budget=4.0), 2, 1) == longest(replace(alone, budget=4.0), 2, 1), "none follows there"


def test_parameters_alone_are_tried_in_another_program(tmp_path: Path) -> None:
    other = noisy(tmp_path / "other", DRAW.replace("bonus = 0.0", "bonus = 1.0"), OTHER)
    ledger = decided(tmp_path)
    (runner,) = runners(ledger, [str(other)], "2x")
    assert "bonus = 1.0" in (runner.program / "draw.py").read_text()
    assert runner.environment.budget_steps == 40 and runner.conditions.changed == {"x": 40.0}
    words = cost(runner, 5)
    assert words.startswith("other at 2x the budget: at most 5 v 5 runs of at most 10 s") and "at most about" in words


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="this machine has one core")
def test_an_environment_of_two_cores_is_given_slots_of_two(tmp_path: Path) -> None:
    other = noisy(tmp_path / "other", toml=f"cores = 2\n{OTHER}")
    ledger = decided(tmp_path)
    (runner,) = runners(ledger, [str(other)])
    assert (runner.environment.cores, runner.slots.cores, ledger.environment.cores) == (2, 2, 1)
    assert not [event for event in ledger.events() if event["event"] == "slots"], "the process that holds them tells it"


def test_a_budget_beyond_what_an_environment_may_ask_for_is_refused(tmp_path: Path) -> None:
    long = noisy(tmp_path / "long", toml=OTHER.replace("budget_seconds = 5", "budget_seconds = 600000"))
    ledger = decided(tmp_path)
    with pytest.raises(Refused, match=f"long would train for 500 h, and at most {LONGEST / 3600:g} h") as refused:
        runners(ledger, [str(long)], "3x")
    assert "ask for at most 2.016x" in str(refused.value)


def test_runs_of_an_earlier_version_with_other_parameters_are_not_pooled(tmp_path: Path) -> None:
    ledger, other = decided(tmp_path), noisy(tmp_path / "other", toml=OTHER)
    (runner,) = runners(ledger, [str(other)])
    before = replace(certified(1, (1.0, 2.0, 3.0), (1.5, 2.5, 0.5)), environment="other", elsewhere=True)
    store(ledger, before)
    assert next_look(runner) == 2 and run_certificate._earlier(runner, 1) == ()


def test_a_launched_run_knows_its_budget(tmp_path: Path) -> None:
    ledger = decided(tmp_path)
    asked = LaunchRequest(ledger.key(1), "measure", ledger.history()[1].proposal, "x", 2, "", budget=4.0)
    runner = Runner(bench(ledger).spec, ledger, ledger.history(), bench(ledger).slots, None, asked.budget)
    assert runner.environment.budget_seconds == 20


def test_questions_that_wear_out_are_charged_for_each_budget(tmp_path: Path) -> None:
    pool = tmp_path / "pool"
    levels = [holdout_uses.charge(pool, f"id{name}", 1) for name in ("", "-4x", "-4x")]
    assert [earlier for earlier, _ in levels] == [0, 1, 1]

"""Certificates in other environments and with another training budget, as campaigns take them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from environments import Environment
from environments.plugins import Refused
from environments.space import Choice, Float, Value
from flows.certify import certify
from flows.engine.certifying import Question, nothing_to_certify, store
from flows.engine.transfer import cost, laid_over, multiple, questions
from flows.status import document
from tasks.stats.certificate import Certificate, Conditions
from tasks.store.ledger import Ledger, frozen_elsewhere
from tests.support.histories import certified, tried, undemanding
from tests.support.nights import question
from tests.support.noisy import BETTER, DRAW, TOML, campaign, noisy, searched, settled
from tests.support.prefect_api import prefect_at

OTHER = TOML.replace("default = 0.0", "default = 7.0")


def decided(folder: Path, edit: str | None = None) -> Ledger:
    """A campaign whose champion has x = 40, and the edit."""
    return searched(campaign(noisy(folder / "noisy")), {"x": 40.0}, edit=edit)


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


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_longer_budget_is_a_question_of_its_own_and_runs_so_long(tmp_path: Path, server: str) -> None:
    ledger = decided(tmp_path)
    made = certificate(server, ledger, budget="4x")
    (ledger.path / "certificates/1-at-4x-on-noisy.json").unlink()  # as if it was killed before it wrote that down
    assert certificate(server, ledger, budget="4x") == made, "nothing ran twice"
    assert made.elsewhere and (made.conditions.budget, made.look, made.environment) == (4, 1, "noisy")
    assert (ledger.path / "certificates/1-at-4x-on-noisy.json").is_file()
    longer = [(one["budget_seconds"], one["budget_steps"]) for one in configs(ledger, "1-at-4x-on-noisy")]
    assert longer == [(20, 80)] * 8
    assert made.reused == () and not made.not_reused, "runs of another budget tell nothing of this one"
    own, (other,) = question(ledger), questions(ledger, (), "2x")
    assert nothing_to_certify(own) is None and own.look == 1, "its own is still to be taken"
    assert replace(other, conditions=Conditions(4.0)).look == 2 and other.look == 1
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
    numbers = searched(campaign(tmp_path / "noisy", "numbers"), {"x": 40.0})
    (asked,) = questions(numbers, [str(other)], "2x")
    frozen = frozen_elsewhere(numbers.path, "other")
    assert "bonus = 1.0" in (frozen / "program/draw.py").read_text()
    assert asked.environment.budget_steps == 40 and asked.conditions.changed == {"x": 40.0}
    assert cost(asked, 5).startswith("other at 2x the budget: at most 5 v 5 runs of at most 10 s")


def test_the_same_command_goes_on_with_the_environments_that_are_left(tmp_path: Path) -> None:
    first, second = (str(noisy(tmp_path / name, toml=OTHER)) for name in ("first", "second"))
    ledger = decided(tmp_path)
    made = replace(certified(1, (39.0, 41.0), (7.0, 8.0), on="first"), alpha=0.048)
    made = replace(made, conditions=Conditions(changed={"x": 40.0}))
    store(ledger, made)
    left = questions(ledger, [first, second])
    assert [one.environment.name for one in left] == ["second"] and nothing_to_certify(left[0]) is None
    assert nothing_to_certify(questions(ledger, [first])[0]) is None, "more runs of it may follow"
    settled(ledger, {"x": 50.0})
    another = questions(ledger, [first, second])
    assert [one.environment.name for one in another] == ["first", "second"], "it is refused, not passed over"


# What of a champion can be tried there

FIRST = tried((), 1.0, params={"lr": 0.1, "size": 8, "only_here": 1.0, "same": 3})


def there(**fixed: float) -> Environment:
    space = {
        "lr": Float(type="float", low=0.0, high=1.0, default=0.5),
        "size": Choice(type="choice", values=(16, 32), default=16),
        "same": Choice(type="choice", values=(3, 4), default=4),
    }
    own = {name: parameter for name, parameter in space.items() if name not in fixed}
    return undemanding().model_copy(update={"name": "there", "space": own, "fixed": fixed})


def asked(ledger: Ledger, **champion: Value) -> Question:
    return question(ledger, (FIRST, tried((FIRST,), 2.0, params=champion)))


def test_what_the_champion_changed_replaces_the_defaults_there_and_the_rest_stays_theirs(ledger: Ledger) -> None:
    found = laid_over(asked(ledger, lr=0.2, size=32, only_here=2.0, same=3), there())
    assert found.arms["baseline"].params == {"lr": 0.5, "size": 16, "same": 4}
    assert found.arms["champion"].params == {"lr": 0.2, "size": 32, "same": 4}, "it never changed `same`"
    assert found.conditions == Conditions(changed={"lr": 0.2, "size": 32}, left_out=("only_here does not exist",))


def test_a_value_that_is_not_allowed_there_or_is_fixed_is_left_out_and_said(ledger: Ledger) -> None:
    with pytest.raises(Refused) as refused:
        laid_over(asked(ledger, lr=3.0, size=64, only_here=1.0, same=4), there(size=16))
    words = str(refused.value)
    assert words.startswith("--on there: nothing that trial 1 changed can be tried there")
    assert "lr must be" in words and "size is fixed at 16" in words

"""What trials and campaigns cost."""

from __future__ import annotations

from dataclasses import replace

from tasks.trial import Trial, Usage
from tests.support.histories import tried


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

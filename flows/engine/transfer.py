"""Certificates in other environments, and with another training budget: who runs what, and for how long.

What the champion changed is laid over another environment's own defaults and program. A parameter that does not exist
there, is fixed, or may not have the champion's value is left out, and said. An edit needs the same program there.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import replace

import environments
from environments import Environment
from environments.plugins import Refused
from flows.engine import certifying
from flows.engine.certifying import Question
from flows.spec.campaign_spec import CampaignSpec, checked_environment
from tasks import preparing
from tasks.describe import setting
from tasks.numbers import duration
from tasks.sandbox import outputs
from tasks.stats.ablation import parts
from tasks.stats.certificate import Conditions
from tasks.stats.design import Arm
from tasks.store.ledger import Ledger, freeze, frozen_elsewhere
from tasks.trial import Proposal, baseline, best


def laid_over(question: Question, there: Environment) -> Question:
    """The question in another environment. Refused if nothing that the champion changed can be tried there."""
    champion, first = best(question.history), baseline(question.history)
    assert champion is not None and first is not None, "there is a champion"
    old, defaults = first.proposal.params, there.defaults
    taken, left_out = dict(defaults), []
    for name, value in champion.proposal.params.items():
        if name in old and old[name] == value:
            continue
        if name not in there.space:
            why = f"is fixed at {there.fixed[name]!r}" if name in there.fixed else "does not exist"
            left_out.append(f"{name} {why}")
            continue
        try:
            taken[name] = there.space[name].check(value)
        except ValueError as wrong:
            left_out.append(f"{name} {wrong}")
    edit = champion.proposal.edit
    if taken == defaults and not edit:
        why = "; ".join(left_out) or "its values are the defaults there"
        raise Refused(f"--on {there.name}: nothing that trial {champion.number} changed can be tried there: {why}")
    changed = {name: value for name, value in taken.items() if defaults[name] != value}
    arms: dict[Arm, Proposal] = {
        "champion": replace(champion.proposal, params=taken),
        "baseline": replace(first.proposal, params=defaults, edit=None),
    }
    conditions = replace(question.conditions, changed=changed, left_out=tuple(left_out))
    return replace(question, transfer=there, conditions=conditions, arms=arms)


def questions(ledger: Ledger, on: Sequence[str] = (), budget: str = "", *, looking: bool = False) -> list[Question]:
    """The questions of a certificate: one for each environment in `on`, or one for the campaign's own.

    Each other environment is frozen when it is first certified in; not where somebody is only `looking`. Of several,
    those that are answered are left out. Refused if the champion cannot run there, or for too long.
    """
    history = ledger.history()
    own = Question(CampaignSpec.of(**ledger.spec), ledger, history, conditions=Conditions(multiple(budget)))
    if reason := certifying.no_champion(history):
        raise Refused(f"campaign {ledger.campaign.name!r} cannot be certified: {reason}")
    here = own.spec.launch == "here"
    found = [_transferred(own, checked_environment(reference, {}, here=here), looking) for reference in on] or [own]
    # The same command, given again after a kill, goes on with those that are left.
    return [one for one in found if not one.answers_on_champion] or found


def multiple(budget: str) -> float:
    """A training budget such as 4x, in that of the environment; 1 if empty. Refused if it is anything else."""
    if not budget:
        return 1.0
    if not re.fullmatch(r"\d{1,3}(\.\d{1,3})?x", budget) or not float(budget[:-1]):
        raise Refused(f"--budget {budget}: give a multiple of the environment's budget, such as 4x or 0.5x")
    return float(budget[:-1])


def cost(question: Question, runs: int | None = None) -> str:
    """The most that a certificate may take, in words. (runs: fresh runs of each arm at most)"""
    environment, design = question.environment, certifying.planned(question, runs)
    return (
        f"{setting(environment.name, question.conditions.budget)}: at most {design.champion} v {design.baseline} "
        f"runs of at most {duration(environment.budget_seconds)} of training, so at most about "
        f"{duration(longest(question, runs, question.spec.parallel))}"
    )


def longest(question: Question, runs: int | None, parallel: int) -> float:
    """The most seconds that a certificate and its ablation may take on so many slots. (runs: as in `cost`)"""
    champion, first = best(question.history), baseline(question.history)
    changes = len(parts(champion, first)) if champion and first and not question.is_transfer else 0
    known, in_turn = () if question.transfer else question.history, certifying.planned(question, runs).in_turn(parallel)
    return question.spec.time_for_runs(question.environment, known, in_turn, changes, parallel)


def _transferred(own: Question, environment: Environment, looking: bool) -> Question:
    """The question in another environment, frozen when it is first certified in. Refused if that has changed since, is
    the campaign's own, or has parameters that mean something else.
    """
    ledger, where = own.ledger, f"--on {environment.name}"
    if environment.name == ledger.environment.name:
        raise Refused(f"{where}: that is the campaign's own environment: leave --on out")
    if environment.trainer != ledger.environment.trainer:
        raise Refused(
            f"{where}: it trains with {environment.trainer!r}, the campaign with {ledger.environment.trainer!r}"
        )
    asked = laid_over(own, environment)
    if looking:
        return asked
    path = frozen_elsewhere(ledger.path, environment.name)
    fresh = path.with_name(f".{path.name}")
    shutil.rmtree(fresh, ignore_errors=True)  # of a process that was killed
    try:
        freeze(environment, fresh)
        if not (environment.program or ledger.environment.program):  # the trainer's, as it was when the campaign began
            shutil.rmtree(fresh / "program")
            shutil.copytree(ledger.program, fresh / "program")
        if path.is_dir() and outputs.digest(path / "environment") != outputs.digest(fresh / "environment"):
            what = f"{environment.folder}, or a helper of its recipe,"
            raise Refused(f"{what} has changed since the first certificate in it: it froze {path}")
        is_edited = asked.arms and asked.arms["champion"].edit
        if is_edited and outputs.digest(fresh / "program") != outputs.digest(ledger.program):
            raise Refused(
                f"{where}: the champion's edit was made against the program of "
                f"{ledger.environment.name}, and the baseline program of {environment.name} is another: name an "
                "environment with the same program"
            )
        if not path.is_dir():
            fresh.rename(path)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    frozen = preparing.laid(environments.load(path / "environment", {}, environment.name), ledger.path.parent)
    return replace(asked, transfer=frozen)

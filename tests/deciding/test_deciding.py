"""Deciding: what holds under every rule, what each rule is about, and what stands above all of them."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from environments import Environment, plugins
from environments.score import Score
from tasks.decide import NeedsControl, weigh
from tasks.rules import JudgedTrial, NeedsRerun, Rule
from tasks.rules.certify import Certify
from tasks.rules.greedy import Greedy
from tasks.trial import EarlyStop, History, Proposal, Rerun, Run, Trial, UntrainedControl, Verdict, VerdictKind
from tests.support.histories import scored, tried, undemanding

RULES = "tasks.rules"
NAMES = plugins.names(RULES)
SD = 10.0
BASELINE = (80.0, 95.0, 71.0)
FINE = Run("trials/0001", 1, 5.0, "finished")


def rule_of(name: str, **options: Any) -> Rule:
    return plugins.make(RULES, name, Rule, options)  # type: ignore[type-abstract]


def begun(up: bool = True) -> History:
    """A campaign with three runs of its baseline, some 10 apart."""
    sign = 1 if up else -1
    return (tried((), *(sign * value for value in BASELINE), params={"lr": 0.1}, higher_is_better=up),)


def of(history: History, *values: float | None, up: bool = True, **proposed: Any) -> JudgedTrial:
    """The next trial with these scores, in the metric's own sign, which no other proposal is less simple than."""
    number, score = len(history), Score.over([scored(value, up) for value in values])
    proposal = Proposal(**{"params": {"lr": 0.5, "layers": number}, "parent": 0, **proposed})
    return JudgedTrial(number, proposal, tuple(replace(FINE, seed=n) for n, _ in enumerate(values)), score)


def decided(history: History, one: JudgedTrial, verdict: Verdict) -> Trial:
    """The trial as the campaign writes it down."""
    number = len(history)
    return Trial(number, 1, number, one.proposal, one.runs, one.score, verdict, reruns=one.reruns)


def in_the_end(
    rule: Rule, history: History, one: JudgedTrial, mine: float, seed: int = 1, up: bool = True
) -> tuple[Verdict, JudgedTrial]:
    """Ask and answer until there is a verdict: another run comes from this true level, with a noise of SD."""
    draw = random.Random(seed)
    while isinstance(wanted := weigh(history, undemanding(), rule, one), NeedsRerun):
        assert len(one.reruns) < 50, "it never has enough"
        value = draw.gauss(mine, SD) * (1 if up else -1)
        one = replace(one, reruns=(*one.reruns, Rerun(one.number, FINE, scored(value, up))))
    assert isinstance(wanted, Verdict)
    return wanted, one


# Every rule


@pytest.mark.parametrize("name", NAMES)
def test_the_first_trial_with_a_score_is_kept(name: str) -> None:
    found = weigh((), undemanding(), rule_of(name), of((), *BASELINE))
    assert (found.kind, found.level, found.reason) == ("keep", "provisional", "the baseline")
    crashed: History = (tried((), None),)
    found = weigh(crashed, undemanding(), rule_of(name), of(crashed, 3.0))
    assert (found.kind, found.reason) == ("keep", "the first trial with a score")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("history", [(), begun()], ids=["baseline", "later"])
def test_what_has_no_score_is_a_crash_with_its_reason(name: str, history: History) -> None:
    found = weigh(history, undemanding(), rule_of(name), of(history, None))
    assert found == Verdict("crash", "exited with status 3")
    found = weigh(history, undemanding(), rule_of(name), of(history, 900.0, None))
    assert found == Verdict("crash", "run 2 of 2: exited with status 3")


@pytest.mark.parametrize("name", NAMES)
def test_what_was_ended_early_is_cancelled_with_what_was_said_of_it(name: str) -> None:
    due = EarlyStop(0.4, "31 at 40% of its budget")
    one = replace(of(begun(), None), runs=(replace(FINE, status="cancelled", due=due),))
    assert weigh(begun(), undemanding(), rule_of(name), one) == Verdict("cancelled", due.reason)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("up", [True, False])
@pytest.mark.parametrize(("away", "kind"), [(20 * SD, "keep"), (-20 * SD, "discard")])
def test_what_is_much_better_is_kept_in_the_end_and_what_is_much_worse_never(
    name: str, up: bool, away: float, kind: str
) -> None:
    """In a metric to minimise everything is the same, turned round."""
    history, mine = begun(up), 82.0 + away
    for seed in range(10):
        one = of(history, mine if up else -mine, up=up)
        found, asked = in_the_end(rule_of(name), history, one, mine, seed, up)
        assert found.kind == kind, found
        assert found.level == ("provisional" if kind == "keep" else None)
        assert kind == "keep" or not asked.reruns, "not worth a second look"
        assert found.evidence["champion"] == history[0].score.value


# Greedy: one number against another


@pytest.mark.parametrize(("value", "kind"), [(82.0, "discard"), (82.001, "keep"), (81.9, "discard")])
def test_greedy_believes_every_score(value: float, kind: str) -> None:
    assert weigh(begun(), undemanding(), Greedy(), of(begun(), value)).kind == kind


# Certify: a record is run again before it is believed


@pytest.mark.parametrize(("again", "kind"), [(83.0, "keep"), (60.0, "discard"), (None, "discard")])
def test_certify_keeps_a_record_that_stays_one_when_it_is_run_again(again: float | None, kind: VerdictKind) -> None:
    history, rule = begun(), Certify(first=0)
    one = of(history, 90.0)
    assert weigh(history, undemanding(), rule, one) == NeedsRerun()
    assert weigh(history, undemanding(), rule, replace(one, is_last=True)).kind == "keep", "no time is left"
    found = weigh(history, undemanding(), rule, replace(one, reruns=(Rerun(1, FINE, scored(again)),)))
    assert found.kind == kind, found


def test_a_champion_is_as_good_as_all_its_runs_are_and_a_tie_is_no_record() -> None:
    history, rule = begun(), Certify(first=0)
    one = replace(of(history, 120.0), reruns=(Rerun(1, FINE, scored(90.0)),))
    history = (*history, decided(history, one, weigh(history, undemanding(), rule, one)))
    assert weigh(history, undemanding(), rule, of(history, 105.0)).kind == "discard"
    assert weigh(history, undemanding(), rule, of(history, 106.0)) == NeedsRerun()


# Learned or not: asked of would-be champions only


def strict() -> Environment:
    return undemanding().model_copy(update={"allow_untrained": False})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("value", "kind"), [(400.0, "keep"), (20.0, "discard"), (None, "crash")], ids=["better", "worse", "crash"]
)
def test_whether_it_learned_is_asked_of_would_be_keeps_alone(name: str, value: float | None, kind: VerdictKind) -> None:
    history, one = begun(), of(begun(), value)
    asked = 0
    while not isinstance(wanted := weigh(history, strict(), rule_of(name), one), Verdict):
        if isinstance(wanted, NeedsRerun):
            one = replace(one, reruns=(*one.reruns, Rerun(one.number, FINE, scored(value))))
            assert one.control is None, "what costs more is asked last"
        else:
            assert isinstance(wanted, NeedsControl)
            asked += 1
            one = replace(one, control=UntrainedControl(scored(70.0)))
    assert wanted.kind == kind
    assert asked == (kind == "keep")
    assert wanted.evidence.get("untrained") == (70.0 if kind == "keep" else None)

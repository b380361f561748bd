"""A trial that was run again is decided as the newest, and stands at the end of the history: the baseline too."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tasks.decide import weigh
from tasks.rules import JudgedTrial, Rule
from tasks.rules.certify import Certify
from tasks.rules.greedy import Greedy
from tasks.stats.champion import reference
from tasks.trial import History, Trial, Verdict, baseline, best
from tests.support.histories import tried, undemanding

CERTIFY = Certify()
RULES = [CERTIFY, Greedy()]


def night() -> History:
    """A baseline near 100, a champion at 130, and one that was worse."""
    history: History = (tried((), 99.0, 100.0, 101.0, kind="keep"),)
    history += (tried(history, 130.0, kind="keep"),)
    return (*history, tried(history, 90.0, kind="discard"))


def again(history: History, number: int, *values: float | None, rule: Rule = CERTIFY) -> History:
    """The history after another attempt at one of its trials."""
    old = next(trial for trial in history if trial.number == number)
    judged = tried(history, *values, kind="keep")
    verdict = weigh(history, undemanding(), rule, JudgedTrial(number, old.proposal, judged.runs, judged.score))
    assert isinstance(verdict, Verdict), "nothing more is asked for"
    place = 1 + max(trial.order for trial in history)
    newest = Trial(number, old.attempt + 1, place, old.proposal, judged.runs, judged.score, verdict, 6.0)
    return (*(trial for trial in history if trial is not old), newest)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("values", [(70.0, 71.0, 72.0), (199.0, 200.0, 201.0)])
def test_a_baseline_that_is_run_again_is_what_counts_and_leaves_the_champion(
    rule: Rule, values: tuple[float, ...]
) -> None:
    history = again(night(), 0, *values, rule=rule)
    assert [trial.number for trial in history] == [1, 2, 0]
    first, champion = baseline(history), best(history)
    assert first is history[-1] and first.verdict.kind == "discard"
    assert champion is history[0] and reference(history) is first


def test_a_baseline_that_is_run_again_while_nothing_was_kept_is_champion_again() -> None:
    history = again((night()[0], replace(night()[2], number=1, order=1)), 0, 70.0, 71.0, 72.0)
    assert best(history) is history[-1] and history[-1].verdict.reason == "the baseline"
    assert best(again(history, 1, 130.0)) is not baseline(history)


@pytest.mark.parametrize(("number", "score", "champion"), [(1, 140.0, 1), (1, 60.0, 0), (2, 160.0, 2)])
def test_a_trial_that_is_run_again_has_to_beat_the_champion_without_it(
    number: int, score: float, champion: int
) -> None:
    history = again(night(), number, score)
    newest, found = history[-1], best(history)
    assert found is not None and (newest.number, found.number) == (number, champion)
    assert newest.verdict.kind == ("keep" if champion == number else "discard")

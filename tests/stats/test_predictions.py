"""Predictions: each is compared with the champion that its proposer knew, and a few of them make a record."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tasks.llm.prompts import trials
from tasks.rules.certify import Certify
from tasks.rules.greedy import Greedy
from tasks.stats.predictions import record
from tasks.trial import History, Trial
from tests.support.histories import search, tried


def told(history: History, score: float | None, expected: float | None, seen: int | None = None) -> Trial:
    trial = tried(history, score)
    seen = len(history) if seen is None else seen
    return replace(trial, proposal=replace(trial.proposal, expected=expected, seen=seen))


def test_a_prediction_is_measured_against_the_champion_that_was_known_then() -> None:
    history: History = (tried((), 10.0),)
    history += (told(history, 14.0, 3.0),)
    history += (told(history, 13.0, 2.0, seen=1),)  # it was proposed before trial 1 was decided
    history += (told(history, None, 9.0),)
    history += (told(history, 20.0, None),)
    assert record(history) is None
    history += (told(history, 15.0, 1.0),)
    summary = record(history)  # measured: 4, 3 and -5
    assert summary is not None and summary.pop("words").startswith("2 of 3")
    assert summary == pytest.approx({"count": 3, "right": 2, "expected": 2.0, "measured": 2 / 3, "error": 8 / 3})


def test_a_champion_that_was_run_again_is_none_that_an_earlier_proposal_knew() -> None:
    history: History = (tried((), 10.0),)
    history += (tried(history, 14.0, kind="keep"),)
    for _ in range(3):
        trial = told(history, 13.0, 2.0, seen=2)
        history += (replace(trial, verdict=replace(trial.verdict, kind="keep")),)
    summary = record(history)
    assert summary is not None and summary["measured"] == -1.0, "they knew neither of each other"
    again = replace(history[1], order=5, attempt=2)
    summary = record((history[0], *history[2:], again))
    assert summary is not None and summary["measured"] == 3.0, "the baseline is all that they knew"


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_prompts_tell_the_effect_of_a_trial(sign: float) -> None:
    first = tried((), 5.0 * sign, 5.2 * sign, higher_is_better=sign > 0)
    trial = tried((first,), 7.0 * sign, higher_is_better=sign > 0)
    trial = replace(trial, proposal=replace(trial.proposal, expected=2.0 * sign, seen=1))
    assert f"{1.9 * sign:+.3g} against the champion then" in trials((first, trial))


def test_predictions_beyond_any_score_do_not_count() -> None:
    history: History = (tried((), 10.0),)
    for expected in (1e308, 1e308, -1e308, math.inf, math.nan, 1.0, 2.0, 3.0):
        history += (told(history, 9.0, expected),)
    summary = record(history)
    assert summary is not None and (summary["count"], summary["expected"]) == (3, pytest.approx(2.0))


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("rule", [Certify(), Greedy()])
def test_a_rule_says_its_threshold_in_the_metrics_own_sign(rule: Certify | Greedy, sign: float) -> None:
    words = rule.in_words(search(12, sign=sign))
    assert ("above" if sign > 0 else "below") in words and ("below" if sign > 0 else "above") not in words
    assert rule.in_words(()) == ""

"""Reports that the judge contradicts: which keep they cost, and which difference is an honest one."""

from __future__ import annotations

from dataclasses import replace

import pytest

import environments
from environments.score import Score
from tasks.decide import weigh
from tasks.deciding.champion_estimate import champion_estimate
from tasks.deciding.false_report import contradicted
from tasks.deciding.values import JudgedTrial
from tasks.rules.certify import Certify
from tasks.rules.greedy import Greedy
from tasks.trial import History, Proposal, Rerun, Run, Trial, Verdict

RETURNS = (9.0, 120.0, 260.0)
"""Of the baseline's episodes."""


def baseline(reported: float | None) -> History:
    run = Run("trials/0000", 0, 5.0, "finished", reported=reported)
    verdict = Verdict("keep", "the baseline", "provisional")
    return (Trial(0, 1, 0, Proposal({}), (run,), Score.of(RETURNS, True), verdict),)


def judged(reported: float | None, *units: float) -> JudgedTrial:
    run = Run("trials/0001", 1, 5.0, "finished", reported=reported)
    return JudgedTrial(1, Proposal({}), (run,), Score.of(units, True))


def several(*baselines: History) -> History:
    """One baseline with the runs of several."""
    runs = tuple(run for (first,) in baselines for run in first.runs)
    return (replace(baselines[0][0], runs=runs, score=Score.over([first.score for (first,) in baselines])),)


@pytest.mark.parametrize("reported", [1e6, -1e6, 6_000.0])
def test_a_report_that_is_far_from_all_that_the_judge_saw_is_not_kept_and_the_reason_says_both(reported: float) -> None:
    environment = environments.load(environments.find("cartpole"))
    verdict = weigh(baseline(100.0), environment, Greedy(), judged(reported, 400.0, 500.0))
    assert isinstance(verdict, Verdict) and verdict.kind == "discard"
    assert f"reported {reported:.4g}" in verdict.reason and "was judged 450 (400 to 500)" in verdict.reason


def test_the_score_of_a_trial_that_misreports_says_nothing_of_the_champion() -> None:
    """It may be a controller written by hand; without the report its control would tell."""
    environment = environments.load(environments.find("cartpole"))
    before = several(*[baseline(100.0)] * 3)
    before = (replace(before[0], score=Score.over([Score.of((value,), True) for value in (100.0, 110.0, 95.0)])),)
    false = replace(judged(1e6, 400.0, 500.0), proposal=Proposal({}, edit="a diff"))
    verdict = weigh(before, environment, Certify(), false)
    assert isinstance(verdict, Verdict) and verdict.kind == "discard"
    after = (*before, Trial(1, 1, 1, false.proposal, false.runs, false.score, verdict))
    assert champion_estimate(after) == champion_estimate(before)


@pytest.mark.parametrize("reported", [None, 450.0, 20.0, 0.0, -300.0, 900.0])
def test_a_report_of_other_episodes_with_drawn_actions_is_an_honest_one(reported: float | None) -> None:
    assert contradicted(baseline(100.0), judged(reported, 400.0, 500.0)) is None


@pytest.mark.parametrize(("reported", "units"), [(0.1, (0.0, 0.0)), (-1.0, (500.0, 500.0)), (200.0, (0.0, 0.01))])
def test_where_the_judge_saw_hardly_any_difference_the_baselines_results_are_the_measure(
    reported: float, units: tuple[float, ...]
) -> None:
    assert contradicted(baseline(100.0), judged(reported, *units)) is None
    assert contradicted(several(*[baseline(100.0)] * 3), judged(reported, *units)) is None


def test_a_perfect_score_of_a_metric_that_is_to_fall_may_follow_a_report_of_a_little_more() -> None:
    errors = Score.over([Score.of(units, False) for units in ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 1.0, 1.0))])
    history = (replace(several(*[baseline(0.4)] * 3)[0], score=errors),)
    assert contradicted(history, replace(judged(0.02, 0.0), score=Score.of((0.0, 0.0, 0.0), False))) is None


def test_where_the_baseline_reports_something_else_under_that_name_so_may_a_trial() -> None:
    assert contradicted(baseline(1e6), judged(1e6, 400.0, 500.0)) is None


def test_one_run_that_misreports_is_enough() -> None:
    honest, false = judged(450.0, 400.0, 500.0), judged(1e6, 400.0, 500.0)
    both = replace(honest, runs=honest.runs + false.runs, score=Score.over([honest.score, false.score]))
    assert contradicted(baseline(100.0), both) is not None


def test_one_run_that_is_far_off_in_the_baseline_is_enough_to_believe_nothing() -> None:
    usual, odd = baseline(100.0), baseline(1e6)
    assert contradicted(several(usual, odd), judged(1e6, 400.0, 500.0)) is None
    calibrated = Rerun(0, odd[0].runs[0], odd[0].score, calibrated=True)
    assert contradicted((replace(usual[0], reruns=(calibrated,)),), judged(1e6, 400.0, 500.0)) is None

"""Conformance of every canceller: progress against progress, losers ended, winners never; then each one's own ways."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from environments import plugins
from environments.score import Score
from tasks.cancellers import Canceller, trusted_runs
from tasks.cancellers.curve import ByCurve
from tasks.cancellers.forecast import Forecast, forecast
from tasks.cancellers.pruner import Pruner
from tasks.trial import TWENTIETHS, Curve, History, Proposal, Rerun, Run, Trial, Verdict
from tests.support.histories import tried

CANCELLERS = "tasks.cancellers"
NAMES = plugins.names(CANCELLERS)
PRUNERS = ("median", "percentile", "successive_halving", "hyperband")
TIMES = np.arange(1, TWENTIETHS + 1) / TWENTIETHS
GAP = 0.0
"""By how much the judge finds every run better than it said."""


def rising(end: float, seed: int = 0, speed: float = 0.25, noise: float = 0.5) -> Curve:
    """Progress that saturates: from 0 to about `end`, with noise in each report."""
    rng = np.random.default_rng(seed)
    shape = (1 - np.exp(-TIMES / speed)) / (1 - np.exp(-1 / speed))
    return tuple(float(value) for value in end * shape + noise * rng.standard_normal(TWENTIETHS))


def mirrored(curve: Curve) -> Curve:
    return tuple(None if value is None else -value for value in curve)


def ran(number: int, curve: Curve, status: Any = "finished") -> Run:
    return Run(f"trials/{number:04d}", number, 10.0, status, reported=curve[-1], curve=curve)


def judged(run: Run, gap: float, higher_is_better: bool) -> Score:
    assert run.reported is not None
    return Score.of([run.reported + (gap if higher_is_better else -gap)], higher_is_better)


def trial(
    number: int, curves: list[Curve], kind: Any = "discard", gap: float = GAP, higher_is_better: bool = True
) -> Trial:
    runs = tuple(ran(number, curve) for curve in curves)
    score = Score.over([judged(run, gap, higher_is_better) for run in runs])
    return Trial(number, 1, number, Proposal({}), runs, score, Verdict(kind, ""))


def cancelled(number: int, curve: Curve) -> Trial:
    score = Score.missing("cancelled", higher_is_better=True)
    verdict = Verdict("cancelled", "")
    return Trial(number, 1, number, Proposal({}), (ran(number, curve, "cancelled"),), score, verdict)


def night(higher_is_better: bool = True) -> History:
    """Three runs of the baseline at 60, a champion at 100, trials between them, and one that was cancelled."""
    turned = (lambda curve: curve) if higher_is_better else mirrored
    ends = {1: 70.0, 2: 100.0, 3: 65.0, 4: 90.0, 5: 75.0, 6: 80.0}
    first = trial(0, [turned(rising(60, seed)) for seed in (1, 2, 3)], "keep", higher_is_better=higher_is_better)
    others = [
        trial(n, [turned(rising(end, 10 + n))], "keep" if n <= 2 else "discard", higher_is_better=higher_is_better)
        for n, end in ends.items()
    ]
    return (first, *others, cancelled(7, turned(rising(40, 17)[:8])))


def first_due(canceller: Canceller, history: History, curve: Curve, higher_is_better: bool = True) -> int | None:
    """The twentieth at which a run with this curve would be cancelled, asked as the engine asks."""
    asked = range(1, TWENTIETHS)
    return next((n for n in asked if canceller.look(history, curve[:n], higher_is_better)), None)


@pytest.fixture
def canceller(request: pytest.FixtureRequest) -> Canceller:
    name, _, kind = request.param.partition(" ")
    made: type[Any] = plugins.load(CANCELLERS, name, Canceller)  # type: ignore[type-abstract]
    return made(kind=kind) if kind else made()


every_canceller = pytest.mark.parametrize(
    "canceller", [*NAMES, *(f"pruner {kind}" for kind in PRUNERS[1:])], indirect=True
)


@every_canceller
def test_without_a_history_nothing_is_cancelled(canceller: Canceller) -> None:
    assert first_due(canceller, (), rising(1)) is None


@every_canceller
def test_what_has_reported_nothing_is_not_cancelled(canceller: Canceller) -> None:
    assert first_due(canceller, night(), (None,) * TWENTIETHS) is None


@pytest.mark.parametrize("higher_is_better", [True, False], ids=["maximize", "minimize"])
@every_canceller
def test_a_clear_loser_is_cancelled_before_its_end_and_the_reason_has_its_numbers(
    canceller: Canceller, higher_is_better: bool
) -> None:
    history, curve = night(higher_is_better), rising(10, seed=99)
    curve = curve if higher_is_better else mirrored(curve)
    due = first_due(canceller, history, curve, higher_is_better)
    assert due is not None
    reason = canceller.look(history, curve[:due], higher_is_better)
    assert reason and f"{due / TWENTIETHS:.0%} of its budget" in reason


@pytest.mark.parametrize("higher_is_better", [True, False], ids=["maximize", "minimize"])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5))])
@every_canceller
def test_a_clear_winner_is_never_cancelled(canceller: Canceller, seed: int, higher_is_better: bool) -> None:
    curve = rising(130, seed)
    curve = curve if higher_is_better else mirrored(curve)
    assert first_due(canceller, night(higher_is_better), curve, higher_is_better) is None


@every_canceller
def test_the_same_question_gets_the_same_answer(canceller: Canceller) -> None:
    curve = rising(40, seed=99)
    answers = [[canceller.look(night(), curve[:n], True) for n in range(1, TWENTIETHS)] for _ in range(2)]
    assert answers[0] == answers[1]


@every_canceller
def test_where_reports_and_judgement_differ_nothing_is_cancelled(canceller: Canceller) -> None:
    """The judge finds every run a thousand better than it said: such progress says nothing of who wins."""
    history = tuple(
        dataclasses.replace(one, score=Score.over([judged(run, 1000.0, higher_is_better=True) for run in one.runs]))
        if one.verdict.kind != "cancelled"
        else one
        for one in night()
    )
    assert first_due(canceller, history, rising(40, seed=99)) is None


@pytest.mark.parametrize("name", NAMES)
def test_an_option_that_a_canceller_does_not_have_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        plugins.load(CANCELLERS, name, Canceller)(alien=1)  # type: ignore[type-abstract, call-arg]


def test_runs_are_trusted_whose_end_agrees_with_their_score() -> None:
    history = night()
    found = trusted_runs(history)
    assert [(one.number, run.seed) for one, run in found] == [
        (0, 0), (0, 0), (0, 0), *((n, n) for n in range(1, 7))
    ]  # fmt: skip
    assert all(run in one.runs for one, run in found)


@pytest.mark.parametrize("gap", [-40.0, 40.0])
def test_a_run_that_claimed_far_more_or_less_than_it_scored_is_not_trusted(gap: float) -> None:
    history = (*night(), trial(8, [rising(120, 5)], "keep", gap=gap))
    assert {one.number for one, _ in trusted_runs(history)} == set(range(7))
    assert first_due(Forecast(), history, rising(10, seed=99)) is None  # there is nobody to compare it with


def test_what_runs_of_one_program_differ_by_is_no_reason_for_mistrust() -> None:
    """Three runs of the baseline, 20 apart; every report but one is exact."""
    curves = [rising(end, noise=0.0) for end in (40.0, 60.0, 80.0)]
    history = (trial(0, curves, "keep", gap=0), *(trial(n, [rising(50.0 + n)], gap=0) for n in range(1, 5)))
    near, far = trial(5, [rising(50)], gap=35.0), trial(6, [rising(50)], gap=45.0)
    assert {one.number for one, _ in trusted_runs((*history, near, far))} == {0, 1, 2, 3, 4, 5}


@pytest.mark.parametrize(("digits", "believed"), [(2, {0, 1, 2, 3}), (9, set())])
def test_a_judge_that_rounds_its_scores_makes_no_report_distrusted(digits: int, believed: set[int]) -> None:
    """One run of the baseline, so nothing is known of the noise between runs."""
    ends = (1.23456789123, 1.4142135623, 1.7320508075, 2.2360679774)
    history = tuple(trial(n, [rising(end, noise=0.0)]) for n, end in enumerate(ends))
    rounded = tuple(
        dataclasses.replace(one, score=Score.of([round(end, digits) + 10.0**-digits * (digits == 9)], True))
        for one, end in zip(history, ends, strict=True)
    )
    assert {one.number for one, _ in trusted_runs(rounded)} == believed
    assert not trusted_runs(rounded[:2]) or digits == 9, "two scores may have few digits by chance"


def test_trust_needs_a_finished_run_with_a_score_and_a_curve_and_reruns_count() -> None:
    one = trial(0, [rising(60)], "keep")
    (run,) = one.runs
    crashed = dataclasses.replace(run, status="crash")
    assert not trusted_runs((dataclasses.replace(one, score=Score.missing("no", higher_is_better=True)),))
    assert not trusted_runs((dataclasses.replace(one, runs=(crashed,)),))
    assert not trusted_runs((dataclasses.replace(one, runs=(dataclasses.replace(run, curve=(None,) * 20),)),))
    assert not trusted_runs((dataclasses.replace(one, runs=(dataclasses.replace(run, reported=None, curve=()),)),))
    again = ran(50, rising(61, 3))
    rerun = Rerun(0, again, judged(again, GAP, higher_is_better=True))
    later = dataclasses.replace(trial(1, [rising(40)]), reruns=(rerun,))
    assert [(of.number, run.seed) for of, run in trusted_runs((one, later))] == [(0, 0), (1, 1), (0, 50)]


@pytest.mark.parametrize("seed", range(5))
def test_a_slowly_rising_winner_is_not_cancelled_by_its_forecast(seed: int) -> None:
    """A straight line to 130 against a champion that was at 98 by half of its budget."""
    rng = np.random.default_rng(seed)
    line = tuple(float(value) for value in 130 * TIMES + 0.5 * rng.standard_normal(TWENTIETHS))
    for length in range(6, 14):  # now it is far behind
        assert (line[length - 1] or 0) < (night()[2].runs[0].curve[length - 1] or 0)
    assert first_due(Forecast(), night(), line) is None


def test_where_the_champion_itself_rose_late_another_one_may() -> None:
    late = tuple(float(value) for value in 100 / (1 + np.exp(-(TIMES - 0.7) / 0.05)))
    history = (trial(0, [rising(20)], "keep"), trial(1, [late], "keep"))
    assert all(first_due(Forecast(), history, tuple(v * share for v in late)) is None for share in (1.0, 1.1))
    due = first_due(Forecast(), history, (0.1,) * TWENTIETHS)
    assert due is not None and due > 14


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_forecast_finds_where_a_power_law_ends(noise: float) -> None:
    rng = np.random.default_rng(4)
    curve = tuple(100 - 10 * TIMES**-0.7 + noise * rng.standard_normal(TWENTIETHS))
    found = forecast(curve[:10])
    assert found is not None
    assert abs(found.mean - 90) < max(2 * found.sd, 0.5)
    assert found.sd < 3
    mirror = forecast(mirrored(curve[:10]), sign=-1)
    assert mirror == found


def test_a_forecast_is_wide_where_reports_are_noisy_or_few_and_none_below_five() -> None:
    clear, noisy = (forecast(rising(100, 3, noise=noise)[:8]) for noise in (0.1, 20.0))
    early, later = (forecast(rising(100, 3, noise=2.0)[:length]) for length in (6, 14))
    assert clear and noisy and early and later
    assert clear.sd < 5 < noisy.sd
    assert later.sd < early.sd
    assert forecast((None,) * 10 + rising(100)[:4]) is None
    assert forecast((None,) * 10 + rising(100)[:5]) is not None


def test_a_forecast_ends_nothing_before_a_third_of_the_budget_or_so() -> None:
    assert first_due(Forecast(), night(), rising(1, noise=0.01)) == 6
    assert first_due(Forecast(after=0.5), night(), rising(1, noise=0.01)) == 10
    with pytest.raises(ValidationError):
        Forecast(after=0.2)


@pytest.mark.parametrize("kind", PRUNERS)
def test_a_pruner_waits_for_its_warmup(kind: Any) -> None:
    due = first_due(Pruner(kind=kind), night(), rising(-50))
    assert due is not None and due >= 6
    assert due % 6 == 0  # with a reduction by 3, the rungs of a ladder are 6 and 18


def test_a_median_pruner_waits_for_runs_that_finished() -> None:
    history, curve = night(), rising(10, seed=99)
    assert first_due(Pruner(startup=9), history, curve) == 6
    assert first_due(Pruner(startup=10), history, curve) is None
    (*others, last) = history
    assert last.verdict.kind == "cancelled"
    assert first_due(Pruner(startup=9), tuple(others), curve) == 6


def test_a_percentile_pruner_lets_the_given_part_go_on() -> None:
    curve = rising(85, noise=0.0)
    assert first_due(Pruner(kind="percentile", percentile=90), night(), curve) is None
    assert first_due(Pruner(kind="percentile", percentile=10), night(), curve) == 6


def test_a_cancelled_run_does_not_compete_on_a_ladder() -> None:
    """Nobody has seen whether what it boasted of was true."""
    history = (trial(0, [rising(60, noise=0.0)], "keep"), cancelled(1, rising(900, noise=0.0)[:6]))
    middling = rising(80, noise=0.0)
    assert first_due(Pruner(kind="successive_halving"), history, middling) is None


def points(*progress: float) -> History:
    """A search of parameters: a baseline and points with so much progress at 40 %, whose reports hold."""
    history: History = ()
    for number, value in enumerate((50.0, *progress)):
        trial = tried(
            history, value + 100, value + 100, kind="keep" if number == 0 else "discard", reported=value + 100
        )
        curve = (None,) * 7 + (value,) + (value + 50,) * 11
        runs = tuple(replace(run, curve=curve) for run in trial.runs)
        history += (replace(trial, runs=runs),)
    return history


def test_of_points_the_best_by_progress_go_on() -> None:
    look = ByCurve().look
    history = points(10.0, 20.0, 30.0, 40.0)
    assert look(history, (None,) * 7 + (35.0,), True) is None, "one in four was further"
    assert "only the best 40% go on" in str(look(history, (None,) * 7 + (15.0,), True))
    assert look(points(30.0, 40.0), (None,) * 7 + (15.0,), True) is None, "the first points all go on"


def test_edits_are_compared_with_the_champion_and_not_with_each_other() -> None:
    history = points(80.0, 90.0, 85.0, 95.0)
    edited = replace(history[1], proposal=replace(history[1].proposal, edit="+a line"))
    curve = (None,) * 7 + (60.0,)
    assert ByCurve().look(history, curve, True) is not None
    assert ByCurve().look((history[0], edited, *history[2:]), curve, True) is None, "it is ahead of the champion"

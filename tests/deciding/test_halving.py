"""Short budgets first: which trial comes next, as a function of the history."""

from __future__ import annotations

import random

import pytest

from environments.score import Score
from tasks.deciding.halving import Rung, next_rung, promotions, short_ones, standing, unpromoted
from tasks.trial import History, Proposal, Run, Trial, Verdict, budgets_used

SHARE = 0.3


def baseline() -> Trial:
    return trial((), 50.0, kind="keep")


def trial(
    history: History,
    value: float | None,
    share: float = 1.0,
    promotes: int | None = None,
    edit: str | None = None,
    kind: str = "discard",
    higher: bool = True,
) -> Trial:
    """The trial after `history`."""
    number = len(history)
    proposal = Proposal({"x": number}, edit, share=share, promotes=promotes)
    score = Score(value, n=1, higher_is_better=higher) if value is not None else Score.missing("no", higher)
    run = Run(f"trials/{number:04d}", number, 1.0, "finished")
    return Trial(number, 1, number, proposal, (run,), score, Verdict(kind, "as a test says"))  # type: ignore[arg-type]


def shorts(*values: float | None, history: History = (), **facts: object) -> History:
    history = history or (baseline(),)
    for value in values:
        history += (trial(history, value, SHARE, **facts),)  # type: ignore[arg-type]
    return history


def test_points_run_short_until_there_are_enough_to_promote_the_best_of_them() -> None:
    history = shorts(1, 9, 3, 4)
    assert next_rung(history, SHARE, each=5) == Rung(SHARE)
    history = shorts(5, history=history)
    assert next_rung(history, SHARE, each=5) == Rung(promotes=2)
    history += (trial(history, 40.0, promotes=2),)
    assert next_rung(history, SHARE, each=5) == Rung(SHARE), "one of five, and it was taken"
    history = shorts(2, 2, 2, 2, 2, history=history)
    assert next_rung(history, SHARE, each=5) == Rung(promotes=5), "the best of the rest"


def test_a_point_is_promoted_once_even_if_its_full_run_crashed_or_is_under_way() -> None:
    history = shorts(1, 9, 3, 4, 5)
    crashed = (*history, trial(history, None, promotes=2, kind="crash"))
    assert next_rung(crashed, SHARE, each=5) == Rung(SHARE)
    under_way = {6: Proposal({"x": 2}, promotes=2)}
    assert next_rung(history, SHARE, under_way) == Rung(SHARE)
    assert [one.number for one in unpromoted(history, under_way.values())] == [5, 4, 3, 1]


def test_lower_is_better_where_the_environment_says_so() -> None:
    history = shorts(1, 9, 3, 4, 5, higher=False)
    assert next_rung(history, SHARE, each=5) == Rung(promotes=1)


def test_of_equal_scores_the_earlier_is_promoted_and_a_crash_never() -> None:
    assert next_rung(shorts(None, 4, 4, 4, None), SHARE, each=5) == Rung(promotes=2)
    assert next_rung(shorts(*[None] * 5), SHARE, each=5) == Rung(SHARE), "there is nothing to promote"


def test_points_of_a_program_that_is_no_longer_the_champions_are_not_promoted() -> None:
    history = shorts(9, 9, 9, 9, 9)
    history += (trial(history, 80.0, edit="+better", kind="keep"),)
    assert next_rung(history, SHARE, each=5) == Rung(SHARE)
    history = shorts(1, 2, 3, 4, 5, history=history, edit="+better")
    assert next_rung(history, SHARE, each=5) == Rung(promotes=11)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("trials", [1, 2, 6, 20])
def test_the_last_budget_is_never_spent_on_a_point_that_cannot_be_promoted(share: float, trials: int) -> None:
    history: History = (baseline(),)
    draws = random.Random(trials)
    while (left := trials - budgets_used(history)) >= 1 - 1e-6:
        rung = next_rung(history, share, left=left)
        history += (trial(history, draws.random(), rung.share, rung.promotes),)
        if rung.share < 1:
            assert trials - budgets_used(history) >= 1 - 1e-6, "a full run still fits"
    assert budgets_used(history) <= trials + 1e-6
    full = [one for one in history if one.number and not one.proposal.is_short]
    assert full and history[-1] in full
    taken = [one.proposal.promotes for one in full if one.proposal.promotes is not None]
    assert len(taken) == len({*taken})


def test_what_is_under_way_counts_as_spent() -> None:
    history = shorts(1, 2)
    under_way = {number: Proposal({"x": number}, share=SHARE) for number in (3, 4)}
    assert next_rung(history, SHARE, each=5, left=1.9) == Rung(SHARE)
    assert next_rung(history, SHARE, under_way, left=1.7) == Rung(promotes=2)


def test_the_baseline_under_way_is_none_of_the_trials_that_take_budgets() -> None:
    assert next_rung((), SHARE, {0: Proposal({"x": 0})}, left=1 + SHARE) == Rung(SHARE)


def test_without_a_short_budget_every_trial_runs_in_full() -> None:
    assert next_rung(shorts(1, 2, 3, 4, 5), 1.0) == Rung()


def test_other_ratios_may_be_asked_for() -> None:
    assert next_rung(shorts(1, 2), SHARE, each=2) == Rung(promotes=2)
    assert [short_ones(share) for share in (0.1, 0.3, 0.5, 0.9)] == [30, 10, 6, 3]


def test_the_standing_of_a_short_trial_is_among_short_ones_of_the_same_program() -> None:
    history = shorts(1, 9, 3)
    history += (trial(history, 0.0),)
    now = trial(history, 5.0, SHARE)
    assert standing(history, now.proposal, now.score) == (2, 4)
    assert promotions(history).get(2) is None
    history += (trial(history, 7.0, promotes=2),)
    assert promotions(history)[2] is history[-1]

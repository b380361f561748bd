"""Which of the baseline's runs of the search count in a certificate."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tasks.certifying.reuse import Reuse, Searched, drift, reuse, searched
from tasks.trial import Rerun, Run
from tests.support.histories import scored, tried


def run(steps: int | None = 1000, machine: str = "a") -> Run:
    return Run("", 1, 1.0, "finished", steps=steps, machine=machine)


def before(*values: float, steps: int | None = 1000, machine: str = "a") -> list[Searched]:
    return [Searched(run(steps, machine), scored(value)) for value in values]


FRESH = [(run(1010), scored(10.5)), (run(1030), scored(9.0))]


def test_runs_of_the_search_count_where_the_same_budget_makes_as_many_steps() -> None:
    found = reuse(before(9.0, 10.0, 11.0), FRESH)
    assert [one.score.value for one in found.counted] == [9.0, 10.0, 11.0]
    assert found == Reuse(found.counted, (), "")


@pytest.mark.parametrize(
    ("search", "fresh", "why"),
    [
        (before(9.0, 10.0, 11.0), [(run(1100), scored(10.0))] * 2, "10% more steps"),
        (before(9.0, 10.0, 11.0), [(run(900), scored(10.0))] * 2, "10% fewer steps"),
        (before(9.0, 10.0, 11.0, steps=None), FRESH, "report no steps"),
        (before(9.0, 10.0, 11.0), [(run(None), scored(10.0)), *FRESH], "report no steps"),
        (before(9.0, 10.0, 11.0, machine="b"), FRESH, "several machines"),
        (before(9.0, 10.0, 11.0), [(run(), scored(14.0)), (run(), scored(15.0))], "scores better than in the search"),
    ],
)
def test_where_something_drifted_or_could_have_only_the_spread_counts(
    search: list[Searched], fresh: list[tuple[Run, object]], why: str
) -> None:
    found = reuse(search, fresh)  # type: ignore[arg-type]
    assert not found.counted and why in found.refused
    assert found.spread == ((9.0, 10.0, 11.0),)


def test_a_baseline_that_now_scores_worse_counts_with_its_better_runs() -> None:
    """Leaving these out would favour the champion."""
    assert (
        drift([(one.run, one.score) for one in before(9.0, 10.0, 11.0)], [(run(), scored(1.0)), (run(), scored(2.0))])
        == ""
    )


def test_questions_of_another_pool_never_count() -> None:
    found = reuse(before(9.0, 10.0, 11.0), FRESH, apart="other questions")
    assert (found.counted, found.refused) == ((), "other questions")


def test_at_most_the_first_three_runs_count_and_those_from_before_the_campaign_tell_the_spread() -> None:
    calibrated = [replace(one, spread_only=True) for one in before(7.0, 8.0)]
    found = reuse([*calibrated, *before(9.0, 10.0, 11.0, 12.0)], FRESH)
    assert [one.score.value for one in found.counted] == [9.0, 10.0, 11.0]
    assert found.spread == ((7.0, 8.0),), "a single run has no spread"
    assert reuse((), FRESH) == Reuse()


def test_the_runs_of_the_search_are_those_of_the_baseline_that_have_a_score() -> None:
    first = tried((), 1.0, 2.0, 3.0)
    again = replace(tried((first,), 5.0), reruns=(Rerun(0, run(), scored(4.0)), Rerun(1, run(), scored(6.0))))
    found = searched((first, again))
    assert [(one.score.value, one.spread_only) for one in found] == [
        (1.0, False),
        (2.0, False),
        (3.0, False),
        (4.0, True),
    ]
    assert searched(()) == searched((tried((), None),)) == ()

"""Designs of certificates: their groups, their levels, and the order of the runs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.certificate_levels import last_levels, simulated
from tasks.certifying.certificate import compare
from tasks.certifying.group_design import (
    ALPHA,
    RUNS,
    Design,
    Groups,
    alpha_of,
    design_of,
    equal_arms,
    in_groups,
    of_groups,
    order,
)
from tasks.certifying.group_levels import LEVELS
from tasks.certifying.reuse import Searched, reuse
from tasks.trial import Run
from tests.support.histories import scored


@pytest.mark.parametrize("runs", [2, 3, 5])
def test_both_arms_run_equally_often_in_blocks_of_one_each(runs: int) -> None:
    found = order(runs, seed=3)
    assert [number for _, number in found] == [number for number in range(1, runs + 1) for _ in "ab"]
    blocks = [found[2 * block : 2 * block + 2] for block in range(runs)]
    assert all({arm for arm, _ in block} == {"champion", "baseline"} for block in blocks)


def test_who_runs_first_is_drawn_for_every_block_and_is_the_same_for_the_same_seed() -> None:
    assert order(5, seed=3) == order(5, seed=3)
    first = [order(5, seed)[2 * block][0] for seed in range(200) for block in range(5)]
    assert 0.4 < first.count("champion") / len(first) < 0.6
    assert len({order(5, seed) for seed in range(200)}) > 25


def test_one_look_has_the_whole_error_rate_and_there_is_no_second() -> None:
    assert [alpha_of(look, "one") for look in (1, 2, 3)] == [ALPHA, 0.0, 0.0]


def test_several_looks_share_the_error_rate_however_many_there_are() -> None:
    shares = [alpha_of(look, "several") for look in range(1, 60)]
    assert shares[:3] == [ALPHA / 2, ALPHA / 4, ALPHA / 8]
    assert math.fsum(shares) <= ALPHA


def test_longer_searches_get_more_runs_and_where_nothing_is_random_two_are_enough() -> None:
    found = {trials: design_of(trials).runs for trials in (0, 11, 12, 29, 30, 5000)}
    assert found == {0: 8, 11: 8, 12: 14, 29: 14, 30: 25, 5000: 25}
    assert all(design_of(trials, edits=True).runs < runs for trials, runs in found.items()), "an edit frees time"
    assert {design_of(trials, deterministic=True) for trials in found} == {Design(((2, 2),), (ALPHA,))}
    assert all(champion == baseline for champion, baseline in design_of(40, searched=False).groups), (
        "without the baseline's spread from the search its arm is no smaller"
    )


@pytest.mark.parametrize("runs", [2, 3, 4, 5, 6, 7, 13, 40, 100])
def test_two_equal_arms_have_up_to_three_looks_of_which_the_last_has_all_runs(runs: int) -> None:
    groups = equal_arms(runs)
    assert 1 <= len(groups) <= 3 and groups[-1] == (runs, runs)
    assert all(champion == baseline >= min(runs, 3) for champion, baseline in groups)
    assert groups == tuple(sorted(set(groups)))


@pytest.mark.parametrize("groups", [*(groups for _, groups in RUNS), equal_arms(3), equal_arms(14), equal_arms(77)])
def test_early_looks_take_less_and_no_look_more_than_the_whole_error(groups: Groups) -> None:
    for alpha in (ALPHA, ALPHA / 2, ALPHA / 8, ALPHA / 64, 0.03):
        levels = of_groups(groups, alpha).levels
        assert list(levels) == sorted(levels)
        assert 0 < levels[-1] <= alpha
        assert alpha <= sum(levels) * (5 if alpha >= ALPHA / 8 else 6), "beyond the table levels fall faster"
    assert of_groups(groups, 0.0).levels == (0.0,) * len(groups)


def test_every_run_of_a_group_is_made_once_in_an_order_that_is_drawn() -> None:
    groups = ((3, 2), (5, 3))
    first, second = in_groups(groups, seed=4)
    assert sorted(first) == [("baseline", 1), ("baseline", 2), ("champion", 1), ("champion", 2), ("champion", 3)]
    assert sorted(second) == [("baseline", 3), ("champion", 4), ("champion", 5)]
    assert len({next(in_groups(groups, seed)) for seed in range(40)}) > 8
    assert tuple(in_groups(((4, 3),), 1, before=(3, 2))) in (
        ((("champion", 4), ("baseline", 3)),), ((("baseline", 3), ("champion", 4)),),
    )  # fmt: skip


def test_what_runs_one_after_another_waits_for_the_end_of_each_group() -> None:
    design = of_groups(((3, 2), (5, 3)))
    assert [design.in_turn(parallel) for parallel in (1, 2, 4, 8)] == [8, 5, 3, 2]


def test_levels_are_those_of_the_benchmark() -> None:
    for groups in (RUNS[-1][1], equal_arms(3)):
        found = last_levels(groups, rows=10_000, seed=5)
        assert found[:2] == pytest.approx(LEVELS[groups][:2], rel=0.2)


def test_the_benchmark_tests_as_certificates_do() -> None:
    groups, draw = RUNS[0][1], np.random.default_rng(1)
    mine, theirs, search = draw.normal(0, 2, (40, 10)), draw.normal(0, 1, (40, 8)), draw.normal(0, 1, (40, 3))
    for use, steps in (("counted", 100), ("spread", None)):
        expected = simulated(groups, mine, theirs, search, use).p  # type: ignore[arg-type]
        for row in range(40):
            run = Run("", 1, 1.0, "finished", steps=steps)
            before = [Searched(run, scored(value, error=None)) for value in search[row]]
            for look, (champion, baseline) in enumerate(groups):
                now = [scored(value, error=None) for value in mine[row, :champion]]
                then = [scored(value, error=None) for value in theirs[row, :baseline]]
                again = reuse(before, [(run, score) for score in then])
                found = compare(now, then, again, before)
                assert found.p == pytest.approx(expected[row, look])

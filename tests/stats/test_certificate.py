"""The certificate: how fresh runs are laid out, and what they prove of a champion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from environments.score import Guard, Score
from tasks.stats.certificate import Certificate, Fresh, conclude, drift, level
from tasks.stats.design import ALPHA, Arm, alpha_of, design_of, equal_arms, new_runs, of_groups
from tasks.stats.permutation import compare
from tasks.trial import Run
from tests.support.histories import certified, scored, tried

BETTER, WORSE = (110.0, 120.0, 104.0), (80.0, 91.0, 77.0)


def fresh(mine: Sequence[Score], theirs: Sequence[Score]) -> tuple[Fresh, ...]:
    """The runs of both arms with these scores."""
    arms: dict[Arm, Sequence[Score]] = {"champion": mine, "baseline": theirs}
    run = Run("certificates/1", 7, 5.0, "finished", steps=100)
    return tuple(Fresh(run, score, arm) for arm, scores in arms.items() for score in scores)


def scores(values: Sequence[float | None], up: bool = True, **also: Sequence[float]) -> list[Score]:
    """Scores with what the judge measured besides, by metric."""
    return [
        replace(scored(value, up), also={name: more[index] for name, more in also.items()})
        for index, value in enumerate(values)
    ]


def concluded(
    mine: Sequence[Score],
    theirs: Sequence[Score],
    guards: Mapping[str, Guard] | None = None,
    alpha: float = ALPHA,
    **more: Any,
) -> Certificate:
    design = of_groups(((len(mine), len(theirs)),), alpha)
    return conclude(1, alpha, 7, "quad", fresh(mine, theirs), design, guards=guards, **more)


RUNS = fresh(scores(BETTER), scores(WORSE))


@pytest.mark.parametrize("up", [True, False])
def test_a_champion_that_is_clearly_better_on_fresh_runs_passes(up: bool) -> None:
    mine, theirs = (BETTER, WORSE) if up else (WORSE, BETTER)
    found = concluded(scores(mine, up), scores(theirs, up))
    assert found.passed and found.comparison is not None
    assert found.comparison.gain == pytest.approx(np.mean(BETTER) - np.mean(WORSE)), "in utility"
    assert found.comparison.p == pytest.approx(1 / 20), "the best of all ways to share six runs out"
    assert found.reason.startswith("p = ") and found.reason.endswith(" at 0.05")
    assert (found.mean("champion"), found.mean("baseline")) == (np.mean(mine), np.mean(theirs))
    assert (found.look, found.champion, found.environment, found.alpha) == (1, 7, "quad", ALPHA)


@pytest.mark.parametrize("up", [True, False])
@pytest.mark.parametrize(
    ("gain", "words"),
    [(4.0, "on fresh runs the gain could be luck: p = 0."), (-4.0, "no better than the baseline"), (0.0, "no better")],
)  # fmt: skip
def test_what_could_be_luck_does_not_pass(up: bool, gain: float, words: str) -> None:
    sign = 1 if up else -1
    mine = [sign * (value + gain) for value in WORSE]
    found = concluded(scores(mine, up), scores([sign * value for value in WORSE], up))
    assert not found.passed and words in found.reason
    assert found.comparison is not None and found.comparison.gain == pytest.approx(gain)


def test_a_champion_whose_fresh_run_crashes_does_not_pass_however_good_the_others_are() -> None:
    found = concluded(scores([500.0, None, 510.0]), scores(WORSE))
    assert not found.passed and found.comparison is None
    assert found.reason == "1 of 3 fresh runs of the champion crashed: exited with status 3"


def test_a_baseline_that_crashes_once_is_compared_by_its_other_runs() -> None:
    found = concluded(scores(BETTER), scores([None, *WORSE]))
    assert found.comparison == concluded(scores(BETTER), scores(WORSE)).comparison
    assert found.passed and len(found.scores("baseline")) == 4
    assert found.mean("baseline") == pytest.approx(np.mean(WORSE))


@pytest.mark.parametrize("theirs", [(None, None, None), (80.0, None, None)])
def test_a_baseline_with_fewer_than_two_scores_is_nothing_to_compare_with(theirs: tuple[float | None, ...]) -> None:
    found = concluded(scores(BETTER), scores(theirs))
    assert not found.passed and found.comparison is None
    left = sum(value is not None for value in theirs)
    assert found.reason == f"{left} of 3 runs of the baseline have a score: there is nothing to compare with"


def test_without_any_noise_nothing_is_certified_unless_the_environment_says_so() -> None:
    mine, theirs = ([scored(value, error=0.0)] * 4 for value in (-199.2, -200.0))
    found = concluded(mine, theirs)
    assert not found.passed and "deterministic = true" in found.reason
    assert concluded(mine, theirs, deterministic=True).passed


def test_runs_that_are_no_runs_of_their_own_prove_nothing() -> None:
    found = concluded(scores(BETTER), scores(WORSE), same_play="ignores its seed")
    assert (found.passed, found.another, found.reason) == (False, False, "ignores its seed")


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
@pytest.mark.parametrize(
    ("kept", "had"), [((51.0, 53.0, 49.0), (50.0, 54.0, 52.0)), ((40.0, 41.0, 42.0), (50.0, 51.0, 53.0))]
)
def test_a_guarded_metric_is_bounded_by_what_it_may_have_lost_with_confidence(
    direction: Any, kept: tuple[float, ...], had: tuple[float, ...]
) -> None:
    sign = 1 if direction == "maximize" else -1
    mine, theirs = [sign * value for value in kept], [sign * value for value in had]
    low = compare([(kept, had)], [ALPHA]).low
    most = -low
    for margin, holds in ((most + 0.01, True), (most - 0.01, False)):
        if margin < 0:
            continue
        guard = Guard(margin=margin, direction=direction)
        found = concluded(scores(BETTER, calm=mine), scores(WORSE, calm=theirs), {"calm": guard})
        (held,) = found.guards
        assert (held.metric, held.margin) == ("calm", margin)
        assert held.loss == pytest.approx(np.mean(had) - np.mean(kept))
        assert held.bound == pytest.approx(most)
        assert held.holds is holds and found.passed is holds
        assert holds or found.reason.startswith(f"calm may have become worse by {held.bound:.4g}")


def test_a_keep_is_certified_by_a_passed_certificate_of_its_own() -> None:
    first = tried((), 80.0, 82.0, 79.0)
    second = tried((first,), 110.0)
    passed, failed = certified(1, BETTER, WORSE), certified(1, WORSE, BETTER)
    assert passed.passed and not failed.passed
    assert level(second, [passed]) == "certified"
    assert level(second, [failed, passed]) == "certified"
    assert level(second, [failed]) == level(second, []) == "provisional"
    assert level(second, [replace(passed, champion=2)]) == "provisional", "another trial's"
    assert level(tried((first,), 60.0), [passed]) is None, "it was not kept"


DESIGN = of_groups(((3, 5), (5, 6)))


def looked(mine: Sequence[float | None], theirs: Sequence[float | None], **more: Any) -> Certificate:
    return conclude(1, ALPHA, 7, "quad", fresh(scores(mine), scores(theirs)), DESIGN, **{"search": search(), **more})


def test_a_clear_success_ends_a_certificate_at_its_first_look() -> None:
    found = looked((110.0, 112.0, 109.0), (80.0, 82.0))
    assert found.passed and not found.another
    assert found.level == DESIGN.levels[0] and found.design.groups[-1] == (5, 6)
    assert found.bounds is not None and found.bounds[0] > 0
    assert found.mean("baseline") == pytest.approx(81.0) and len(found.reused) == 3


def test_what_is_open_asks_for_more_runs_and_what_is_hopeless_does_not() -> None:
    assert looked((90.0, 95.0, 79.0), (80.0, 88.0)).another
    lost = looked((70.0, 75.0, 79.0), (80.0, 88.0))
    assert not lost.another and not lost.passed and "no better" in lost.reason
    last = looked((90.0, 95.0, 79.0, 81.0, 84.0), (80.0, 88.0, 86.0))
    assert not last.another and not last.passed


def test_a_guard_that_is_not_yet_known_to_hold_asks_for_more_runs() -> None:
    guards = {"calm": Guard(margin=1.0)}
    still = [replace(one, score=replace(one.score, also={"calm": 5.0})) for one in search()]
    runs = fresh(scores((110.0, 112.0, 109.0), calm=(5.0, 9.0, 1.0)), scores((80.0, 82.0), calm=(5.0, 6.0)))
    found = conclude(1, ALPHA, 7, "quad", runs, DESIGN, guards=guards, search=still)
    assert not found.passed and found.another and found.reason.startswith("calm may have become worse")


def search(*values: float, steps: int | None = 100, machine: str = "") -> list[Fresh]:
    run = Run("trials/0000", 1, 5.0, "finished", steps=steps, machine=machine)
    return [Fresh(run, scored(value)) for value in values or (79.0, 81.0, 83.0)]


@pytest.mark.parametrize(
    ("before", "words"),
    [
        (search(), ""),
        (search(steps=104), ""),
        (search(steps=90), "more steps in the same budget"),
        (search(steps=None), "they report no steps"),
        (search(machine="another"), "several machines"),
    ],
)
def test_the_searchs_runs_count_unless_the_machine_trains_further_by_now(before: list[Fresh], words: str) -> None:
    """A slower machine favours the earlier runs of the baseline, which can only make the test stricter."""
    runs = [replace(one, run=replace(one.run, machine="one" if "several" in words else "")) for one in RUNS]
    found = drift(before, runs)
    assert words in found and bool(words) == bool(found)
    assert "several" in words or drift(before, runs, by_time=False) == ""
    assert drift(before, [replace(one, run=replace(one.run, status="crash")) for one in runs])


def from_machines(mine: str, theirs: str) -> Certificate:
    """The certificate of runs that prove a gain, a letter for the machine of each; a space where it was not recorded."""
    runs = fresh(scores([110.0, 112.0, 109.0]), scores([80.0, 82.0, 81.0]))
    named = (
        replace(one, run=replace(one.run, machine=at.strip())) for one, at in zip(runs, mine + theirs, strict=True)
    )
    return conclude(1, ALPHA, 7, "quad", (*named,), of_groups(((3, 3),)))


@pytest.mark.parametrize(("mine", "theirs"), [("aaa", "bbb"), ("aab", "aaa"), ("aab", "baa"), ("a  ", "b  ")])
def test_runs_of_several_kinds_of_machine_prove_nothing(mine: str, theirs: str) -> None:
    found = from_machines(mine, theirs)
    assert not found.passed and not found.another and found.comparison is None
    assert found.machines == ("a", "b") and "kinds of machine (a, b)" in found.reason


def test_the_error_of_a_guard_is_that_of_all_looks_together() -> None:
    """More runs go on with what was spent on the first: the bound is that of the same test, not of a new one."""
    design = of_groups(((4, 2),), 0.001).after(((4, 5),), (0.048,))
    mine, theirs = (5.0, 6.0, 4.0, 5.5, 5.2, 4.8, 6.1, 5.9), (5.1, 4.9, 5.6, 5.3, 4.7, 5.4, 5.8)
    runs = fresh(scores([110.0] * 7 + [111.0], calm=mine), scores([80.0] * 6 + [81.0], calm=theirs))
    (held,) = conclude(2, 0.001, 7, "quad", runs, design, guards={"calm": Guard(margin=1.0)}).guards
    low = compare([(mine[:4], theirs[:5]), (mine[4:], theirs[5:])], design.levels).low
    assert low is not None and held.bound == pytest.approx(-low)
    alone = compare([(mine, theirs)], [ALPHA]).low
    assert alone is not None and -low > -alone, "it is wider than that of a single look at all of them"


# Designs: their groups, and the error that each may spend.


def test_certificates_share_the_error_and_there_is_always_a_next() -> None:
    spent: list[float] = []
    for _ in range(10):
        spent.append(alpha_of(spent))
    assert sum(spent) < ALPHA and all(spent)
    assert spent[0] == pytest.approx(0.048)


def test_longer_searches_get_more_runs_and_where_nothing_is_random_two_may_be_enough() -> None:
    found = {trials: design_of(trials).runs for trials in (1, 20, 35, 36, 5000)}
    assert found == {1: 9, 20: 9, 35: 9, 36: 15, 5000: 15}
    assert design_of(5000, runs=40).runs == 9, "there is time for few"
    assert design_of(20, deterministic=True).groups[0] == (2, 2)
    for alpha in (ALPHA, 0.006, 0.001, 0.0005, 0.00025, 0.0001):
        for deterministic in (False, True):
            design = design_of(20, deterministic, alpha)
            apart = [([1.0 + n for n in range(c)], [-1.0 - n for n in range(b)]) for c, b in new_runs(design.groups)]
            assert compare(apart, design.levels).p <= alpha, "it could not pass"


@pytest.mark.parametrize("groups", [design_of(40).groups, equal_arms(3), equal_arms(14), equal_arms(77)])
def test_early_looks_take_less_and_all_together_the_whole_error(groups: tuple[tuple[int, int], ...]) -> None:
    for alpha in (ALPHA, ALPHA / 8, 0.0):
        levels = of_groups(groups, alpha).levels
        assert list(levels) == sorted(levels) and levels[-1] == alpha


def test_more_runs_go_on_with_what_was_spent_on_the_first() -> None:
    first, more = of_groups(((4, 5),), 0.048), of_groups(((4, 2),), 0.001)
    both = more.after(first.groups, first.levels)
    assert both.groups == ((4, 5), (8, 7)) and both.levels == pytest.approx((0.048, 0.049))


def test_the_smallest_gain_that_is_told_is_one_that_the_certificate_shows() -> None:
    design, rng = design_of(20), np.random.default_rng(0)
    gain = design.smallest_gain(sd=2.0, power=0.8)
    nights = [(rng.normal(gain, 2, design.champion), rng.normal(0, 2, design.baseline)) for _ in range(1000)]
    passed = sum(compare([(mine.tolist(), theirs.tolist())], [0.05]).p <= 0.05 for mine, theirs in nights) / 1000
    assert abs(passed - 0.8) < 0.12, "few runs show a little less than the normal approximation says"

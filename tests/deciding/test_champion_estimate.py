"""The running estimate of the champion's level: on simulated campaigns whose truth is known."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pytest

from environments.score import LARGEST
from tasks.deciding.champion_estimate import champion_estimate, reference, utility
from tasks.deciding.level_filter import EffectEstimate, Estimate, Observation, estimate
from tasks.trial import History
from tests.support.histories import scored, tried

BASELINE = (80.0, 95.0, 71.0)


@dataclass(frozen=True)
class Night:
    """A search that keeps what is expected to be better, and what is true of it."""

    found: Estimate
    truth: float
    """The champion's true level."""
    own: float
    """The score that it was kept for."""


def night(trials: int, seed: int, sd: float = 10.0, gain: float = 8.0, baseline: float = 50.0) -> Night:
    """One in eight ideas gains Exp(gain), half of them lose twice that, the rest do nothing."""
    draw, truth = random.Random(seed), baseline
    values = tuple(draw.gauss(truth, sd) for _ in range(3))
    seen: tuple[Observation, ...] = ()
    own = sum(values) / 3
    for _ in range(trials):
        kind = draw.random()
        effect = draw.expovariate(1 / gain) if kind < 0.125 else 0.0
        effect = -draw.expovariate(1 / (2 * gain)) if kind > 0.5 else effect
        score = draw.gauss(truth + effect, sd)
        kept = estimate(values, seen).idea(score).effect > 0
        seen += (Observation("kept" if kept else "left", score),)
        if kept:
            truth, own = truth + effect, score
    return Night(estimate(values, seen), truth, own)


@pytest.mark.parametrize("kind", ["same", "kept", "left", "record"])
@pytest.mark.parametrize("value", [LARGEST, -LARGEST])
@pytest.mark.parametrize("first", [BASELINE, (1e-6, 1.1e-6, 0.9e-6), (0.0, 0.0, 0.0)])
@pytest.mark.parametrize("left", [90.0, 0.0])
def test_the_largest_score_that_a_judge_accepts_leaves_an_estimate(
    kind: Literal["same", "kept", "left", "record"], value: float, first: tuple[float, ...], left: float
) -> None:
    found = estimate(first, (Observation(kind, value), Observation("left", left), Observation("same", value)))
    assert np.isfinite([found.level, found.error, found.sd, found.idea(90.0).effect, found.worth_going_on(0.3)]).all()


def test_after_many_results_it_has_found_level_and_noise() -> None:
    nights = [night(150, seed) for seed in range(6)]
    misses = [(each.found.level - each.truth) / each.found.error for each in nights]
    assert abs(np.mean([each.found.level - each.truth for each in nights])) < 5.0, "half a run sd"
    assert max(map(abs, misses)) < 4
    assert all(7.0 < each.found.sd < 14.0 for each in nights)
    assert np.mean([each.found.level for each in nights]) > 60, "the search got somewhere"


def test_a_champions_own_score_flatters_it_and_is_not_believed() -> None:
    """Where nothing helps at all, the best of many is luck, and the level stays where it was."""
    draw = random.Random(3)
    values = tuple(draw.gauss(0, 10) for _ in range(3))
    lucky = estimate(values, [Observation("kept", 25.0), *(Observation("left", draw.gauss(0, 10)) for _ in range(40))])
    assert lucky.level < 12.0
    again = estimate(
        values,
        [Observation("kept", 25.0), Observation("same", 2.0), Observation("same", -3.0), Observation("same", 1.0)],
    )
    assert again.level < 5.0
    held = estimate(
        values,
        [Observation("kept", 25.0), Observation("same", 24.0), Observation("same", 27.0), Observation("same", 26.0)],
    )
    assert held.level > 15.0


def test_the_champion_once_more_makes_its_level_better_known() -> None:
    before = estimate(BASELINE, [])
    after = estimate(BASELINE, [Observation("same", 82.0) for _ in range(12)])
    assert after.error < before.error / 2
    assert after.level == pytest.approx(82.0, abs=1.5)


def test_a_score_that_averages_several_runs_says_more() -> None:
    one, four = (estimate(BASELINE, []).idea(110.0, runs) for runs in (1, 4))
    assert four.gains > one.gains and four.effect > one.effect > 0


def test_the_better_a_score_the_more_its_idea_is_worth_and_the_middle_is_worth_little() -> None:
    now = estimate(BASELINE, [])
    ideas = [now.idea(value) for value in np.linspace(0, 200, 41)]
    effects, gains = [idea.effect for idea in ideas], [idea.gains for idea in ideas]
    assert effects == sorted(effects) and gains == sorted(gains)
    assert now.idea(now.level - 60).effect < -20 and now.idea(now.level + 80).effect > 20
    assert abs(now.idea(now.level).effect) < now.sd
    assert all(0 <= idea.gains <= 1 and idea.promise >= 0 for idea in ideas)


STORY = (
    Observation("left", 60.0), Observation("kept", 112.0), Observation("same", 104.0), Observation("left", 109.0, 3), Observation("kept", 131.0),
    Observation("left", 20.0), Observation("same", 118.0),
)  # fmt: skip


def told(scale: float, shift: float) -> tuple[Estimate, EffectEstimate]:
    """What the same story says in another unit."""
    moved = [Observation(seen.kind, scale * seen.value + shift, seen.runs) for seen in STORY]
    found = estimate(tuple(scale * value + shift for value in BASELINE), moved)
    return found, found.idea(scale * 140.0 + shift)


@pytest.mark.parametrize(("scale", "shift"), [(1.0, -500.0), (1e4, 0.0), (1e-3, 7.0), (3.0, 40.0)])
def test_it_says_the_same_in_every_unit_and_from_every_origin(scale: float, shift: float) -> None:
    (plain, idea), (moved, other) = told(1.0, 0.0), told(scale, shift)
    assert moved.level == pytest.approx(scale * plain.level + shift)
    assert moved.error == pytest.approx(scale * plain.error)
    assert moved.sd == pytest.approx(scale * plain.sd)
    assert other.effect == pytest.approx(scale * idea.effect)
    assert other.promise == pytest.approx(scale * idea.promise)
    assert other.gains == pytest.approx(idea.gains)
    assert moved.worth_going_on(0.4) == pytest.approx(scale * plain.worth_going_on(0.4), rel=1e-3)


def campaign(sign: float) -> History:
    """A campaign of every kind of trial, its metric as it is or turned round."""
    up = sign > 0
    history: History = (tried((), *(sign * value for value in BASELINE), higher_is_better=up),)
    for values, kind in (
        ((60.0,), "discard"), ((112.0,), "keep"), ((None,), "crash"), ((90.0, 101.0), "discard"), ((131.0,), "keep"),
    ):  # fmt: skip
        turned = [None if value is None else sign * value for value in values]
        again = [(history[-1].number, sign * 104.0)] if len(history) == 3 else []
        history += (tried(history, *turned, kind=kind, reruns=again, higher_is_better=up),)  # type: ignore[arg-type]
    return history


def test_a_metric_to_minimise_is_followed_by_its_utility() -> None:
    larger, smaller = champion_estimate(campaign(1.0)), champion_estimate(campaign(-1.0))
    assert larger is not None and smaller is not None
    assert (larger.level, larger.error, larger.sd) == (smaller.level, smaller.error, smaller.sd)
    assert utility(campaign(-1.0), 0) == utility(campaign(1.0), 0) == BASELINE


def test_a_history_is_followed_as_its_results_are() -> None:
    found = champion_estimate(campaign(1.0))
    told = [
        Observation("point", 60.0), Observation("record", 112.0), Observation("same", 104.0),
        Observation("point", (90.0 + 101.0) / 2, 2, 60.5), Observation("record", 131.0),
    ]  # fmt: skip
    expected = estimate(BASELINE, told)
    assert found is not None
    assert (found.level, found.sd) == (pytest.approx(expected.level), pytest.approx(expected.sd))


def test_before_there_is_a_score_nothing_is_known() -> None:
    assert champion_estimate(()) is None and reference(()) is None
    crashed: History = (tried((), None),)
    assert champion_estimate(crashed) is None
    later = (*crashed, tried(crashed, 80.0))
    assert reference(later) is later[1], "the first with a score, where the baseline has none"
    found = champion_estimate(later)
    assert found is not None and found.level == pytest.approx(80.0)


def test_where_nothing_is_random_every_improvement_is_kept_and_nothing_else() -> None:
    values, seen, level = (2.25, 2.25), (), 2.25
    for step in (1e-3, -1e-3, 0.5, -2.0, 1e-6, 0.0, 30.0, -1e-6, 1e-3):
        now = estimate(values, seen)
        assert now.level == pytest.approx(level, abs=1e-7)
        better = now.idea(level + step).effect > 0
        assert better == (step > 0), step
        seen += (Observation("kept" if better else "left", level + step),)
        level += max(step, 0.0)


def test_a_single_first_value_works_and_its_noise_is_learned() -> None:
    draw = random.Random(5)
    found = estimate((100.0,), [])
    assert found.level == pytest.approx(100.0) and found.error > 0 and found.sd > 0
    after = estimate((100.0,), [Observation("same", draw.gauss(100, 15)) for _ in range(40)])
    assert 9 < after.sd < 20
    assert after.level == pytest.approx(100, abs=9)


@pytest.mark.parametrize("value", [0.0, -3.0, 1e-12, 1e9])
def test_a_first_value_of_any_size_works(value: float) -> None:
    found = estimate((value,), [])
    assert found.level == pytest.approx(value) and found.sd > 0
    assert found.idea(value + 1 + abs(value)).effect > 0 > found.idea(value - 1 - abs(value)).effect


def test_the_noise_of_equal_first_runs_is_learned_from_later_ones() -> None:
    """A score that has an end: the baseline is at it three times, and later programs are not."""
    found = estimate((-200.0,) * 3, [Observation("record", -118.0), Observation("point", -190.0)])
    assert found.level == pytest.approx(-118.0) and found.sd > 5 and found.error > 5
    draw = random.Random(3)
    again = [Observation("same", -118 + draw.gauss(0, 30)) for _ in range(8)]
    known = estimate((-200.0,) * 3, [Observation("record", -118.0), *again])
    assert 15 < known.sd < 60
    zero = estimate((0.0,) * 3, [Observation("record", 0.3), Observation("same", 0.5), Observation("same", 0.2)])
    assert 0.03 < zero.sd < 1


def test_a_champion_that_is_three_times_as_noisy_as_the_baseline_widens_the_noise() -> None:
    draw = random.Random(1)
    again = [Observation("same", draw.gauss(200, 100)) for _ in range(20)]
    assert 60 < estimate(BASELINE, [Observation("record", 200.0), *again]).sd < 150


def test_what_other_points_score_leaves_the_champions_level_as_it_is() -> None:
    poor = [Observation("point", value) for value in (-120.0, -80.0, 29.0, -200.0)]
    found = estimate(BASELINE, [Observation("record", 236.0), *poor])
    assert found.level == pytest.approx(236.0)


def test_the_spread_within_a_trial_tells_the_noise() -> None:
    quiet, loud = (
        estimate(BASELINE, [Observation("left", 80.0, 4, 3 * sd**2) for _ in range(6)]).sd for sd in (3.0, 40.0)
    )
    assert quiet < 6 and loud > 30


def test_a_long_night_is_no_deep_recursion() -> None:
    draw = random.Random(2)
    many = tuple(Observation("left", draw.gauss(70, 10)) for _ in range(1500))
    found = estimate(BASELINE, many)
    assert 7 < found.sd < 14 and found.error < 5


@pytest.mark.parametrize("value", [1e12, 1e5, -1e5, -1e12])
@pytest.mark.parametrize("kind", ["left", "kept", "same"])
def test_a_score_out_of_all_proportion_breaks_nothing(kind: Literal["left", "kept", "same"], value: float) -> None:
    found = estimate(BASELINE, [Observation(kind, value), Observation("left", 90.0), Observation("same", 85.0)])
    idea = found.idea(0.0)
    assert np.isfinite([found.level, found.error, found.sd, idea.effect, idea.promise]).all()
    if kind == "left":
        assert 60 < found.level < 100


def test_a_failure_far_below_and_a_leap_far_above_are_taken_for_what_they_are() -> None:
    for away in (1e3, 1e6, 1e9):
        now = estimate((1.0, 1.001), [Observation("left", 1.0 - away)])
        assert now.idea(1.0 + away).effect == pytest.approx(away, rel=1e-3)
        assert now.idea(1.0 - away).effect == pytest.approx(-away, rel=1e-3)


def test_one_collapse_of_the_champion_does_not_undo_it() -> None:
    steady = [Observation("same", 82.0 + step) for step in (-4, 3, 1, -2, 5, 0)]
    before = estimate(BASELINE, steady)
    after = estimate(BASELINE, [*steady, Observation("same", -200.0)])
    assert before.level - after.level < before.sd


def test_the_scores_of_a_trial_are_those_of_all_its_runs() -> None:
    history: History = (tried((), *BASELINE),)
    history += (tried(history, 100.0, reruns=[(0, 77.0)]),)
    history += (tried(history, 90.0, reruns=[(1, 99.0)]),)
    assert utility(history, 0) == (*BASELINE, 77.0)
    assert utility(history, 1) == (100.0, 99.0)
    assert utility((tried((), None),), 0) == ()
    assert scored(None).utility == -np.inf


def test_a_single_run_of_a_point_that_was_left_changes_nothing() -> None:
    told = [Observation("record", 112.0), Observation("same", 104.0), Observation("point", 97.0, 2, 60.5)]
    point = Observation("point", 60.0)
    least, most = estimate(BASELINE, told), estimate(BASELINE, [one for each in told for one in (point, each, point)])
    assert (most.level, most.error, most.sd) == (least.level, least.error, least.sd)


def test_a_rerun_of_a_trial_that_crashed_tells_nothing_of_the_champion() -> None:
    history: History = (tried((), *BASELINE),)
    trial = tried(history, 120.0, kind="discard")
    crash = replace(tried(history, 120.0, reruns=[(1, 0.0)]).reruns[0], score=scored(None))
    edited = replace(trial, proposal=replace(trial.proposal, edit="a diff"))
    for one in (trial, edited):
        before, after = (champion_estimate((*history, replace(one, reruns=some))) for some in ((), (crash,)))
        assert before == after and before is not None and np.isfinite(before.level)

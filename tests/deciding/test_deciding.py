"""Deciding: what holds under every rule, what each rule is about, and what stands above all of them."""

from __future__ import annotations

import difflib
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from environments import Environment, plugins
from environments.metric_guards import Guard
from environments.score import Score
from tasks.certifying.certificate import unpromising
from tasks.decide import SIMPLER_KEEPS, Decision, NeedsControl, weigh
from tasks.deciding.champion_estimate import champion_estimate, utility
from tasks.deciding.simplicity import is_simpler, kept_in_a_row, size
from tasks.deciding.values import JudgedTrial, NeedsRerun, RuleAnswer
from tasks.rules import Rule
from tasks.rules.certify import Certify
from tasks.rules.greedy import Greedy
from tasks.rules.race import Race
from tasks.trial import (
    EarlyStop,
    History,
    Params,
    Proposal,
    Rerun,
    Run,
    Trial,
    UntrainedControl,
    Verdict,
    VerdictKind,
    measured,
)
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
    rule: Rule, history: History, one: JudgedTrial, mine: float, champion: float, seed: int = 1, up: bool = True
) -> tuple[Verdict, JudgedTrial]:
    """Ask and answer until there is a verdict: what is run again comes from these true levels, with a noise of SD."""
    draw = random.Random(seed)
    while isinstance(wanted := weigh(history, undemanding(), rule, one), NeedsRerun):
        assert len(one.reruns) < 50, "it never has enough"
        level = mine if wanted.of == one.number else champion
        value = draw.gauss(level, SD) * (1 if up else -1)
        one = replace(one, reruns=(*one.reruns, Rerun(wanted.of, FINE, scored(value, up))))
    assert isinstance(wanted, Verdict)
    return wanted, one


def verdict_of(wanted: Decision) -> Verdict:
    assert isinstance(wanted, Verdict), wanted
    return wanted


# Every rule


@pytest.mark.parametrize("name", NAMES)
def test_the_first_trial_with_a_score_is_kept(name: str) -> None:
    found = verdict_of(weigh((), undemanding(), rule_of(name), of((), *BASELINE)))
    assert (found.kind, found.level, found.reason) == ("keep", "provisional", "the baseline")
    crashed: History = (tried((), None),)
    found = verdict_of(weigh(crashed, undemanding(), rule_of(name), of(crashed, 3.0)))
    assert (found.kind, found.reason) == ("keep", "the first trial with a score")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("history", [(), begun()], ids=["baseline", "later"])
def test_what_has_no_score_is_a_crash_with_its_reason(name: str, history: History) -> None:
    found = verdict_of(weigh(history, undemanding(), rule_of(name), of(history, None)))
    assert found == Verdict("crash", "exited with status 3")
    found = verdict_of(weigh(history, undemanding(), rule_of(name), of(history, 900.0, None)))
    assert found == Verdict("crash", "run 2 of 2: exited with status 3")


@pytest.mark.parametrize("name", NAMES)
def test_what_was_ended_early_is_cancelled_with_what_was_said_of_it(name: str) -> None:
    due = EarlyStop(0.4, "31 at 40% of its budget")
    one = replace(of(begun(), None), runs=(replace(FINE, status="cancelled", due=due),))
    assert verdict_of(weigh(begun(), undemanding(), rule_of(name), one)) == Verdict("cancelled", due.reason)


@pytest.mark.parametrize("name", NAMES)
def test_an_early_end_that_was_spared_is_decided_by_its_score(name: str) -> None:
    due = EarlyStop(0.4, "31 at 40% of its budget", spared=True)
    one = replace(of(begun(), -900.0), runs=(replace(FINE, due=due),))
    found, _ = in_the_end(rule_of(name), begun(), one, mine=-900.0, champion=82.0)
    assert found.kind == "discard"


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
        found, asked = in_the_end(rule_of(name), history, one, mine, 82.0, seed, up)
        assert found.kind == kind, found
        assert found.level == ({"race": "confirmed"}.get(name, "provisional") if kind == "keep" else None)
        assert kind == "keep" or not asked.reruns, "not worth a second look"
        assert found.evidence["score"] == asked.score.value
        assert found.evidence["champion_trial"] == 0


@pytest.mark.parametrize("name", NAMES)
def test_the_same_arguments_give_the_same_answer(name: str) -> None:
    history = begun()
    for value in (60.0, 84.0, 100.0, 130.0):
        answers = [repr(weigh(history, undemanding(), rule_of(name), of(history, value))) for _ in range(3)]
        assert len(set(answers)) == 1 or "NeedsControl object" in answers[0]
        once = in_the_end(rule_of(name), history, of(history, value), value, 82.0)
        assert once == in_the_end(rule_of(name), history, of(history, value), value, 82.0)


@pytest.mark.parametrize("name", NAMES)
def test_turned_round_a_metric_gives_the_same_verdicts(name: str) -> None:
    for value in (20.0, 75.0, 84.0, 100.0, 130.0, 300.0):
        verdicts = [
            in_the_end(rule_of(name), begun(up), of(begun(up), value if up else -value, up=up), value, 82.0, up=up)
            for up in (True, False)
        ]
        (plain, asked), (turned, asked_too) = verdicts
        assert (plain.kind, plain.level) == (turned.kind, turned.level)
        assert len(asked.reruns) == len(asked_too.reruns)


@pytest.mark.parametrize("name", NAMES)
def test_a_reason_names_the_score_and_what_it_was_measured_by(name: str) -> None:
    for value in (60.0, 300.0):
        found, _ = in_the_end(rule_of(name), begun(), of(begun(), value), value, 82.0)
        said = found.reason.partition("trial 0")[0]
        assert ("better" in said and "not" not in said) == (value == 300.0)
        assert "trial 0" in found.reason


@pytest.mark.parametrize("name", NAMES)
def test_an_option_that_a_rule_does_not_take_is_refused(name: str) -> None:
    with pytest.raises(plugins.Refused, match=f"{name}: no_such_option"):
        rule_of(name, no_such_option=1)


# Greedy: one number against another


@pytest.mark.parametrize(("value", "kind"), [(82.0, "discard"), (82.001, "keep"), (81.9, "discard")])
def test_greedy_believes_every_score(value: float, kind: str) -> None:
    assert verdict_of(weigh(begun(), undemanding(), Greedy(), of(begun(), value))).kind == kind


def test_greedy_goes_by_what_was_kept_last_however_lucky_it_was() -> None:
    history = (*begun(), tried(begun(), 140.0))
    assert verdict_of(weigh(history, undemanding(), Greedy(), of(history, 139.0))).kind == "discard"


def test_only_greedy_does_without_proof_and_without_a_second_run_of_the_baseline() -> None:
    shortcuts = {name for name in NAMES if not rule_of(name).certifies}
    assert shortcuts == {name for name in NAMES if not rule_of(name).replicates_baseline} == {"greedy"}


# Certify: among points the record, of edits what is expected to be better


@pytest.mark.parametrize(
    ("value", "kind"), [(237.0, "keep"), (236.0, "discard"), (107.0, "discard"), (42.0, "discard")]
)
def test_certify_keeps_the_record_among_points_whatever_their_neighbours_scored(value: float, kind: str) -> None:
    history = (*begun(), tried(begun(), 236.0))
    for poor in (-120.0, -80.0, -150.0, -95.0):
        history += (tried(history, poor),)
    found = verdict_of(weigh(history, undemanding(), Certify(), of(history, value)))
    assert found.kind == kind
    assert found.evidence["level"] == 236.0, "poor neighbours do not drag it down"


@pytest.mark.parametrize("value", [0.1, 0.35, 0.7, 0.9])
def test_a_point_that_scores_as_every_run_of_the_baseline_does_is_no_record(value: float) -> None:
    history = (tried((), value, value, value),)
    assert verdict_of(weigh(history, undemanding(), Certify(), of(history, value))).kind == "discard"
    again = tried(history, value, value, value, kind="keep")
    assert again.score.value == value
    assert unpromising((*history, again), again) is not None, "nor is it worth a certificate"


def test_certify_says_in_one_sentence_what_a_point_was_compared_with_and_how_sure_that_is() -> None:
    found = verdict_of(weigh(begun(), undemanding(), Certify(), of(begun(), 300.0)))
    said = "better than trial 0: 300 against its mean of 82 in 3 runs; runs of one program differ by about 16 by luck"
    assert found.reason == said


def test_a_point_of_the_champions_edited_program_is_compared_with_the_champion() -> None:
    history = edited_night(140.0)
    point = of(history, 139.0, edit="+a line", parent=1)
    assert verdict_of(weigh(history, undemanding(), Certify(), point)).reason.startswith("not better than trial 1: 139")
    other = of(history, 139.0, edit="+another line", parent=1)
    assert "expected" in verdict_of(weigh(history, undemanding(), Certify(), other)).evidence


def test_replicates_tell_the_noise() -> None:
    """The three runs of the baseline are 12 apart, those of the trials 60."""
    history = begun()
    for _ in range(4):
        history += (tried(history, 20.0, 80.0, 140.0, kind="discard"),)
    level = champion_estimate(history)
    assert level is not None and 40 < level.sd < 80


def edited_night(value: float) -> History:
    """A champion whose program is edited, after three runs of the baseline."""
    history, one = begun(), of(begun(), value, edit="+a line")
    return (*history, decided(history, one, Verdict("keep", "as a test says", "provisional")))


def edit_of(history: History, value: float, up: bool = True) -> JudgedTrial:
    """Another edit on top of the champion."""
    return of(history, value, edit=f"+line {len(history)}", up=up)


def test_certify_allows_for_the_luck_of_the_champion() -> None:
    """A champion at 140 that came from a baseline around 82 is not believed to be that good, so less is needed."""
    history = edited_night(140.0)
    for _ in range(12):
        history += (decided(history, edit_of(history, 85.0), Verdict("discard", "as a test says")),)
    found = verdict_of(weigh(history, undemanding(), Certify(), edit_of(history, 135.0)))
    assert found.kind == "keep"
    level = found.evidence["level"]
    assert level is not None and level < 130
    expected = found.evidence["expected"]
    assert expected is not None and expected < 135 - level, "and luck in its own score"


def test_certify_does_not_follow_what_is_only_as_good_as_luck() -> None:
    found = verdict_of(weigh(begun(), undemanding(), Certify(), edit_of(begun(), 83.0)))
    expected = found.evidence["expected"]
    assert found.kind == "discard" and expected is not None and expected <= 0


@pytest.mark.parametrize("up", [True, False])
def test_certify_says_its_numbers_in_the_metrics_own_sign(up: bool) -> None:
    sign, history = (1 if up else -1), begun(up)
    found = verdict_of(weigh(history, undemanding(), Certify(), edit_of(history, sign * 300.0, up=up)))
    known = champion_estimate(history)
    assert known is not None
    assert found.evidence["level"] == pytest.approx(sign * known.level)
    assert found.evidence["run_sd"] == pytest.approx(known.sd)
    assert f"{sign * 300:.4g} against its estimated mean of {sign * known.level:.4g};" in found.reason
    said = f"expected to be {found.evidence['expected']:.3g} better"
    assert found.reason.startswith(said), "whichever way is better"


@pytest.mark.parametrize("up", [True, False])
def test_certify_does_not_contradict_itself_where_a_score_above_the_estimate_is_discarded(up: bool) -> None:
    sign, history = (1 if up else -1), begun(up)
    lucky = verdict_of(weigh(history, undemanding(), Certify(grace=0), edit_of(history, sign * 84.0, up)))
    low = verdict_of(weigh(history, undemanding(), Certify(), edit_of(history, sign * 60.0, up)))
    assert (lucky.kind, low.kind) == ("discard", "discard")
    assert lucky.reason.startswith("expected") and "worse than trial 0" in lucky.reason
    assert "luck explains" in lucky.reason
    assert "worse than trial 0" in low.reason and "luck explains" not in low.reason


def test_where_nothing_is_random_certify_keeps_every_improvement_and_nothing_else() -> None:
    """A whole campaign on a parabola to minimise, in which two runs of the baseline came out the same."""
    draw, best = random.Random(4), 2.25
    history: History = (tried((), 2.25, 2.25, higher_is_better=False),)
    for _ in range(40):
        value = (draw.uniform(-3, 3) - 1) ** 2
        one = of(history, value, up=False)
        found = verdict_of(weigh(history, undemanding(), Certify(), one))
        assert (found.kind == "keep") == (value < best), (value, best, found)
        best = min(best, value)
        history += (decided(history, one, found),)
    assert best < 0.1


# Race: what holds up


def test_race_asks_for_the_trial_first_and_for_the_champion_only_where_it_has_no_other_runs() -> None:
    history = begun()
    assert weigh(history, undemanding(), Race(), of(history, 130.0)) == NeedsRerun(1)
    history = (*history, tried(history, 120.0))
    one = of(history, 190.0)
    assert weigh(history, undemanding(), Race(), one) == NeedsRerun(2)
    one = replace(one, reruns=(Rerun(2, FINE, scored(185.0)),))
    assert weigh(history, undemanding(), Race(), one) == NeedsRerun(1), "its first score was looked at for being high"


def test_race_does_not_count_the_score_that_a_trial_entered_with() -> None:
    _, asked = in_the_end(Race(), begun(), of(begun(), 190.0), mine=82.0, champion=82.0, seed=3)
    found, _ = in_the_end(Race(), begun(), of(begun(), 190.0), mine=40.0, champion=82.0)
    assert asked.reruns and found.kind == "discard"


def test_race_drops_a_trial_whose_rerun_crashes() -> None:
    one = replace(of(begun(), 190.0), reruns=(Rerun(1, FINE, scored(None)),))
    found = verdict_of(weigh(begun(), undemanding(), Race(), one))
    assert found.kind == "discard" and "a rerun crashed" in found.reason


def test_race_keeps_asking_no_longer_than_it_was_told() -> None:
    for most in (1, 3):
        counts = set()
        for seed in range(30):
            found, asked = in_the_end(
                Race(most=most, drop=0.0, confirm=99.0), begun(), of(begun(), 130.0), 110.0, 80.0, seed
            )
            assert found.kind == "discard"
            counts.add(len(asked.again(1)))
        assert counts == {most}


def test_race_keeps_few_that_are_no_better() -> None:
    """Trials that only look good: one standard deviation of luck each, and no gain."""
    kept = sum(
        in_the_end(Race(), begun(), of(begun(), 82.0 + SD), 82.0, 82.0, seed)[0].kind == "keep" for seed in range(300)
    )
    assert kept < 300 * 0.12


def test_a_champion_that_crashes_when_it_is_run_again_does_not_keep_race_asking_for_ever() -> None:
    history = (*begun(), tried(begun(), 120.0))
    one = replace(of(history, 190.0), reruns=(Rerun(2, FINE, scored(185.0)),))
    asked = 0
    while isinstance(wanted := weigh(history, undemanding(), Race(), one), NeedsRerun):
        score = scored(None) if wanted.of == 1 else scored(185.0)
        one, asked = replace(one, reruns=(*one.reruns, Rerun(wanted.of, FINE, score))), asked + 1
        assert asked < 20, "it never has enough"
    assert isinstance(wanted, Verdict)


# Simplicity: what is hardly worse and simpler stays

FILE = [f"line {number}\n" for number in range(20)]


def diff(before: Sequence[str], after: Sequence[str]) -> str:
    return "".join(difflib.unified_diff(before, after, "a/train.py", "b/train.py"))


GROWN = diff(FILE, FILE + FILE[:10])


def grown() -> History:
    """A champion at 120, kept for the ten lines that it adds and for another learning rate, and measured twice since."""
    history = begun()
    longer = tried(history, 120.0, params={"lr": 0.3})
    proposal = replace(longer.proposal, edit=GROWN, parent=0)
    history += (replace(longer, proposal=proposal),)
    return (*history, tried(history, 60.0, kind="discard", reruns=[(1, 118.0), (1, 122.0)]))


def simpler(history: History, value: float, **proposed: Any) -> JudgedTrial:
    """A trial that takes back half of the champion's lines, at the same learning rate."""
    edit = diff(FILE, FILE + FILE[:5])
    return of(history, value, **{"params": {"lr": 0.3}, "edit": edit, "parent": 1, **proposed})


def test_the_size_of_a_proposal_is_that_of_its_edit_of_the_baseline() -> None:
    history = grown()
    assert size(history, history[0].proposal) == (0, 0)
    assert size(history, history[1].proposal) == (10, 1)
    assert size(history, simpler(history, 1.0).proposal) == (5, 1)


@pytest.mark.parametrize(
    ("proposed", "found"),
    [
        ({}, True),
        ({"params": {"lr": 0.1}, "edit": None}, True),
        ({"edit": GROWN}, False),
        ({"edit": None}, True),
        ({"params": {"lr": 0.3, "layers": 3}}, False),
        ({"params": {"lr": 0.7}}, True),
        ({"edit": diff(FILE, FILE + FILE[:13])}, False),
        ({"params": {"lr": 0.1}, "edit": diff(FILE, FILE + FILE[:13])}, False),
    ],
    ids=[
        "fewer lines", "fewer changes", "the same", "the baseline's program", "fewer lines and more changes", "fewer lines, another value",
        "more lines", "fewer changes and more lines",
    ],
)  # fmt: skip
def test_simpler_is_less_in_one_way_and_more_in_none(proposed: dict[str, Any], found: bool) -> None:
    history = grown()
    assert is_simpler(history, simpler(history, 1.0, **proposed).proposal, history[1]) is found


@pytest.mark.parametrize("rule", [Greedy(), Certify(), Race()])
def test_what_is_simpler_and_hardly_worse_is_kept_and_the_bar_stays(rule: Rule) -> None:
    """The champion's runs are 120, 118 and 122; half a standard deviation between runs below that is the limit."""
    history = grown()
    level = champion_estimate(history)
    assert level is not None
    limit = 120.0 - 0.5 * level.sd
    assert 110 < limit < 117
    found, one = in_the_end(rule, history, simpler(history, limit + 0.1), limit, 120.0)
    assert found.kind == "keep" and found.simpler, found
    assert found.reason.startswith("simpler, and within 0.5 run sd of trial 1")
    left = Verdict("discard", "as a test says")
    kept, discarded = (champion_estimate((*history, decided(history, one, verdict))) for verdict in (found, left))
    assert kept is not None and kept == discarded, "the level is followed as if it had not been kept"

    below, _ = in_the_end(rule, history, simpler(history, limit - 0.1), limit - 0.1, 120.0)
    plain, _ = in_the_end(rule, history, simpler(history, limit + 0.1, edit=GROWN), limit + 0.1, 120.0)
    assert below.kind == plain.kind == "discard"


@pytest.mark.parametrize(
    ("value", "edit", "kind"),
    [
        (101.0, diff(FILE, FILE + FILE[:5]), "keep"),
        (99.0, diff(FILE, FILE + FILE[:5]), "discard"),
        (99.0, diff(FILE, FILE[:-1]), "keep"),
    ],
    ids=["above the baseline", "below it", "below it, with fewer lines than the baseline"],
)
def test_what_is_kept_for_being_simpler_is_better_or_simpler_than_the_baseline_too(
    value: float, edit: str, kind: str
) -> None:
    """Runs differ by so much that all of these are within half a standard deviation of the champion's 120."""
    history: History = (tried((), 100.0, 160.0, 40.0, params={"lr": 0.1}),)
    longer = tried(history, 120.0, params={"lr": 0.1})
    history += (replace(longer, proposal=replace(longer.proposal, edit=GROWN, parent=0)),)
    one = simpler(history, value, params={"lr": 0.1}, edit=edit)
    found = verdict_of(weigh(history, undemanding(), Greedy(), one))
    assert (found.kind, found.simpler) == (kind, kind == "keep"), found


def test_parameters_have_to_beat_the_record_and_not_a_simpler_keep_below_it() -> None:
    defaults = {"lr": 0.1, "gamma": 0.9, "layers": 2}
    history: History = (tried((), 70.0, 74.0, 66.0, params=defaults),)
    history += (tried(history, 94.0, params={**defaults, "lr": 0.3, "gamma": 0.99}, kind="keep"),)
    below = tried(history, 92.0, params={**defaults, "lr": 0.3}, kind="keep")
    history += (replace(below, verdict=replace(below.verdict, simpler=True)),)
    again = of(history, 93.0, params={**defaults, "lr": 0.2, "gamma": 0.99})

    found = Certify().weigh(history, again)

    assert isinstance(found, RuleAnswer) and not found.better
    assert found.words.startswith("not better than trial 1: 93 against its 94")
    assert "above 94, the mean of trial 1, the record" in Certify().in_words(history)


def test_what_is_simpler_and_better_is_kept_for_being_better() -> None:
    history = grown()
    found = verdict_of(weigh(history, undemanding(), Certify(), simpler(history, 400.0)))
    assert found.kind == "keep" and not found.simpler


def simplified(times: int) -> History:
    """The grown champion, made simpler so many times by a line each."""
    history, lines = grown(), 10
    for _ in range(times):
        number = len(history)
        edit = diff(FILE, FILE + FILE[: lines - 1])
        champion = 1 if number == 3 else number - 1
        one = of(history, 119.0, params={"lr": 0.3}, edit=edit, parent=champion)
        words = "simpler, as a test says"
        history += (decided(history, one, Verdict("keep", words, "provisional", simpler=True)),)
        lines -= 1
    return history


def test_after_three_simpler_ones_in_a_row_the_champion_is_measured_again() -> None:
    """Each may be a little worse than the one before; so the last of them is run again before it gives way."""
    for times in range(SIMPLER_KEEPS):
        assert kept_in_a_row(simplified(times)) == times
    history = simplified(SIMPLER_KEEPS)
    champion = history[-1].number
    edit = diff(FILE, FILE + FILE[:6])
    one = of(history, 118.0, params={"lr": 0.3}, edit=edit, parent=champion)
    assert weigh(simplified(2), undemanding(), Greedy(), of(simplified(2), 118.0, edit=edit, parent=4)) != NeedsRerun(4)
    assert weigh(history, undemanding(), Greedy(), one) == NeedsRerun(champion)

    good = replace(one, reruns=(Rerun(champion, FINE, scored(119.0)),))
    found = verdict_of(weigh(history, undemanding(), Greedy(), good))
    assert found.kind == "keep" and found.simpler
    assert kept_in_a_row((*history, decided(history, good, found))) == 1, "it is measured, so it may go on"

    crashed = replace(one, reruns=(Rerun(champion, FINE, scored(None)),))
    assert verdict_of(weigh(history, undemanding(), Greedy(), crashed)).kind == "discard"


def test_a_keep_for_being_better_begins_the_count_anew() -> None:
    history = simplified(2)
    history += (tried(history, 200.0, kind="keep"),)
    assert kept_in_a_row(history) == 0
    assert kept_in_a_row(()) == kept_in_a_row(begun()) == 0


# Guarded metrics: what may not fall


def guarded(margin: float = 0.5, direction: str = "maximize") -> Environment:
    guard = Guard(margin=margin, direction=direction)  # type: ignore[arg-type]
    return undemanding().model_copy(update={"guards": {"calm": guard}})


def with_calm(score: Score, *calm: float) -> Score:
    each = [replace(one, also={"calm": value}) for one, value in zip(score.each, calm, strict=True)]
    return Score.over(each)


def calm_night(*calm: float) -> History:
    (first,) = begun()
    return (replace(first, score=with_calm(first.score, *calm)),)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("calm", "blocked"), [(45.1, False), (44.9, True), (90.0, False)])
def test_a_guarded_metric_that_falls_by_more_than_its_noise_allows_is_not_built_on(
    name: str, calm: float, blocked: bool
) -> None:
    """The baseline's runs have 49, 50 and 51: by t with 2 degrees of freedom, 4.97 below 50 is the limit."""
    history = calm_night(49.0, 50.0, 51.0)
    one = of(history, 400.0)
    one = replace(one, score=with_calm(one.score, calm))
    wanted = weigh(history, guarded(), rule_of(name), one)
    if blocked:
        found = verdict_of(wanted)
        assert found.kind == "discard" and found.reason.startswith(
            "calm fell from 50 to 44.9, more than 4.97 (what its noise explains)"
        )
    else:
        assert isinstance(wanted, NeedsRerun) or wanted.kind == "keep"  # type: ignore[union-attr]


def test_a_guarded_metric_to_minimise_may_not_rise() -> None:
    history = calm_night(49.0, 50.0, 51.0)
    for calm, kind in ((55.1, "discard"), (54.9, "keep"), (20.0, "keep")):
        one = of(history, 400.0)
        one = replace(one, score=with_calm(one.score, calm))
        assert verdict_of(weigh(history, guarded(direction="minimize"), Certify(), one)).kind == kind


@pytest.mark.parametrize("name", NAMES)
def test_a_fall_within_the_margin_is_built_on_however_quiet_the_metric_is(name: str) -> None:
    history = calm_night(50.0, 50.0, 50.0)
    for calm, blocked in ((49.6, False), (49.4, True)):
        one = of(history, 400.0)
        one = replace(one, score=with_calm(one.score, calm))
        wanted = weigh(history, guarded(), rule_of(name), one)
        assert (isinstance(wanted, Verdict) and wanted.kind == "discard") == blocked


def test_a_guarded_metric_is_compared_with_the_baselines_and_cannot_fall_step_by_step() -> None:
    history = calm_night(49.0, 50.0, 51.0)
    one = of(history, 200.0)
    one = replace(one, score=with_calm(one.score, 46.0))
    kept = verdict_of(weigh(history, guarded(), Certify(), one))
    assert kept.kind == "keep"
    history = (*history, Trial(1, 1, 1, one.proposal, one.runs, one.score, kept))
    two = of(history, 400.0)
    two = replace(two, score=with_calm(two.score, 44.0))
    assert verdict_of(weigh(history, guarded(), Certify(), two)).reason.startswith("calm fell from 50 to 44")


def test_with_one_run_of_the_baseline_its_margin_is_what_a_guarded_metric_may_lose() -> None:
    history: History = (tried((), 80.0),)
    history = (replace(history[0], score=with_calm(history[0].score, 50.0)),)
    for calm, kind in ((49.6, "keep"), (10.0, "discard")):
        one = of(history, 400.0)
        one = replace(one, score=with_calm(one.score, calm))
        assert verdict_of(weigh(history, guarded(), Greedy(), one)).kind == kind


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
            one = replace(one, reruns=(*one.reruns, Rerun(wanted.of, FINE, scored(value))))
            assert one.control is None, "what costs more is asked last"
        else:
            assert isinstance(wanted, NeedsControl)
            asked += 1
            one = replace(one, control=UntrainedControl(scored(70.0)))
    assert wanted.kind == kind
    assert asked == (kind == "keep")
    assert wanted.evidence.get("untrained") == (70.0 if kind == "keep" else None)


@pytest.mark.parametrize("name", NAMES)
def test_the_baseline_need_not_show_that_it_learned(name: str) -> None:
    assert verdict_of(weigh((), strict(), rule_of(name), of((), *BASELINE))).kind == "keep"


def test_who_did_not_learn_is_not_kept_for_being_simpler_either() -> None:
    history = grown()
    one = simpler(history, 119.0)
    assert isinstance(weigh(history, strict(), Greedy(), one), NeedsControl)
    found = verdict_of(weigh(history, strict(), Greedy(), replace(one, control=UntrainedControl(scored(119.0)))))
    assert found.kind == "discard" and found.reason.startswith("not learned")
    found = verdict_of(weigh(history, strict(), Greedy(), replace(one, control=UntrainedControl(scored(60.0)))))
    assert found.kind == "keep" and found.simpler


# What is known of a trial


def test_reruns_count_for_the_trial_that_was_run_again() -> None:
    history = grown()
    assert [score.value for score in measured(history, 1)] == [120.0, 118.0, 122.0]
    assert utility(history, 2) == (60.0,)


def test_a_parameter_that_is_named_as_it_was_is_no_change() -> None:
    params: Params = {"lr": 0.1}
    history = begun()
    assert size(history, of(history, 1.0, params=params).proposal) == (0, 0)

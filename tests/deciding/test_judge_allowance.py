"""The time that a program may spend under judgement, as it follows from the runs of the baseline."""

from __future__ import annotations

from dataclasses import replace

from environments.effort import ELSEWHERE_TIMES, OWN_ANSWER_TIMES, SPARE_SECONDS, Allowance, Effort
from pydantic import TypeAdapter

from environments.score import Score
from tasks.deciding.judge_allowance import allowance
from tasks.trial import Proposal, Rerun, Run, Trial, Verdict

NEED = Effort(ready=0.015, answering=0.06, answers=400, ready_wait=1.5, answer_wait=0.3, longest_wait=0.1)
LOADED = Effort(ready=0.03, answering=0.22, answers=400, ready_wait=6.0, answer_wait=2.0, longest_wait=0.5)


def baseline(*efforts: Effort | None, machine: str = "here", number: int = 0) -> Trial:
    runs = tuple(Run("trials/0000", seed, 1.0, "finished", machine=machine) for seed, _ in enumerate(efforts))
    scores = [Score(1.0, (1.0,), effort=effort) for effort in efforts]
    return Trial(number, 1, number, Proposal({}), runs, Score.over(scores), Verdict("keep", "the baseline"))


def test_without_a_known_need_nothing_is_bounded() -> None:
    assert allowance((), "here", 60) is None
    assert allowance((baseline(None, None),), "here", 60) is None
    assert allowance((baseline(NEED, number=1),), "here", 60) is None


def test_the_largest_need_of_the_baseline_counts_also_of_its_reruns() -> None:
    first = baseline(NEED, None)
    fresh = Rerun(0, Run("trials/0001-again", 9, 1.0, "finished", machine="here"), Score(1.0, effort=LOADED))
    later = Trial(
        1, 1, 1, Proposal({}), (), Score.missing("a crash", True), Verdict("crash", "a crash"), reruns=(fresh,)
    )
    assert allowance((first,), "here", 60) == Allowance.of([NEED], 60)
    assert allowance((first, later), "here", 60) == Allowance.of([NEED, LOADED], 60) == Allowance.of([LOADED], 60)


def test_a_run_that_crashed_tells_nothing_and_disturbs_nothing() -> None:
    runs = (Run("a", 1, 1.0, "finished", machine="here"), Run("b", 2, 1.0, "crash", machine="here"))
    scores = [Score(1.0, effort=NEED), Score.missing("a crash", True)]
    trial = Trial(0, 1, 0, Proposal({}), runs, Score.over(scores), Verdict("crash", "run 2"))
    assert allowance((trial,), "here", 60) in (None, Allowance.of([NEED], 60))


def test_on_another_machine_the_need_may_be_several_times_as_large() -> None:
    known = (baseline(NEED, machine="fast"),)
    assert allowance(known, "slow", 60) == Allowance.of([NEED.times(ELSEWHERE_TIMES)], 60)
    assert allowance((baseline(NEED, machine=""),), "slow", 60) == Allowance.of([NEED], 60)


def test_honest_programs_have_room_under_load_and_with_a_larger_network_even_at_half() -> None:
    """Needs measured on two cores: 400 answers of a policy, idle and with ten programs at once. A network four times as
    wide was seen to need 0.91 ms for an answer then."""
    half = Allowance.of([NEED], 10).halved()
    assert half.until_ready > 2 * LOADED.ready
    assert half.answering(500) > 500 * 0.00091
    own = Allowance.of([NEED], 10, OWN_ANSWER_TIMES).halved()
    assert own.answering(500) > 500 * LOADED.answering / LOADED.answers


def test_the_further_runs_of_a_champion_have_what_it_needs_itself_if_it_was_controlled() -> None:
    """Not one that was kept without: it may have needed what it needed to train on."""
    wide = Effort(0.05, 1.0, 400, 1.5, 1.2, 0.1)
    run, score = Run("trials/0001", 1, 1.0, "finished", machine="here"), Score(2.0, (2.0,), effort=wide)
    kept = Trial(1, 1, 1, Proposal({"x": 1}), (run,), score, Verdict("keep", "better", evidence={"untrained": 0.1}))
    of_the_baseline = Allowance.of([NEED], 60)
    for trial, expected in (
        (kept, replace(Allowance.of([wide], 60, OWN_ANSWER_TIMES), most=of_the_baseline)),
        (replace(kept, verdict=Verdict("keep", "better")), of_the_baseline),
        (replace(kept, verdict=replace(kept.verdict, kind="discard")), of_the_baseline),
    ):
        assert allowance((baseline(NEED), trial), "here", 60, number=1) == expected
        assert allowance((baseline(NEED), trial), "here", 60, number=0) == of_the_baseline


def test_a_certificate_never_grants_more_than_the_search_did() -> None:
    granted = Allowance.of([NEED], 60)
    burning = Effort(granted.until_ready, granted.answering(400), 400, 1.5, 60.0, 0.5)
    at_half = replace(Allowance.of([burning], 60, OWN_ANSWER_TIMES), most=granted).halved()
    assert at_half.until_ready <= granted.until_ready
    assert at_half.answering(400) <= granted.answering(400)


def test_what_is_left_to_train_with_is_small_beside_a_budget_of_minutes() -> None:
    whole = Allowance.of([NEED], 600)
    assert whole.until_ready + whole.answering(1000) < 0.02 * 600
    half = whole.halved()
    assert half.until_ready < whole.until_ready and half.answering(1000) == whole.answering(1000) / 2
    assert half.until_ready >= 2 * NEED.ready + SPARE_SECONDS / 2


def test_an_effort_is_stored_with_its_score_and_scores_of_before_have_none() -> None:
    adapter = TypeAdapter(Score)
    score = Score(1.0, effort=NEED)
    assert adapter.validate_json(adapter.dump_json(score)).effort == NEED
    assert adapter.validate_json(b'{"value": 1.0, "units": [1.0], "n": 1}').effort is None
    assert score == Score(1.0, effort=LOADED), "time is no part of a score"

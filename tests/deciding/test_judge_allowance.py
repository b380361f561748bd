"""The time for which a judge waits for a program, as it follows from the runs of the baseline."""

from __future__ import annotations

from pydantic import TypeAdapter

from environments.score import Score
from tasks.deciding.judge_allowance import SPARE_SECONDS, TIMES, allowance
from tasks.trial import Proposal, Rerun, Run, Trial, Verdict

OTHER = Proposal({"x": 1})


def baseline(*waits: float | None, number: int = 0) -> Trial:
    runs = tuple(Run("trials/0000", seed, 1.0, "finished", machine=f"{seed}") for seed, _ in enumerate(waits))
    scores = [Score(1.0, (1.0,), waited=seconds) for seconds in waits]
    return Trial(number, 1, number, Proposal({}), runs, Score.over(scores), Verdict("keep", "the baseline"))


def test_without_a_known_need_nothing_is_bounded_and_neither_is_the_baseline_itself() -> None:
    assert allowance((), OTHER) is None
    assert allowance((baseline(None, None),), OTHER) is None
    assert allowance((baseline(2.0, number=1),), OTHER) is None
    assert allowance((baseline(2.0),), Proposal({})) is None


def test_the_largest_need_of_the_baseline_counts_also_of_its_reruns_on_any_machine() -> None:
    first = baseline(2.0, None, 1.0)
    fresh = Rerun(0, Run("trials/0001-again", 9, 1.0, "finished"), Score(1.0, waited=5.0))
    later = Trial(1, 1, 1, OTHER, (), Score.missing("a crash", True), Verdict("crash", "a crash"), reruns=(fresh,))
    assert allowance((first,), OTHER) == SPARE_SECONDS + TIMES * 2.0
    assert allowance((first, later), OTHER) == SPARE_SECONDS + TIMES * 5.0


def test_honest_programs_have_room_and_what_is_left_to_train_with_is_small_beside_a_budget_of_minutes() -> None:
    """A start was seen to take 1.3 to 2 s, and twenty with imports from a cold disk on a busy machine."""
    granted = allowance((baseline(2.0),), OTHER)
    assert granted is not None and 20.0 < granted < 0.1 * 600


def test_a_wait_is_stored_with_its_score_and_scores_of_before_have_none() -> None:
    adapter = TypeAdapter(Score)
    score = Score(1.0, waited=2.0)
    assert adapter.validate_json(adapter.dump_json(score)).waited == 2.0
    before = b'{"value": 1.0, "units": [1.0], "n": 1, "effort": {"ready": 1.0, "answering": 0.1, "answers": 4}}'
    assert adapter.validate_json(before).waited is None
    assert score == Score(1.0, waited=3.0), "time is no part of a score"

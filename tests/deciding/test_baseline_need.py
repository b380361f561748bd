"""The time for which a judge waits for a program, as it follows from the runs of the baseline."""

from __future__ import annotations

from environments.score import Score, Wait
from tasks.control import baseline_need
from tasks.trial import Proposal, Rerun, Run, Trial, Verdict

OTHER = Proposal({"x": 1})


def baseline(*waits: float | None, number: int = 0) -> Trial:
    runs = tuple(Run("trials/0000", seed, 1.0, "finished", machine=f"{seed}") for seed, _ in enumerate(waits))
    known = [Wait(seconds, 1.0, 10) if seconds else None for seconds in waits]
    scores = [Score(1.0, (1.0,), waited=one) for one in known]
    return Trial(number, 1, number, Proposal({}), runs, Score.over(scores), Verdict("keep", "the baseline"))


def test_without_a_known_need_nothing_is_bounded_and_neither_is_the_baseline_itself() -> None:
    assert baseline_need((), OTHER) is None
    assert baseline_need((baseline(None, None),), OTHER) is None
    assert baseline_need((baseline(2.0, number=1),), OTHER) is None
    assert baseline_need((baseline(2.0),), Proposal({})) is None


def test_the_largest_need_of_the_baseline_counts_also_of_its_reruns_on_any_machine() -> None:
    first = baseline(2.0, None, 1.0)
    fresh = Rerun(0, Run("trials/0001-again", 9, 1.0, "finished"), Score(1.0, waited=Wait(5.0, 1.0, 10)))
    later = Trial(1, 1, 1, OTHER, (), Score.missing("a crash", True), Verdict("crash", "a crash"), reruns=(fresh,))
    assert baseline_need((first,), OTHER) == Wait(2.0, 1.0, 10)
    assert baseline_need((first, later), OTHER) == Wait(5.0, 1.0, 10)

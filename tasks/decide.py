"""History, Run, Score -> Verdict. Pure: the only place that says what a score is worth.

The rule here is `greedy`: keep what scores better than the champion. It is a good hill climber and a poor witness,
since each score is one run's, so every keep is only `provisional`.
"""

from __future__ import annotations

from environments.score import Score
from tasks.checkpoint import At, stored
from tasks.trial import History, Run, Verdict, best

RULE = "greedy"


@stored("decide")
def decide(at: At, history: History, run: Run, score: Score) -> Verdict:
    """The verdict on one trial, given everything decided before it."""
    return judge_trial(history, run, score)


def judge_trial(history: History, run: Run, score: Score) -> Verdict:
    """Keep it if it is better than the champion, or the first to have a score at all."""
    if run.status == "cancelled":
        return Verdict("cancelled", "stopped early")
    if score.value is None:
        return Verdict("crash", score.error or "no score")
    champion = best(history)
    if champion is None or champion.score.value is None:
        what = "the baseline" if not history else "the first trial with a score"
        return Verdict("keep", what, "provisional", {"score": score.value})
    gain = score.value - champion.score.value
    evidence: dict[str, float | int | None] = {
        "score": score.value,
        "champion": champion.score.value,
        "champion_trial": champion.number,
    }
    change = f"{score.value:.4g} against {champion.score.value:.4g} of trial {champion.number} ({gain:+.4g})"
    if score > champion.score:
        return Verdict("keep", f"better: {change}", "provisional", evidence)
    return Verdict("discard", f"not better: {change}", None, evidence)

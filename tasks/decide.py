"""History, Run, Score -> Verdict. Pure: the only place that says what a score is worth.

The rule here is `greedy`: keep what scores better than the champion. It is a good hill climber and a poor witness,
since each score is one run's, so every keep is only `provisional`.
"""

from __future__ import annotations

from environments.score import Score
from tasks.checkpoint import At, stored
from tasks.trial import Control, History, Run, Verdict, baseline, best

RULE = "greedy"
UNTRAINED_SHARE = 0.5
"""Of the claimed gain: what is there without training must stay below it."""


@stored("decide")
def decide(at: At, history: History, run: Run, score: Score, control: Control | None) -> Verdict:
    """The verdict on one trial, given everything decided before it."""
    return judge_trial(history, run, score, control)


def judge_trial(history: History, run: Run, score: Score, control: Control | None = None) -> Verdict:
    """Keep it if it is better than the champion, or the first to have a score at all.

    Args:
        control: What is there without training, where that was asked (tasks/untrained.py).
    """
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
        if control is not None and (reason := _not_learned(history, score, control)):
            return Verdict("discard", reason, None, evidence | {"untrained": control.score.value})
        seen = {"untrained": control.score.value} if control else {}
        return Verdict("keep", f"better: {change}", "provisional", evidence | seen)
    return Verdict("discard", f"not better: {change}", None, evidence)


def _not_learned(history: History, score: Score, control: Control) -> str | None:
    """Why the gain is none of training's: half of it is there before, or is hidden; None when it is training's."""
    first = baseline(history) or history[0]
    reference = first if first.score.value is not None else best(history)
    assert reference is not None, "a control is asked for only when there is a champion"
    allow = "allow_untrained in environment.toml would keep it"
    if control.score.value is None:
        if control.unedited is None or control.unedited.value is None:
            return None
        return (
            "not learned, or hidden: stopped after a hundredth of its time the edited program left nothing to judge, "
            f"where the environment's own leaves something; {allow}"
        )
    claimed = score.goodness - reference.score.goodness
    without = control.score.goodness - reference.score.goodness
    if without < claimed * UNTRAINED_SHARE:
        return None
    return (
        f"not learned: {control.score.value:.4g} without training, {score.value:.4g} with it, where trial "
        f"{reference.number} has {reference.score.value:.4g}; {allow}"
    )

"""What the runs of a history say of its champion, and of the noise between runs."""

import statistics

from tasks.stats.permutation import pooled
from tasks.trial import History, Trial, baseline, best, measured, measured_each

NOT_LEARNED = "untrained"
"""Evidence of a discard because the score is that of no training."""
GUARD_FELL = "guard_fell"
"""Evidence of a discard because a guarded metric fell."""


def run_sd(history: History) -> float:
    """Standard deviation between runs, pooled over the programs that ran several times; 0 if none did."""
    each = measured_each(history)
    scores = (each[trial.number] for trial in history)
    noise = pooled([score.utility for score in some if score.value is not None] for some in scores)
    return noise.sd if noise else 0.0


def reference(history: History) -> Trial | None:
    """The baseline, or the first trial with a score if the baseline has none."""
    return next((trial for trial in (baseline(history), *history) if trial and trial.score.value is not None), None)


def unpromising(history: History) -> str | None:
    """Why a certificate would be of no use: the champion is not even better in the search. None if it is."""
    arms = best(history), reference(history)
    means = [utility(history, one.number) for one in arms if one]
    if len(means) < 2 or not all(means) or statistics.mean(means[0]) > statistics.mean(means[1]):
        return None
    return "in the search it scored no better than the baseline"


def utility(history: History, number: int) -> tuple[float, ...]:
    """Every score of a trial, one per training run, reruns included; larger is better."""
    return tuple(score.utility for score in measured(history, number) if score.value is not None)


def is_barred(trial: Trial) -> bool:
    """Whether a trial was refused whatever its score: nobody is to search beside it."""
    return trial.verdict.kind == "discard" and bool({NOT_LEARNED, GUARD_FELL} & trial.verdict.evidence.keys())

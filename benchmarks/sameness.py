"""Whether two campaigns came to the same, by what must never change of a decided trial."""

from __future__ import annotations

from dataclasses import asdict

from tasks.trial import TIMES, History, Trial


def said(trial: Trial) -> tuple[object, ...]:
    """What must never change of a decided trial."""
    proposal = {key: value for key, value in asdict(trial.proposal).items() if key not in TIMES}
    return trial.number, trial.order, proposal, trial.score.value, trial.verdict.kind, trial.verdict.reason


def is_in_order(history: History) -> bool:
    """Whether trials were decided one after another, each once, without a gap."""
    each = list(range(len(history)))
    return [trial.order for trial in history] == each == sorted(trial.number for trial in history)


def is_equal(night: History, calm: History) -> bool:
    """Whether two campaigns proposed, found and decided the same."""
    return [said(trial) for trial in night] == [said(trial) for trial in calm]


def is_equal_but(struck: History, calm: History, numbers: set[int]) -> bool:
    """Whether a campaign is another but for crashes of these trials, and each verdict what the scores before say."""
    best, undisturbed = float("inf"), {trial.number: trial for trial in calm}
    for trial in struck:
        other, score = undisturbed[trial.number], trial.score.value
        if trial.proposal.params != other.proposal.params:
            return False
        crashed = trial.verdict.kind == "crash"
        if crashed and (trial.number not in numbers or score is not None):
            return False
        if not crashed and (score is None or score != other.score.value):
            return False
        if score is not None and (trial.verdict.kind == "keep") != (score < best):
            return False
        best = min(best, best if score is None else score)
    return len(struck) == len(calm)

"""Histories from the outcomes of their trials."""

from __future__ import annotations

import random
from collections.abc import Sequence

from environments.score import Score
from tasks.trial import History, Params, Proposal, Run, Trial, Verdict, VerdictKind, best

Outcome = float | VerdictKind | tuple[VerdictKind, float]
"""What became of a trial: its score, or how it ended without one, a cancelled one perhaps with its last report."""


def trial_of(history: History, outcome: Outcome, params: Params, *, up: bool = True, error: float = 20.0) -> Trial:
    """The trial after `history`; scores get a standard error of `error` over 16 episodes."""
    number, reported = len(history), None
    if isinstance(outcome, tuple):
        outcome, reported = outcome
    if isinstance(outcome, str):
        score, kind = Score.missing("why", up), outcome
    else:
        score = Score(float(outcome), (), error, 16, up)
        champion = best(history)
        kind = "keep" if champion is None or score > champion.score else "discard"
    run = Run(f"trials/{number:04d}", number, 12.0, "finished", reported=reported)
    verdict = Verdict(kind, "a reason", "provisional" if kind == "keep" else None)
    return Trial(number, 0, number, Proposal(params), (run,), score, verdict)


def night(outcomes: Sequence[Outcome], *, up: bool = True, error: float = 20.0, prefix: str = "") -> History:
    """A history with these outcomes and drawn parameters."""
    draws, history = random.Random(0), ()
    for outcome in outcomes:
        params: Params = {
            f"{prefix}lr": 10 ** draws.uniform(-5, -2),
            f"{prefix}environments": draws.choice([4, 8, 16]),
            f"{prefix}gamma": draws.uniform(0.9, 0.999),
            f"{prefix}activation": draws.choice(["tanh", "relu"]),
        }
        history += (trial_of(history, outcome, params, up=up, error=error),)
    return history

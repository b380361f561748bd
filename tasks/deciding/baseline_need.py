"""What the baseline of a campaign needed under judgement, by which the judge waits for other programs.

A program could train on while it is judged, where nothing counts its steps or its time.
"""

from __future__ import annotations

from environments.score import Wait
from tasks.trial import History, Proposal, baseline, measured


def baseline_need(history: History, proposal: Proposal) -> Wait | None:
    """The largest need of the baseline's runs, on any machine; None for the baseline's own, and while none is known."""
    first = baseline(history)
    needs = [score.waited for score in measured(history, 0) if score.waited is not None]
    if first is None or first.proposal == proposal or not needs:
        return None
    return max(needs, key=lambda one: one.ready + one.answering)

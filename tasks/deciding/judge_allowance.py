"""The time for which a judge waits for a program in a campaign, by what the baseline needed.

A program could train on while it is judged, where nothing counts its steps or its time.
"""

from __future__ import annotations

from tasks.trial import History, Proposal, baseline, measured

SPARE_SECONDS, TIMES = 20.0, 4.0
"""What a program may need: so many seconds, and so many times the baseline's need. Load on the machine takes a part of
it, imports from a cold disk and a wider network another. What is left to train with is small beside a budget of
minutes, and who trains in it at every start is seen by the control without training (tasks/control.py)."""


def allowance(history: History, proposal: Proposal) -> float | None:
    """Most seconds for which a judge waits for a proposal's program, from its start to its last answer; None for the
    baseline's own, and while none of its runs tells what it needs. The largest need of its runs counts, on any machine.
    """
    first = baseline(history)
    needs = [score.waited for score in measured(history, 0) if score.waited is not None]
    if first is None or first.proposal == proposal or not needs:
        return None
    return SPARE_SECONDS + TIMES * max(needs)

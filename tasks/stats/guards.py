"""Guarded metrics during the search: whether a trial's has fallen by more than their noise."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping

from environments.score import Guard, Score
from tasks.stats.champion import reference
from tasks.stats.permutation import pooled, quantile
from tasks.trial import History, measured, measured_each

SURE = 0.975
"""A fall that equal programs would show more rarely than 1 - SURE counts."""


def fallen(guards: Mapping[str, Guard], history: History, score: Score) -> str | None:
    """Which guarded metric fell by more than noise and its margin; None if none did."""
    if not guards:
        return None
    first, each = reference(history), measured_each(history).values()
    assert first is not None, "there is a champion"
    for name, guard in guards.items():
        had = [score.also[name] for score in measured(history, first.number) if name in score.also]
        now = score.also.get(name)
        if now is None or not had:
            continue
        # Three runs of the baseline may agree by luck; whatever else ran more than once corrects that.
        noise = pooled([one.also[name] for one in runs if name in one.also] for runs in each)
        error = noise.sd * math.sqrt(1 / len(score.values) + 1 / len(had)) if noise else 0.0
        allowed = max(quantile(SURE, noise.df) * error if noise else 0.0, guard.margin)
        before = statistics.fmean(had)
        if guard.loss(now, before) > allowed:
            why = "its margin" if guard.margin >= allowed else "what its noise explains"
            return f"{name} fell from {before:.4g} to {now:.4g}, more than {allowed:.3g} ({why})"
    return None

"""Guarded metrics during the search: how noisy they are, and whether a trial's has fallen."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping

from environments.score import Guard, Score
from tasks.stats.champion import reference
from tasks.stats.permutation import Noise, pooled, quantile
from tasks.trial import History, measured, measured_each

SURE = 0.975
"""A fall that equal programs would show more rarely than 1 - SURE counts."""


def guard_noise(guards: Mapping[str, Guard], history: History) -> dict[str, Noise]:
    """Noise of guarded metrics between training runs, for those measured twice in any trial.

    Three runs of the baseline may agree by luck; whatever else ran more than once corrects that.
    """
    each = measured_each(history)
    scores = [each[trial.number] for trial in history]
    seen = {name: pooled([[s.also[name] for s in some if name in s.also] for some in scores]) for name in guards}
    return {name: found for name, found in seen.items() if found}


def fallen(guards: Mapping[str, Guard], history: History, score: Score) -> str | None:
    """Which guarded metric fell by more than noise and its margin; None if none did."""
    if not guards:
        return None
    first, noise = reference(history), guard_noise(guards, history)
    assert first is not None, "there is a champion"
    for name, guard in guards.items():
        had = [score.also[name] for score in measured(history, first.number) if name in score.also]
        now = score.also.get(name)
        if now is None or not had:
            continue
        before, runs = statistics.fmean(had), len(score.values)
        allowed = max(_chance(noise.get(name), runs, len(had)), guard.margin)
        if guard.loss(now, before) > allowed:
            why = "its margin" if guard.margin >= allowed else "what its noise explains"
            return f"{name} fell from {before:.4g} to {now:.4g}, more than {allowed:.3g} ({why})"
    return None


def _chance(noise: Noise | None, runs: int, against: int) -> float:
    """A loss between equal programs that is exceeded with a probability of 1 - SURE; 0 for unknown noise."""
    if noise is None:
        return 0.0
    return quantile(SURE, noise.df) * noise.sd * math.sqrt(1 / runs + 1 / against)

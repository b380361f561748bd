"""Keep what scores better than the champion did. A good hill climber and a poor witness; here to compare with."""

from __future__ import annotations

from typing import ClassVar

from tasks.deciding.values import Again, JudgedTrial, Weighed
from tasks.rules import Rule
from tasks.trial import History


class Greedy(Rule):
    """One number against another: the score of what was kept last is the bar, however lucky it was."""

    certifies: ClassVar[bool] = False
    replicates_baseline: ClassVar[bool] = False

    def weigh(self, history: History, tried: JudgedTrial) -> Weighed | Again:
        bars = (t for t in reversed(history) if t.verdict.kind == "keep" and not t.verdict.simpler)
        champion = next(bars, None)
        assert champion is not None and champion.score.value is not None and tried.score.value is not None
        gain = tried.score.value - champion.score.value
        words = f"{tried.score.value:.4g} against {champion.score.value:.4g} of trial {champion.number} ({gain:+.4g})"
        return Weighed(tried.score > champion.score, words)

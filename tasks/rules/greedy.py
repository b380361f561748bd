"""Keep what scores better than the champion did. A good hill climber and a poor witness; here to compare with."""

from __future__ import annotations

from typing import ClassVar

from tasks.rules import Again, Rule, Tried, Weighed
from tasks.trial import History


class Greedy(Rule):
    """One number against another: the score of what was kept last is the bar, however lucky it was."""

    certifies: ClassVar[bool] = False
    replicates_baseline: ClassVar[bool] = False

    def weigh(self, history: History, tried: Tried) -> Weighed | Again:
        bars = (t for t in reversed(history) if t.verdict.kind == "keep" and not t.verdict.simpler)
        champion = next(bars, None)
        assert champion is not None and champion.score.value is not None and tried.score.value is not None
        gain = tried.score.value - champion.score.value
        better = tried.score > champion.score
        words = f"{'better' if better else 'not better'} than trial {champion.number}: {tried.score.value:.4g} against "
        return Weighed(better, f"{words}{champion.score.value:.4g} ({gain:+.4g})")

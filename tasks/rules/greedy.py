"""Keep a trial that scores higher than the champion did. For comparison: it takes luck for progress."""

from __future__ import annotations

from typing import ClassVar

from tasks.deciding.values import Again, JudgedTrial, Weighed
from tasks.rules import Rule
from tasks.trial import History


class Greedy(Rule):
    """Compare single scores: the latest keep's score is the threshold."""

    certifies: ClassVar[bool] = False
    replicates_baseline: ClassVar[bool] = False

    def weigh(self, history: History, tried: JudgedTrial) -> Weighed | Again:
        bars = (t for t in reversed(history) if t.verdict.kind == "keep" and not t.verdict.simpler)
        champion = next(bars, None)
        assert champion is not None and champion.score.value is not None and tried.score.value is not None
        gain = tried.score.value - champion.score.value
        better = tried.score > champion.score
        words = f"{'better' if better else 'not better'} than trial {champion.number}: {tried.score.value:.4g} against "
        return Weighed(better, f"{words}{champion.score.value:.4g} ({gain:+.4g})")

"""Keep a trial that scores higher than the champion did. For comparison: it takes luck for progress."""

from typing import ClassVar

from tasks.rules import JudgedTrial, NeedsRerun, Rule
from tasks.trial import History, Verdict, best


class Greedy(Rule):
    """Compare single scores: the latest keep's score is the threshold."""

    certifies: ClassVar[bool] = False

    def in_words(self, history: History) -> str:
        if (champion := best(history)) is None or champion.score.value is None:
            return ""
        side = "above" if champion.score.higher_is_better else "below"
        return f"A trial is kept when its score is {side} {champion.score.value:.4g}, that of trial {champion.number}."

    def weigh(self, history: History, tried: JudgedTrial) -> Verdict | NeedsRerun:
        champion = best(history)
        assert champion is not None and champion.score.value is not None and tried.score.value is not None
        gain = tried.score.value - champion.score.value
        better = tried.score.utility > champion.score.utility
        words = f"{'better' if better else 'not better'} than trial {champion.number}: {tried.score.value:.4g} against "
        return Verdict("keep" if better else "discard", f"{words}{champion.score.value:.4g} ({gain:+.4g})")

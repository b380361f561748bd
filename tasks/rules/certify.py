"""Search liberally, certify strictly: a record runs again before it is believed, and the result is proven at the end.

The best of many single runs is mostly lucky. So a trial that scores above the champion's mean is run once more under
another seed, and stays if the mean of its runs is still above. The first trials are not run again: they are overtaken
soon. A wrong keep costs little: the certificate decides.
"""

import statistics

from pydantic import Field

from tasks.rules import JudgedTrial, NeedsRerun, Rule
from tasks.stats.champion import run_sd, utility
from tasks.trial import History, Verdict, best


class Certify(Rule):
    """Keep a record that stays one when it is run again."""

    reruns: int = Field(default=1, ge=0, le=20, description="Times that a record is run again before it is kept.")
    first: int = Field(default=4, ge=0, description="Trials at the beginning that are kept without.")

    def in_words(self, history: History) -> str:
        champion = best(history)
        if champion is None or not (known := utility(history, champion.number)):
            return ""
        sign, side = (1, "above") if champion.score.higher_is_better else (-1, "below")
        bar = sign * statistics.mean(known)
        again = f", and still does on average when it is run {self.reruns + 1} times" * bool(self.reruns)
        return (
            f"A trial is kept when it scores {side} {bar:.4g}, the champion's mean{again}. "
            "What is kept at the end is proven on fresh runs."
        )

    def weigh(self, history: History, tried: JudgedTrial) -> Verdict | NeedsRerun:
        champion = best(history)
        assert champion is not None, "there is something to compare with"
        bar = statistics.mean(utility(history, champion.number))  # exact: a tie with equal runs is no record
        scores = [*tried.score.each, *(rerun.score for rerun in tried.reruns)]
        if any(rerun.score.value is None for rerun in tried.reruns):
            return Verdict("discard", f"a record that crashed when it was run again: {tried.reruns[-1].score.error}")
        mean = statistics.mean(score.utility for score in scores if score.value is not None)
        due = self.reruns if sum(trial.number > 0 for trial in history) >= self.first else 0
        if mean > bar and len(tried.reruns) < due and not tried.is_last:
            return NeedsRerun()
        sign = 1 if tried.score.higher_is_better else -1
        how = "better" if mean > bar else "not better"
        several = f", the mean of {len(scores)} runs" if len(scores) > 1 else ""
        words = f"{how} than trial {champion.number}: {sign * mean:.4g}{several}, against its mean of {sign * bar:.4g}"
        sd = run_sd(history)
        luck = f"; runs of one program differ by about {sd:.2g} by luck" if sd else ""
        return Verdict("keep" if mean > bar else "discard", words + luck)

"""Search liberally, certify strictly: keep every trial that is expected to be better, and prove the result at the end.

What is expected depends on the kind of proposal. Parameters are points of a fixed landscape: the champion among them is
the one with the best mean, the record. An edit builds on the champion, and most edits do not help: it is kept when its
effect on the champion's estimated mean is expected to be positive, luck allowed for (tasks/deciding/level_filter.py). A
wrong keep costs little either way: the certificate decides.
"""

from __future__ import annotations

import math
import statistics

from pydantic import Field

from tasks.deciding.champion_estimate import champion_estimate, is_point, utility
from tasks.deciding.level_filter import Estimate
from tasks.deciding.values import JudgedTrial, NeedsRerun, RuleAnswer
from tasks.rules import Rule
from tasks.trial import History, Trial, best, score_to_beat

DOUBT = 2.0
"""Run sds that the first promoted point may score below the baseline's mean: more is hardly luck."""
FAR, HALVINGS = 8.0, 12
"""Run sds above the level in which the threshold of an edit is looked for, and how finely: to a five-hundredth."""


class Certify(Rule):
    """Keep parameters that set a record, and edits whose expected effect is positive."""

    grace: float = Field(
        default=0.05, ge=0, le=1, description="Run sds that an edit above the level may be expected to lose by."
    )
    """Also keep an edit that is as good as the champion: another run to tell them apart would not pay."""

    def in_words(self, history: History) -> str:
        holder, level = score_to_beat(history), champion_estimate(history)
        if holder is None or level is None or not (known := utility(history, holder.number)):
            return ""
        sign, side = (1, "above") if holder.score.higher_is_better else (-1, "below")
        bar, champion = sign * sum(known) / len(known), best(history)
        whose = "the champion's mean" if champion == holder else f"the mean of trial {holder.number}, the record"
        words = f"A trial that changes parameters alone is kept when it scores {side} {bar:.4g}, {whose}."
        if math.isfinite(level.sd) and level.sd > 0:
            runs = max((len(trial.score.values) for trial in history if trial.number > 0), default=1)
            edit = sign * self._bar(level, max(runs, 1))
            words += (
                f" One that edits the program is kept when it scores {side} about {edit:.4g}: most "
                "edits do not help, so a score a little better than the champion's is more likely luck."
            )
        return f"{words} What is kept at the end is proven on fresh runs."

    def _bar(self, level: Estimate, runs: int) -> float:
        """The utility from which on an edit is kept whose score is the mean of so many runs."""
        low, high = level.level, level.level + FAR * level.sd
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            effect = level.idea(middle, runs).effect
            low, high = (low, middle) if effect > -self.grace * level.sd else (middle, high)
        return high

    def weigh(self, history: History, tried: JudgedTrial) -> RuleAnswer | NeedsRerun:
        champion, level = best(history), champion_estimate(history)
        assert champion is not None and level is not None and tried.score.value is not None
        if is_point(tried.proposal, champion.proposal.edit):
            return _record(history, level, tried)
        return self._edit(champion, level, tried)

    def _edit(self, champion: Trial, level: Estimate, tried: JudgedTrial) -> RuleAnswer:
        idea = level.idea(tried.score.utility, len(tried.score.values))
        mean = level.level if tried.score.higher_is_better else -level.level
        above = tried.score.utility > level.level
        better = idea.effect > 0 or (above and idea.effect > -self.grace * level.sd)
        if idea.effect > 0:
            words = f"expected to be {idea.effect:.3g} better than"
        else:
            words = f"expected to be {'no' if better else f'{-idea.effect:.3g}'} worse than"
        words += f" trial {champion.number}: {tried.score.value:.4g} against its estimated mean of {mean:.4g}"
        if above and not better:
            words += ", but most edits do not help, and luck explains so little more"
        evidence: dict[str, float | int | None] = _known(level, mean) | {"expected": idea.effect}
        return RuleAnswer(better, f"{words}; {_luck(level, tried)}", evidence=evidence)


def _record(history: History, level: Estimate, tried: JudgedTrial) -> RuleAnswer:
    """Whether a point has the best mean so far. A keep for being simpler is no record: its mean may be lower."""
    champion = score_to_beat(history)
    assert champion is not None and tried.score.value is not None
    known = utility(history, champion.number)
    bar = statistics.mean(known)  # exact: a tie with equal runs is no record
    better = tried.score.utility > bar
    shown = bar if tried.score.higher_is_better else -bar
    before = f"its mean of {shown:.4g} in {len(known)} runs" if len(known) > 1 else f"its {shown:.4g}"
    how = "better" if better else "not better"
    words = f"{how} than trial {champion.number}: {tried.score.value:.4g} against {before}; {_luck(level, tried)}"
    return RuleAnswer(better, words, evidence=_known(level, shown))


def _luck(level: Estimate, tried: JudgedTrial) -> str:
    """How sure a single result is."""
    runs = len(tried.score.values)
    several = f", and this is the mean of {runs}" if runs > 1 else ""
    return f"runs of one program differ by about {level.sd:.2g} by luck{several}"


def _known(level: Estimate, mean: float) -> dict[str, float | int | None]:
    return {"level": mean, "level_se": level.error, "run_sd": level.sd}

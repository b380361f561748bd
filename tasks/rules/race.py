"""Race: rerun a promising trial against reruns of the champion until it is confirmed or dropped.

For campaigns in which every keep must be defended. A trial's first score only selects it; its reruns confirm it,
against the champion's runs without the one that it was kept for, in units of the campaign's noise.
"""

from __future__ import annotations

import math
import statistics

from pydantic import Field, model_validator

from tasks.deciding.champion_estimate import champion_estimate, utility
from tasks.deciding.values import JudgedTrial, NeedsRerun, RuleAnswer
from tasks.rules import Rule
from tasks.trial import History, best


class Race(Rule):
    """Keep a trial that holds up in reruns."""

    enter: float = Field(default=0.5, ge=0, description="Run sds above the champion's level that a first score needs.")
    drop: float = Field(default=0.4, ge=0, description="Standard errors of the difference below which it is dropped.")
    confirm: float = Field(default=1.6, gt=0, description="Standard errors above which it is confirmed.")
    most: int = Field(default=4, ge=1, le=20, description="Reruns of one trial, at most.")

    @model_validator(mode="after")
    def _apart(self) -> Race:
        if self.drop >= self.confirm:
            raise ValueError(f"drop = {self.drop:g} must lie below confirm = {self.confirm:g}")
        return self

    @property
    def most_reruns(self) -> int:
        return 2 * self.most

    def in_words(self, history: History) -> str:
        champion, level = best(history), champion_estimate(history)
        if champion is None or level is None:
            return ""
        better = champion.score.higher_is_better
        bar = (1 if better else -1) * (level.level + self.enter * level.sd)
        return (
            f"A first score {'above' if better else 'below'} {bar:.4g} is trained again with other seeds, up to "
            f"{self.most} times, beside trial {champion.number}; the trial is kept when its reruns alone are better by "
            f"{self.confirm:g} standard errors."
        )

    def weigh(self, history: History, tried: JudgedTrial) -> RuleAnswer | NeedsRerun:
        champion, level = best(history), champion_estimate(history)
        assert champion is not None and level is not None and tried.score.value is not None
        sign = 1 if tried.score.higher_is_better else -1
        evidence: dict[str, float | int | None] = {"level": sign * level.level, "run_sd": level.sd}
        before = f"{tried.score.value:.4g} against trial {champion.number}'s estimated mean of {sign * level.level:.4g}"
        if tried.score.utility < level.level + self.enter * level.sd:
            words = f"not better by {self.enter:g} run sd ({self.enter * level.sd:.2g}): {before}"
            return RuleAnswer(False, words, evidence=evidence)
        own = [rerun.score.utility for rerun in tried.again(tried.number)]
        if len(own) < len([rerun for rerun in tried.reruns if rerun.of == tried.number]):
            return RuleAnswer(False, f"not confirmed, since a rerun crashed: {before}", evidence=evidence)
        if any(rerun.of == champion.number and rerun.score.value is None for rerun in tried.reruns):
            return RuleAnswer(
                False, f"not confirmed, since a rerun of the champion crashed: {before}", evidence=evidence
            )
        if not own:
            return NeedsRerun(tried.number)
        known = utility(history, champion.number)
        fresh = [rerun.score.utility for rerun in tried.again(champion.number)]
        # The run that a champion was kept for does not count: it was kept for being high.
        looked_at = 0 if champion.number == 0 else len(champion.score.values)
        against = [*known[looked_at:], *fresh]
        if not against:
            return NeedsRerun(champion.number)
        gain = statistics.mean(own) - statistics.mean(against)
        z = gain / (level.sd * math.sqrt(1 / len(own) + 1 / len(against)))
        evidence |= {"gain": gain, "z": z, "reruns": len(own)}
        words = (
            f"{sign * gain:+.3g} on average in {len(own)} rerun{'s' * (len(own) > 1)} against {len(against)} run"
            f"{'s' * (len(against) > 1)} of trial {champion.number} (z = {z:.2g})"
        )
        if z >= self.confirm:
            return RuleAnswer(True, f"better: {words}", "confirmed", evidence)
        if z < self.drop or len(own) >= self.most:
            return RuleAnswer(False, f"not confirmed: {words}", evidence=evidence)
        return NeedsRerun(champion.number if len(against) < len(own) else tried.number)

"""Search liberally, certify strictly: keep every trial that is expected to be better, and prove the result at the end.

A score is compared with the champion's estimated mean (tasks/deciding/level_filter.py), not with its own score,
which was kept for being high. A wrong keep costs little: the estimate corrects itself, and the certificate decides.
"""

from __future__ import annotations

from pydantic import Field

from tasks.deciding.champion_estimate import champion_estimate
from tasks.deciding.values import Again, JudgedTrial, Weighed
from tasks.rules import Rule
from tasks.trial import History, best


class Certify(Rule):
    """Keep a trial whose expected effect is positive, allowing for noise."""

    grace: float = Field(
        default=0.05, ge=0, le=1, description="Run sds that what scores above the level may be expected to lose by."
    )
    """Also keep a trial that is as good as the champion: another run to tell them apart would not pay."""

    def weigh(self, history: History, tried: JudgedTrial) -> Weighed | Again:
        champion, level = best(history), champion_estimate(history)
        assert champion is not None and level is not None and tried.score.value is not None
        idea = level.idea(tried.score.goodness, len(tried.score.values))
        sign = 1 if tried.score.higher_is_better else -1
        evidence: dict[str, float | int | None] = {
            "level": sign * level.level,
            "level_se": level.error,
            "run_sd": level.sd,
            "expected": idea.effect,
        }
        above = tried.score.goodness > level.level
        better = idea.effect > 0 or (above and idea.effect > -self.grace * level.sd)
        size = f"{abs(idea.effect):.3g}"
        words = (
            f"than trial {champion.number}: {tried.score.value:.4g} {'beats' if above else 'against'} its estimated "
            f"mean of {sign * level.level:.4g} (se {level.error:.2g})"
        )
        if idea.effect > 0:
            words = f"expected {size} better {words}, luck allowed for (run sd {level.sd:.2g})"
        elif better:
            words = f"hardly worse {words}; expected loss {size}, under {self.grace:g} run sd"
        else:
            words = f"expected {size} worse {words}"
            if above:
                words += f", but luck explains that (run sd {level.sd:.2g}) and most ideas do not help"
        return Weighed(better, words, evidence=evidence)

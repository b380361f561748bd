"""Search liberally, certify strictly: keep every trial that is expected to be better, and prove the result at the
end.

A score is compared with the champion's estimated mean (tasks/deciding/champion_estimate.py), not with its own score,
which was kept for being high. One run is enough: a wrong keep costs little, since the estimate corrects itself and
the certificate decides what ships.
"""

from __future__ import annotations

from pydantic import Field

from tasks.deciding.standing import standing
from tasks.deciding.values import Again, JudgedTrial, Weighed
from tasks.rules import Rule
from tasks.trial import History, best


class Certify(Rule):
    """Keep a trial whose expected effect is positive, allowing for noise."""

    grace: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description="Run sds that what scores above the level may be expected to lose by.",
    )
    """Also keep a trial that is as good as the champion: another run to tell them apart would not pay."""

    def weigh(self, history: History, tried: JudgedTrial) -> Weighed | Again:
        champion, level = best(history), standing(history)
        assert champion is not None and level is not None and tried.score.value is not None
        idea = level.idea(tried.score.goodness, len(tried.score.values))
        sign = 1 if tried.score.higher_is_better else -1
        words = (
            f"{tried.score.value:.4g} against a level of {sign * level.level:.4g} (se {level.error:.2g}) of trial "
            f"{champion.number}: expected {abs(idea.effect):.3g} {'better' if idea.effect > 0 else 'worse'}"
        )
        evidence: dict[str, float | int | None] = {
            "level": sign * level.level,
            "level_se": level.error,
            "run_sd": level.sd,
            "expected": idea.effect,
        }
        above = tried.score.goodness > level.level
        return Weighed(
            idea.effect > 0 or (above and idea.effect > -self.grace * level.sd), words, evidence=evidence
        )

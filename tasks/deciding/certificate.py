"""The certificate: fresh runs of the champion against fresh runs of the baseline, and what they prove.

The search may profit from luck; the result may not. So the last runs of a campaign retrain both programs under fresh
seeds, in blocks of one run per arm in random order. Each block is judged on its own fresh units, so that their luck
is not the same in all runs of an arm. Only these scores are tested (tasks/deciding/statistics.py: welch). The noise
known from the search only bounds the variance of an arm from below. A champion that loses more than the margin in a
guarded metric is not certified.

A campaign declares beforehand whether it has one analysis at level ALPHA, or several, of which the j-th has level
ALPHA / 2^j, so that all together stay within ALPHA.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from environments.metric_guards import Guard
from environments.score import Score
from tasks.deciding.champion_estimate import champion_estimate, gain
from tasks.deciding.statistics import CONFIDENCE, Comparison, bound, corrected, welch
from tasks.trial import History, Level, Run, Trial

ALPHA = 0.05
Looks = Literal["one", "several"]
Arm = Literal["champion", "baseline"]
RUNS = ((40, 5), (16, 4), (0, 3))
"""(trials, runs): from this many trials on, a certificate has this many runs per arm."""
PROMISING = 0.2
"""A smaller expected gain, in standard deviations between runs, is not tested: it would hardly pass."""
FEWEST = 2
"""Runs per arm needed for a variance."""


@dataclass(frozen=True)
class Fresh:
    arm: Arm
    run: Run
    score: Score


@dataclass(frozen=True)
class Guarded:
    metric: str
    margin: float
    """Allowed loss, in the metric's unit."""
    loss: float
    """Mean loss; negative for a gain."""
    bound: float
    """One-sided upper bound of the loss, at CONFIDENCE."""

    @property
    def holds(self) -> bool:
        return self.bound <= self.margin


@dataclass(frozen=True)
class Certificate:
    look: int
    """Number of the analysis, from 1."""
    alpha: float
    """One-sided level of this analysis."""
    champion: int
    environment: str
    """The environment of the runs: the campaign's own, or another."""
    runs: tuple[Fresh, ...]
    """In the order in which they ran."""
    passed: bool
    reason: str
    comparison: Comparison | None = None
    """Champion against baseline, in goodness; None if there is nothing to compare."""
    guards: tuple[Guarded, ...] = ()
    elsewhere: bool = False
    """Whether the environment is another: such a certificate shows transfer, and does not decide what ships."""
    looked_before: int | None = None
    """Earlier uses of the same report questions, across campaigns; None for units that are drawn anew."""

    @property
    def expected(self) -> float | None:
        """Expected gain, corrected for having passed a test; None if it did not pass."""
        return corrected(self.comparison, self.alpha) if self.passed and self.comparison else None

    def expected_score(self, baseline: Sequence[float]) -> float | None:
        """Expected score of what ships, in the metric's unit; None if no fresh run has a score.

        If the baseline ships, the scores of its first runs, `baseline`, count like its fresh runs.
        """
        if not self.passed:
            values = [*baseline, *(s.value for s in self.scores("baseline") if s.value is not None)]
            return sum(values) / len(values) if values else None
        mean = self.mean("champion")
        assert mean is not None and self.comparison is not None and self.expected is not None, "it passed"
        luck = (self.comparison.gain - self.expected) / 2  # half of the correction belongs to each arm
        return mean - luck if self.scores("champion")[0].higher_is_better else mean + luck

    def scores(self, arm: Arm) -> tuple[Score, ...]:
        return tuple(fresh.score for fresh in self.runs if fresh.arm == arm)

    def mean(self, arm: Arm) -> float | None:
        """Mean score of an arm, in the metric's unit; None without any."""
        values = [score.value for score in self.scores(arm) if score.value is not None]
        return sum(values) / len(values) if values else None


def level(trial: Trial, certificates: Iterable[Certificate]) -> Level | None:
    """The level of a trial's keep, given all certificates of its campaign."""
    passed = any(one.champion == trial.number and one.passed for one in certificates if not one.elsewhere)
    return "certified" if passed and trial.verdict.kind == "keep" else trial.verdict.level


def shipped(certificates: Iterable[Certificate]) -> Certificate | None:
    """The newest certificate that passed, whose champion ships; None if the baseline ships."""
    return next((one for one in reversed([*certificates]) if one.passed and not one.elsewhere), None)


def unpromising(history: History) -> str | None:
    """Why a certificate would very likely fail, given the search; None if it has a chance."""
    expected, level = gain(history), champion_estimate(history)
    if expected is None or level is None or expected >= PROMISING * level.sd:
        return None
    return (
        f"of all that was seen, {expected:+.3g} is to be expected of it, next to nothing beside the noise of one run "
        f"(sd {level.sd:.3g}): fresh runs would not show it"
    )


def runs_of(trials: int, deterministic: bool = False) -> int:
    """Runs per arm after a search of `trials` trials."""
    return FEWEST if deterministic else max(arm for least, arm in RUNS if trials >= least)


def alpha_of(look: int, looks: Looks) -> float:
    """Level of an analysis (1, 2, ...); 0 if the campaign has none left."""
    if looks == "several":
        return ALPHA * 0.5**look
    return ALPHA if look == 1 else 0.0


def order(runs: int, seed: int) -> tuple[tuple[Arm, int], ...]:
    """The order of the runs, as arm and run number: blocks of one run per arm, in random order."""
    draw = random.Random(seed)
    blocks: list[tuple[Arm, int]] = []
    for number in range(1, runs + 1):
        arms: list[Arm] = ["champion", "baseline"]
        draw.shuffle(arms)
        blocks += [(arm, number) for arm in arms]
    return tuple(blocks)


def conclude(
    look: int,
    alpha: float,
    champion: int,
    environment: str,
    runs: Sequence[Fresh],
    guards: Mapping[str, Guard],
    sd: float = 0.0,
    noise: Mapping[str, float] | None = None,
    elsewhere: bool = False,
) -> Certificate:
    """Evaluate the runs of a certificate.

    Each arm varies by at least half of the square of the pooled `sd`; `noise`: the same of guarded metrics.
    """
    arms = {arm: [fresh.score for fresh in runs if fresh.arm == arm] for arm in ("champion", "baseline")}

    made = partial(Certificate, look, alpha, champion, environment, tuple(runs), elsewhere=elsewhere)
    missing = [score for score in arms["champion"] if score.value is None]
    if missing:
        first = (missing[0].error or "no score").splitlines()[0]
        crashed = f"{len(missing)} of {len(arms['champion'])} fresh runs of the champion crashed: {first}"
        return made(False, crashed)
    scored = [score for score in arms["baseline"] if score.value is not None]
    if len(scored) < FEWEST or len(arms["champion"]) < FEWEST:
        left = f"{len(scored)} of {len(arms['baseline'])} fresh runs of the baseline have a score"
        return made(False, f"{left}: there is nothing to compare with")
    now, before = ([score.goodness for score in scores] for scores in (arms["champion"], scored))
    found, sds = welch(now, before, floor=sd**2 / 2), noise or {}
    held = tuple(_guarded(name, g, arms["champion"], scored, sds.get(name, 0.0)) for name, g in guards.items())
    if alpha > 0 and found.p <= alpha:
        fallen = next((one for one in held if not one.holds), None)
        reason = _fell(fallen) if fallen else f"p = {found.p:.2g} at {alpha:.3g}"
        return made(fallen is None, reason, found, held)
    if found.gain <= 0:
        return made(False, "on fresh runs it is no better than the baseline", found, held)
    luck = f"on fresh runs the gain could be luck: p = {found.p:.2g}, needed {alpha:.3g} or less"
    return made(False, luck, found, held)


def _fell(one: Guarded) -> str:
    return (
        f"{one.metric} may have become worse by {one.bound:.4g} (measured {one.loss:.4g}; with {CONFIDENCE:.0%} "
        f"confidence no more than that), where {one.margin:.4g} is allowed"
    )


def _guarded(name: str, guard: Guard, now: Sequence[Score], before: Sequence[Score], sd: float) -> Guarded:
    """Non-inferiority of a guarded metric: a one-sided bound of its loss against its margin."""
    kept = [-guard.loss(score.also[name], 0.0) for score in now]
    had = [-guard.loss(score.also[name], 0.0) for score in before]
    found = welch(kept, had, floor=sd**2 / 2)
    return Guarded(name, guard.margin, -found.gain, -bound(found))

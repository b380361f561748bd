"""The certificate: fresh runs of the champion against fresh runs of the baseline, and what they prove.

The search may build on luck; what ships may not. So the last runs of a campaign start both programs anew, under fresh
seeds, in blocks of one each in random order. A block is judged on fresh units of its own: what these favour in one arm
must not be in all of its runs alike. Their scores alone are tested (tasks/deciding/statistics.py: welch); what the
search knew
of the noise only keeps an arm from looking quieter than training is. A champion that falls in a guarded metric by
more than its margin is not certified, however good it is.

A campaign declares beforehand whether it looks once, with all of ALPHA, or again and again: then look j has
ALPHA / 2^j, and all of them together ALPHA at most.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from environments.metric_guards import Guard
from environments.score import Score
from tasks.deciding.standing import gain, reference, standing
from tasks.deciding.statistics import CONFIDENCE, Comparison, bound, corrected, pooled, welch
from tasks.trial import History, Level, Run, Trial, measured

ALPHA = 0.05
Looks = Literal["one", "several"]
Arm = Literal["champion", "baseline"]
RUNS = ((40, 5), (16, 4), (0, 3))
"""Trials of a search from which on a certificate has so many runs of each arm."""
PROMISING = 0.2
"""Run sds of expected gain below which a champion is not worth its certificate: hardly one would pass, but by luck."""
FEWEST = 2
"""Runs of each arm without which there is no variance to test with."""


@dataclass(frozen=True)
class Fresh:
    """One fresh run of a certificate."""

    arm: Arm
    run: Run
    score: Score


@dataclass(frozen=True)
class Guarded:
    """What became of a guarded metric."""

    metric: str
    margin: float
    """How much worse it may get, in its own unit."""
    loss: float
    """How much worse it got, on average; negative when it got better."""
    bound: float
    """With CONFIDENCE it did not get worse by more."""

    @property
    def holds(self) -> bool:
        return self.bound <= self.margin


@dataclass(frozen=True)
class Certificate:
    """What fresh runs say of a champion."""

    look: int
    """1 for the first of a campaign."""
    alpha: float
    """What this look was tested at, one-sided."""
    champion: int
    """Its trial."""
    environment: str
    """Where the runs took place: the campaign's own, or another that it is to carry over to."""
    runs: tuple[Fresh, ...]
    """In the order in which they ran."""
    passed: bool
    reason: str
    """In plain words."""
    comparison: Comparison | None = None
    """Champion against baseline, in goodness; None when there is nothing to compare."""
    guards: tuple[Guarded, ...] = ()
    elsewhere: bool = False
    """Whether it is about another environment than the campaign's: it says what carries over, and ships nothing."""
    looked_before: int | None = None
    """Looks at the same report questions before this one, across campaigns; None where they are no finite pool."""

    @property
    def expected(self) -> float | None:
        """The gain to expect of what passed: estimates that pass a test run slightly high. None if it did not pass."""
        return corrected(self.comparison, self.alpha) if self.passed and self.comparison else None

    def expected_score(self, baseline: Sequence[float]) -> float | None:
        """The score to expect of what ships, in the metric's own unit; None when no fresh run has one.

        Args:
            baseline: What the baseline's first runs scored: where it ships they count like its fresh ones, which were
                as likely lucky as the champion's were unlucky.
        """
        if not self.passed:
            values = [
                *baseline,
                *(score.value for score in self.scores("baseline") if score.value is not None),
            ]
            return sum(values) / len(values) if values else None
        mean = self.mean("champion")
        assert mean is not None and self.comparison is not None and self.expected is not None, "it passed"
        luck = (self.comparison.gain - self.expected) / 2  # of both arms alike
        return mean - luck if self.scores("champion")[0].higher_is_better else mean + luck

    def scores(self, arm: Arm) -> tuple[Score, ...]:
        return tuple(fresh.score for fresh in self.runs if fresh.arm == arm)

    def mean(self, arm: Arm) -> float | None:
        """The mean score of an arm, in the metric's own unit; None when none of its runs has one."""
        values = [score.value for score in self.scores(arm) if score.value is not None]
        return sum(values) / len(values) if values else None


def level(trial: Trial, certificates: Iterable[Certificate]) -> Level | None:
    """How far a trial's keep can be believed, all certificates of its campaign considered."""
    passed = any(one.champion == trial.number and one.passed for one in certificates if not one.elsewhere)
    return "certified" if passed and trial.verdict.kind == "keep" else trial.verdict.level


def shipped(certificates: Iterable[Certificate]) -> Certificate | None:
    """The newest certificate that passed: what a campaign ships; None: the baseline."""
    return next((one for one in reversed([*certificates]) if one.passed and not one.elsewhere), None)


def unpromising(history: History) -> str | None:
    """Why fresh runs of a champion would show nothing, by all that the search has seen; None when they may."""
    expected, level = gain(history), standing(history)
    if expected is None or level is None or expected >= PROMISING * level.sd:
        return None
    return (
        f"of all that was seen, {expected:+.3g} is to be expected of it, next to nothing beside the noise of one run "
        f"(sd {level.sd:.3g}): fresh runs would not show it"
    )


def runs_of(trials: int, deterministic: bool = False) -> int:
    """Runs of each arm after a search of so many trials."""
    return FEWEST if deterministic else max(arm for least, arm in RUNS if trials >= least)


def alpha_of(look: int, looks: Looks) -> float:
    """What a look (1, 2, ...) is tested at; 0 when the campaign declared one and took it."""
    if looks == "several":
        return ALPHA * 0.5**look
    return ALPHA if look == 1 else 0.0


def order(runs: int, seed: int) -> tuple[tuple[Arm, int], ...]:
    """Which arm runs when, and for the how many-th time: blocks of one run each, in random order."""
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
    """What the runs of a certificate prove.

    Args:
        sd: The campaign's pooled standard deviation between runs: neither arm is taken for quieter than half its
            variance.
        noise: The same for guarded metrics, by name, where it is known.
    """
    arms = {arm: [fresh.score for fresh in runs if fresh.arm == arm] for arm in ("champion", "baseline")}

    def made(passed: bool, reason: str, comparison: Comparison | None = None, *held: Guarded) -> Certificate:
        return Certificate(
            look,
            alpha,
            champion,
            environment,
            tuple(runs),
            passed,
            reason,
            comparison,
            tuple(held),
            elsewhere,
        )

    missing = [score for score in arms["champion"] if score.value is None]
    if missing:
        first = (missing[0].error or "no score").splitlines()[0]
        return made(
            False, f"{len(missing)} of {len(arms['champion'])} fresh runs of the champion crashed: {first}"
        )
    scored = [score for score in arms["baseline"] if score.value is not None]
    if len(scored) < FEWEST or len(arms["champion"]) < FEWEST:
        left = f"{len(scored)} of {len(arms['baseline'])} fresh runs of the baseline have a score"
        return made(False, f"{left}: there is nothing to compare with")
    found = welch(
        [score.goodness for score in arms["champion"]],
        [score.goodness for score in scored],
        floor=sd**2 / 2,
    )
    held = [
        _guarded(name, guard, arms["champion"], scored, (noise or {}).get(name, 0.0))
        for name, guard in guards.items()
    ]
    fallen = [one for one in held if not one.holds]
    if not (alpha > 0 and found.p <= alpha):
        return made(False, _too_little(found, alpha), found, *held)
    if fallen:
        return made(False, _fell(fallen[0]), found, *held)
    return made(True, f"p = {found.p:.2g} at {alpha:.3g}", found, *held)


def _too_little(found: Comparison, alpha: float) -> str:
    if found.gain <= 0:
        return "on fresh runs it is no better than the baseline"
    return f"on fresh runs the gain could be luck: p = {found.p:.2g}, needed {alpha:.3g} or less"


def _fell(one: Guarded) -> str:
    return (
        f"{one.metric} may have become worse by {one.bound:.4g} (measured {one.loss:.4g}; with {CONFIDENCE:.0%} "
        f"confidence no more than that), where {one.margin:.4g} is allowed"
    )


def guard_noise(guards: Mapping[str, Guard], history: History) -> dict[str, float]:
    """The standard deviation of guarded metrics between runs of the baseline; of those that were measured twice."""
    first = reference(history)
    scores = measured(history, first.number) if first else ()
    seen = {name: pooled([[score.also[name] for score in scores if name in score.also]]) for name in guards}
    return {name: found.sd for name, found in seen.items() if found}


def _guarded(name: str, guard: Guard, now: Sequence[Score], before: Sequence[Score], sd: float) -> Guarded:
    """Whether a metric is not worse than before by more than its margin: a one-sided bound of non-inferiority."""
    kept = [-guard.loss(score.also[name], 0.0) for score in now]
    had = [-guard.loss(score.also[name], 0.0) for score in before]
    found = welch(kept, had, floor=sd**2 / 2)
    return Guarded(name, guard.margin, -found.gain, -bound(found))

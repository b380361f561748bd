"""The certificate: fresh runs of the champion against fresh runs of the baseline, and what they prove.

The search may profit from luck; the result may not. So the last runs of a campaign retrain both programs under fresh
seeds, in groups, each in random order (tasks/certifying/group_design.py). Run n of either arm is judged on the same
fresh units, and every n on its own, so that their luck is not the same in all runs of an arm. After each group all runs
so far are tested (tasks/deciding/statistics.py: welch). The certificate ends when the test passes, when that has become
unlikely, or with its last group. Runs of the search tell the noise, and where nothing drifted those of the baseline
count as its runs (tasks/certifying/reuse.py). All runs have to come from one kind of machine, since under a time budget
a faster one trains further. A champion that loses more than the margin in a guarded metric is not certified.

A campaign declares beforehand whether it has one certificate with an error of ALPHA, or several, of which the j-th
has ALPHA / 2^j, so that all together stay within ALPHA.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pydantic import ConfigDict

from environments.metric_guards import Guard
from environments.score import Score
from tasks.certifying.group_design import FEWEST, HOPELESS, Arm, Design
from tasks.certifying.reuse import Reuse, Searched, reuse, spreads
from tasks.certifying.transfer import CAMPAIGNS, Conditions
from tasks.deciding.champion_estimate import reference
from tasks.deciding.statistics import CONFIDENCE, Comparison, bound, corrected, error_of, pooled, welch
from tasks.trial import History, Level, Run, Trial, machines_of, measured

COLLAPSE = 3.0
"""A run that lies so many run sds below the median of the baseline's fresh runs has collapsed."""
RESOLUTION = 1e-6
"""An error below this share of the largest score is rounding, not noise."""


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
    __pydantic_config__ = ConfigDict(defer_build=True)
    """Its reader, which takes milliseconds to make, is made with the first certificate."""
    look: int
    """Number of the certificate in its campaign, from 1."""
    alpha: float
    """One-sided error of all looks of this certificate together."""
    champion: int
    environment: str
    """The environment of the runs: the campaign's own, or another."""
    runs: tuple[Fresh, ...]
    """In the order in which they ran; first those of earlier certificates of the same champion."""
    passed: bool
    reason: str
    comparison: Comparison | None = None
    """Champion against baseline, in utility; None if there is nothing to compare."""
    guards: tuple[Guarded, ...] = ()
    elsewhere: bool = False
    """Whether environment or training budget is another: such a certificate does not decide what ships."""
    conditions: Conditions = CAMPAIGNS
    """Under which its runs were made."""
    looked_before: int | None = None
    """Earlier uses of the same report questions, across campaigns; None for units that are drawn anew."""
    design: Design | None = None
    """None in certificates of version 0.2 and before, which had one look at all runs."""
    level: float | None = None
    """One-sided level of the last look; None for `alpha`."""
    another: bool = False
    """Whether it is not over: another group of runs is to be made."""
    reused: tuple[Searched, ...] = ()
    """Runs of the search that the test counted as runs of the baseline."""
    not_reused: str = ""
    """Why there are none, though the search has some; else empty."""
    carried: int = 0
    """How many of the runs are those of earlier certificates."""
    same_units: int = 0
    """Units that were the same in all runs, to which the result is limited; 0 if each number had its own."""
    collapsed: tuple[int, int] = (0, 0)
    """Collapsed runs of the champion and of the baseline."""

    @property
    def budget(self) -> float:
        """Training budget of each run, in that of the environment."""
        return self.conditions.budget

    @property
    def tested_at(self) -> float:
        return self.alpha if self.level is None else self.level

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The interval of the gain that belongs to the test; None if there is nothing to compare.

        Its lower end is above 0 if the test passed. With the confidence of all looks together, 1 - alpha, the gain is
        at least the lower end; the upper end is as far from the measured gain.
        """
        if self.comparison is None or not 0 < self.tested_at < 0.5:
            return None
        low = bound(self.comparison, self.tested_at)
        return low, 2 * self.comparison.gain - low

    @property
    def planned(self) -> tuple[int, int]:
        """Runs of champion and baseline at most."""
        if self.design is None:
            return len(self.scores("champion")), len(self.scores("baseline"))
        return self.design.champion, self.design.baseline

    @property
    def machines(self) -> tuple[str, ...]:
        """The kinds of machine that its runs are from."""
        return machines_of(fresh.run for fresh in self.runs)

    @property
    def expected(self) -> float | None:
        """Expected gain, corrected for having passed a test; None if it did not pass.

        The level is that of the last look: whoever passes an earlier one would mostly have passed that too.
        """
        level = self.design.levels[-1] if self.design else self.tested_at
        return corrected(self.comparison, level) if self.passed and self.comparison else None

    def expected_score(self, baseline: Sequence[float]) -> float | None:
        """Expected score of what ships, in the metric's unit; None if no fresh run has a score.

        If the baseline ships, the scores of its first runs, `baseline`, count like its fresh runs.
        """
        if not self.passed:
            values = [*baseline, *(s.value for s in self.scores("baseline") if s.value is not None)]
            return sum(values) / len(values) if values else None
        mean = self.mean("champion")
        assert mean is not None and self.comparison is not None and self.expected is not None, "it passed"
        # The correction belongs to the arms as they share the squared error.
        luck = (self.comparison.gain - self.expected) * self.comparison.share
        return mean - luck if self.scores("champion")[0].higher_is_better else mean + luck

    def scores(self, arm: Arm) -> tuple[Score, ...]:
        """The score of each fresh run of an arm."""
        return tuple(fresh.score for fresh in self.runs if fresh.arm == arm)

    def mean(self, arm: Arm) -> float | None:
        """Mean score of an arm's runs that the test counted, in the metric's unit; None without any."""
        scores = (*self.scores(arm), *(one.score for one in self.reused if arm == "baseline"))
        values = [score.value for score in scores if score.value is not None]
        return sum(values) / len(values) if values else None


def level(trial: Trial, certificates: Iterable[Certificate]) -> Level | None:
    """The level of a trial's keep, given all certificates of its campaign."""
    passed = any(one.champion == trial.number and one.passed for one in certificates if not one.elsewhere)
    return "certified" if passed and trial.verdict.kind == "keep" else trial.verdict.level


def shipped(certificates: Iterable[Certificate]) -> Certificate | None:
    """The newest certificate that passed, whose champion ships; None if the baseline ships."""
    return next((one for one in reversed([*certificates]) if one.passed and not one.elsewhere), None)


def unpromising(history: History, champion: Trial) -> str | None:
    """Why a certificate would be of no use: the champion is not even better in the search. None if it is."""
    first = reference(history)
    means = [[score.utility for score in measured(history, one.number)] for one in (champion, first) if one]
    if len(means) < 2 or not all(means) or statistics.mean(means[0]) > statistics.mean(means[1]):
        return None
    return "in the search it scored no better than the baseline"


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
    *,
    design: Design | None = None,
    search: Sequence[Searched] = (),
    apart: str = "",
    same_units: int = 0,
    deterministic: bool = False,
    carried: int = 0,
) -> Certificate:
    """Evaluate the runs of a certificate so far; `another` in the result asks for the next group.

    Args:
        sd: Standard deviation between runs in the search; each arm varies by at least half of its square.
        noise: The same of guarded metrics.
        design: The look is the one with so many runs; None: one look at all runs, at `alpha`.
        search: Runs of the baseline in the search.
        apart: Why these do not count as runs of the baseline, whether or not anything drifted.
        same_units: Units that are the same in all runs; 0 if every run number has its own.
        deterministic: Whether equal runs score the same, so that runs without any spread prove something.
        carried: How many of the runs come from earlier certificates.
    """
    arms = {arm: [fresh for fresh in runs if fresh.arm == arm] for arm in ("champion", "baseline")}
    at = (len(arms["champion"]), len(arms["baseline"]))
    number = design.groups.index(at) if design else 0
    level, last = (design.levels[number], number == len(design.groups) - 1) if design else (alpha, True)
    now = [fresh.score for fresh in arms["champion"]]
    scored = [(fresh.run, fresh.score) for fresh in arms["baseline"] if fresh.score.value is not None]
    before, again = [score for _, score in scored], reuse(search, scored, apart)
    made = partial(
        Certificate, look, alpha, champion, environment, tuple(runs), elsewhere=elsewhere, design=design, level=level,
        carried=carried, same_units=same_units,
    )  # fmt: skip
    if missing := [score for score in now if score.value is None]:
        first = (missing[0].error or "no score").splitlines()[0]
        return made(False, f"{len(missing)} of {len(now)} fresh runs of the champion crashed: {first}")
    if len(before) < FEWEST or len(now) < FEWEST:
        left = f"{len(before)} of {at[1]} fresh runs of the baseline have a score"
        return made(False, f"{left}: there is nothing to compare with", another=not last)
    made = partial(made, reused=again.counted, not_reused=again.refused, collapsed=_collapsed(now, before, sd))
    if len(kinds := machines_of(fresh.run for fresh in runs)) > 1:
        return made(False, f"its runs are from different kinds of machine ({', '.join(kinds)}), which do not compare")
    found = compare(now, before, again, search, sd, same_units > 0)
    held = _guards(guards, now, before, noise or {}, level / alpha if alpha else 1.0)
    if not deterministic and _is_noiseless(found, now):
        return made(
            False, "neither arm's runs differ among themselves: without noise nothing can be tested "
            "(`deterministic = true` in environment.toml says that equal runs score the same)", found, held,
        )  # fmt: skip
    if alpha > 0 and found.p <= level:
        fallen = next((one for one in held if not one.holds), None)
        reason = _fell(fallen) if fallen else f"p = {found.p:.2g} at {level:.3g}"
        return made(fallen is None, reason, found, held, another=fallen is not None and not last)
    if not last and alpha > 0 and found.p <= HOPELESS[min(number, 1)]:
        return made(False, f"p = {found.p:.2g} at {level:.3g}: more runs follow", found, held, another=True)
    if found.gain <= 0:
        return made(False, "on fresh runs it is no better than the baseline", found, held)
    needed = f"needed {level:.3g} or less" if last else "more runs would hardly change that"
    return made(False, f"on fresh runs the gain could be luck: p = {found.p:.2g}, {needed}", found, held)


def compare(
    now: Sequence[Score], before: Sequence[Score], again: Reuse, search: Sequence[Searched] = (), sd: float = 0.0,
    same_units: bool = False,
) -> Comparison:  # fmt: skip
    """The test of a certificate: the champion's fresh runs against the baseline's and those of the search that count.

    An arm varies by at least half of the square of `sd`, or of the spread in the search if that is larger, and, where
    every run has units of its own, by the squared standard error over these.
    """
    seen = pooled(spreads(search))
    sd = max(sd, seen.sd if seen else 0.0)
    mine = [score.utility for score in now]
    theirs = [score.utility for score in (*before, *(one.score for one in again.counted))]
    floors = [sd**2 / 2] * 2 if same_units else [max(sd**2 / 2, _units_error(arm)) for arm in (now, before)]
    return welch(mine, theirs, (floors[0], floors[1]), again.spread)


def _units_error(arm: Sequence[Score]) -> float:
    """The mean squared standard error of runs over their units; 0 if one is unknown."""
    errors = [score.se for score in arm if score.se is not None]
    return statistics.fmean(error**2 for error in errors) if len(errors) == len(arm) else 0.0


def _is_noiseless(found: Comparison, now: Sequence[Score]) -> bool:
    return error_of(found) <= RESOLUTION * max(abs(found.gain), *(abs(score.utility) for score in now))


def _collapsed(now: Sequence[Score], before: Sequence[Score], sd: float) -> tuple[int, int]:
    """How many runs of either arm lie far below the usual run of the baseline."""
    noise = pooled([[score.utility for score in before]])
    spread = max(sd, noise.sd if noise else 0.0)
    least = statistics.median(score.utility for score in before) - COLLAPSE * spread
    mine, theirs = (sum(score.utility < least for score in arm) for arm in (now, before))
    return mine, theirs


def _fell(one: Guarded) -> str:
    return (
        f"{one.metric} may have become worse by {one.bound:.4g} (measured {one.loss:.4g}; with {CONFIDENCE:.0%} "
        f"confidence no more than that), where {one.margin:.4g} is allowed"
    )


def _guards(
    guards: Mapping[str, Guard], now: Sequence[Score], before: Sequence[Score], noise: Mapping[str, float], share: float
) -> tuple[Guarded, ...]:
    """Non-inferiority of the guarded metrics. (share: of the error that belongs to this look)"""
    doubt = (1 - CONFIDENCE) * share
    return tuple(_guarded(name, g, now, before, noise.get(name, 0.0), doubt) for name, g in guards.items())


def _guarded(
    name: str, guard: Guard, now: Sequence[Score], before: Sequence[Score], sd: float, doubt: float
) -> Guarded:
    """A one-sided bound of a guarded metric's loss against its margin."""
    kept, had = ([-guard.loss(score.also[name], 0.0) for score in arm] for arm in (now, before))
    found = welch(kept, had, floor=sd**2 / 2)
    return Guarded(name, guard.margin, -found.gain, -bound(found, doubt))

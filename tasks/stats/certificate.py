"""The certificate: fresh runs of the champion against fresh runs of the baseline, and what they prove.

The search may profit from luck; the result may not. So both programs are retrained under fresh seeds, in groups, each
in random order (tasks/stats/design.py). The search's runs of the baseline, which nobody selected, count too, unless the
machine has become faster since. Run n of either arm is judged on the same fresh units, and every n on its own. After
each group all runs so far are tested (tasks/stats/permutation.py). The certificate ends when the test passes, when that
has become hopeless, or with its last group; another goes on from there with what is left of the error. All runs come
from one kind of machine. A champion that loses more than the margin in a guarded metric is not certified, nor one that
ignores its seed: of such a program all runs are one.
"""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

from pydantic import ConfigDict

from environments.score import Guard, Score
from tasks.stats.design import HOPELESS, Arm, Design, Groups
from tasks.stats.permutation import CONFIDENCE, Comparison, Group, compare, corrected, pooled
from tasks.trial import History, Level, Params, Run, Trial, baseline, machines_of

FEWEST = 2
"""Runs of either arm that need a score, and of the baseline that are to be fresh."""
REUSED = 3
PACE = 0.05
"""Largest relative difference of the steps in a budget that is no drift."""
RESOLUTION = 1e-6
"""A spread below this share of the largest score is rounding, not noise."""


@dataclass(frozen=True)
class Conditions:
    """Conditions under which the runs of a certificate were made."""

    budget: float = 1.0
    """Training budget of each run, in that of the environment."""
    changed: Params | None = None
    """Parameters that the champion changes of another environment's baseline; None in the campaign's own."""
    left_out: tuple[str, ...] = ()
    """What of the champion could not be tried in another environment, and why."""

    @property
    def name(self) -> str:
        """Their part of a name; empty for the environment's own budget."""
        return "" if self.budget == 1 else f"-{self.budget:g}x"


CAMPAIGNS = Conditions()
"""Those of a campaign's own certificates."""


@dataclass(frozen=True)
class Fresh:
    run: Run
    score: Score
    arm: Arm = "baseline"


@dataclass(frozen=True)
class Guarded:
    metric: str
    margin: float
    """Allowed loss, in the metric's unit."""
    loss: float
    """Mean loss; negative for a gain."""
    bound: float | None
    """One-sided upper bound of the loss, at CONFIDENCE; None if the runs are too few for one."""

    @property
    def holds(self) -> bool:
        return self.bound is not None and self.bound <= self.margin


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
    """In their order; first those of earlier certificates of the same champion."""
    passed: bool
    reason: str
    design: Design
    """Its groups, those of earlier certificates of the same champion included."""
    level: float
    """One-sided level of the last look."""
    comparison: Comparison | None = None
    """Champion against baseline, in utility; None if there is nothing to compare."""
    guards: tuple[Guarded, ...] = ()
    elsewhere: bool = False
    """Whether environment or training budget is another: such a certificate does not decide what ships."""
    conditions: Conditions = CAMPAIGNS
    """Under which its runs were made."""
    looked_before: int | None = None
    """Earlier uses of the same report questions, across campaigns; None for units that are drawn anew."""
    another: bool = False
    """Whether it is not over: another group of runs is to be made."""
    reused: tuple[Fresh, ...] = ()
    """Runs of the search that the test counted as runs of the baseline."""
    not_reused: str = ""
    """Why there are none, though the search has some; else empty."""
    carried: int = 0
    """How many of the runs are those of earlier certificates."""
    same_units: int = 0
    """Units that were the same in all runs, to which the result is limited; 0 if each number had its own."""

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The interval of the gain that belongs to the test, at 1 - level; None if there is none.

        Its lower end is above 0 if the test passed; the upper end is as far from the measured gain.
        """
        test = self.comparison
        return (test.low, test.high) if test and test.low is not None and test.high is not None else None

    @property
    def spent(self) -> tuple[Groups, tuple[float, ...]]:
        """The groups that were made, and the error spent by each."""
        looks = self.design.levels.index(self.level) + 1
        return self.design.groups[:looks], self.design.levels[:looks]

    @property
    def machines(self) -> tuple[str, ...]:
        """The kinds of machine that its runs are from."""
        return machines_of(fresh.run for fresh in self.runs)

    @property
    def expected(self) -> float | None:
        """Expected gain, corrected for having passed a test; None if it did not pass."""
        if not (self.passed and self.comparison):
            return None
        return corrected(self.comparison, self.level, self.design.levels[-1])

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


def searched(history: History) -> tuple[Fresh, ...]:
    """The baseline's runs that have a score: REUSED at most, so that luck there is not the whole comparison."""
    first = baseline(history)
    runs = zip(first.runs, first.score.each, strict=False) if first else ()
    return tuple(Fresh(run, score) for run, score in runs if score.value is not None)[:REUSED]


def drift(before: Sequence[Fresh], runs: Sequence[Fresh], by_time: bool = True) -> str:
    """Why the search's runs of the baseline do not count beside fresh ones; empty if they do.

    Args:
        by_time: Whether a faster machine trains further in the budget, which shows in the steps.
    """
    fresh = [one.run for one in runs if one.arm == "baseline" and one.run.status == "finished"]
    if len(machines_of((*(one.run for one in before), *(one.run for one in runs)))) > 1:
        return "they are from several machines"
    if before and not fresh:
        return "the first fresh runs of the baseline crashed"
    if not by_time or not before:
        return ""
    then, now = ([run.steps or 0 for run in some] for some in ((one.run for one in before), fresh))
    if not all((*then, *now)):
        return "they report no steps, in which a change of the machine's speed would show"
    pace = statistics.mean(now) / statistics.mean(then) - 1
    return f"the baseline now makes {pace:.0%} more steps in the same budget" if pace > PACE else ""


def counted(before: Sequence[Fresh], baseline_runs: int) -> int:
    """How many of the search's runs count among so many of the baseline: some of these are to be fresh."""
    return min(len(before), max(baseline_runs - FEWEST, 0))


def conclude(
    look: int, alpha: float, champion: int, environment: str, runs: Sequence[Fresh], design: Design, *,
    search: Sequence[Fresh] = (), guards: Mapping[str, Guard] | None = None, deterministic: bool = False,
    same_play: str = "",
) -> Certificate:  # fmt: skip
    """Evaluate the runs of a certificate so far; `another` in the result asks for the next group.

    Args:
        design: Its groups; the look is the one with so many runs.
        search: Runs of the search that count as runs of the baseline, as many as `counted` says.
        deterministic: Whether equal runs score the same, so that runs without any spread prove something.
        same_play: Why its runs are no runs of their own; empty if they are.
    """
    now, fresh = ([one.score for one in runs if one.arm == arm] for arm in ("champion", "baseline"))
    at = next(n for n, (c, b) in enumerate(design.groups) if (c, b - counted(search, b)) == (len(now), len(fresh)))
    level, last = design.levels[at], at == len(design.groups) - 1
    again = tuple(search[: counted(search, design.groups[at][1])])
    theirs = [*(one.score for one in again), *fresh]
    before = [score for score in theirs if score.value is not None]

    made = partial(
        Certificate, look, alpha, champion, environment, tuple(runs), design=design, level=level, reused=again
    )  # fmt: skip

    if missing := [score for score in now if score.value is None]:
        first = (missing[0].error or "no score").splitlines()[0]
        return made(False, f"{len(missing)} of {len(now)} fresh runs of the champion crashed: {first}")
    if len(before) < FEWEST or len(now) < FEWEST:
        left = f"{len(before)} of {len(theirs)} runs of the baseline have a score"
        return made(False, f"{left}: there is nothing to compare with", another=not last)
    if len(kinds := machines_of(fresh.run for fresh in runs)) > 1:
        return made(False, f"its runs are from different kinds of machine ({', '.join(kinds)}), which do not compare")
    if same_play:
        return made(False, same_play)
    levels = design.levels[: at + 1]
    grouped = partial(_in_groups, now, fresh, search, design.groups[: at + 1])
    test = compare(grouped(attrgetter("utility")), levels, deterministic)
    held = tuple(_guarded(name, guard, grouped, levels) for name, guard in (guards or {}).items())
    made = partial(made, comparison=test, guards=held)
    if not deterministic and not _spread(now, before):
        return made(
            False, "neither arm's runs differ among themselves: without noise nothing can be tested "
            "(`deterministic = true` in environment.toml says that equal runs score the same)",
        )  # fmt: skip
    if test.p <= level:
        fallen = next((one for one in held if not one.holds), None)
        reason = _fell(fallen) if fallen else f"p = {test.p:.2g} at {level:.3g}"
        return made(fallen is None, reason, another=fallen is not None and not last)
    if not last and test.p <= HOPELESS:
        return made(False, f"p = {test.p:.2g} at {level:.3g}: more runs follow", another=True)
    if test.gain <= 0:
        return made(False, "on fresh runs it is no better than the baseline")
    needed = f"needed {level:.3g} or less" if last else "more runs would hardly change that"
    return made(False, f"on fresh runs the gain could be luck: p = {test.p:.2g}, {needed}")


def _in_groups(
    now: Sequence[Score], fresh: Sequence[Score], search: Sequence[Fresh], sizes: Groups,
    value: Callable[[Score], float],
) -> list[Group]:  # fmt: skip
    """A value of each run that has a score, larger being better, by the group that brought them."""

    def values(scores: Sequence[Score]) -> list[float]:
        return [value(score) for score in scores if score.value is not None]

    groups, mine, theirs, old = list[Group](), 0, 0, 0
    for champion, baseline_runs in sizes:
        again = counted(search, baseline_runs)
        first = now[mine:champion]
        second = [*(one.score for one in search[old:again]), *fresh[theirs : baseline_runs - again]]
        groups.append((values(first), values(second)))
        mine, theirs, old = champion, baseline_runs - again, again
    return groups


def _spread(now: Sequence[Score], before: Sequence[Score]) -> bool:
    """Whether the runs of an arm differ by more than rounding."""
    noise = pooled([[score.utility for score in arm] for arm in (now, before)])
    return bool(noise and noise.sd > RESOLUTION * max(abs(score.utility) for score in (*now, *before)))


def _fell(one: Guarded) -> str:
    surely = f"by {one.bound:.4g}" if one.bound is not None else "by any amount"
    return (
        f"{one.metric} may have become worse {surely} (measured {one.loss:.4g}; with {CONFIDENCE:.0%} "
        f"confidence no more than that), where {one.margin:.4g} is allowed"
    )


def _guarded(
    name: str, guard: Guard, grouped: Callable[[Callable[[Score], float]], list[Group]], levels: Sequence[float]
) -> Guarded:
    """A one-sided bound of a guarded metric's loss against its margin, whose error is that of all looks together."""
    groups = grouped(lambda score: -guard.loss(score.also[name], 0.0))
    found = compare(groups, levels, deterministic=True)  # two arms that both stand still have lost what they show
    return Guarded(name, guard.margin, -found.gain, None if found.low is None else -found.low)

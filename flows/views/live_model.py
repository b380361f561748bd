"""What a person wants to see of a campaign that runs, at one moment: what is tried, beside what, and how far it is.

`Scene` is put together by flows/views/follow.py and drawn by flows/views/live_view.py.
"""

from __future__ import annotations

import datetime
import statistics
from dataclasses import dataclass
from typing import Any, Literal

from environments import Environment, plugins
from flows.views.curves import Axis, Curve, Point
from flows.views.status import RULES, certifies
from tasks.deciding.certificate import runs_of
from tasks.rules import Rule
from tasks.trial import History, Proposal, Trial, best, tried

RECENT = 10
"""Trials whose pace tells how long the next ones take."""


@dataclass(frozen=True)
class UnderWay:
    """The trial that runs now, beside the champion that it has to beat."""

    number: int
    proposal: Proposal
    phase: Literal["starting", "training", "judging"]
    elapsed: float
    """Seconds that it has trained, at most its budget."""
    step: float | None
    curve: Curve
    champion_curve: Curve
    run: str = ""
    """Which of its runs it is, in words; empty where there is only one."""

    def axis(self, environment: Environment) -> Axis:
        """What its budget counts, where both curves can be compared: seconds, or steps if they are used up first."""
        reference = self.champion_curve if self.champion_curve.points else self.curve
        last = reference.points[-1] if reference.points else Point(None, None, 0.0)
        if last.elapsed is None:
            return "step"
        if not environment.budget_steps or last.step is None:
            return "elapsed"
        faster = last.step / environment.budget_steps >= last.elapsed / environment.budget_seconds
        return "step" if faster else "elapsed"


@dataclass(frozen=True)
class Certifying:
    """The certificate that is being made."""

    champion: int
    """The trial that it is about."""
    run: int
    """The fresh run under way, from 1."""
    runs: int
    """Of both arms together."""
    since: float
    """Seconds since the run under way began."""


@dataclass(frozen=True)
class Night:
    """How far a campaign is, and what will end it."""

    trials: float
    """Decided, the baseline not counted; cancelled ones by the part that they ran."""
    asked: int
    spent: float
    """Seconds, over all lives."""
    share: float
    """How much of what binds is used up, 0..1."""
    binds: Literal["trials", "time"]
    ends: float | None
    """Unix time, in seconds; None while no trial has shown how long one takes."""


def night(
    spec: dict[str, Any],
    environment: Environment,
    history: History,
    spent: float,
    since: float,
    now: float,
    certifying: Certifying | None = None,
) -> Night:
    """How far the night is: whichever ends first, the trials and the certificate, or the time.

    Args:
        spent: Seconds over all lives.
        since: Seconds since the first of the trials under way was proposed; 0 when none is.
        now: Unix time, in seconds.
    """
    hands = spec.get("parallel", 1)
    each, a_run = pace(history, spec["replicates"], hands), a_fresh_run(history)
    trials = tried(history)
    begun = trials + bool(history)
    left = 0 if certifying else max(spec["trials"] + 1 - begun, 0)
    a_trial = each or environment.budget_seconds * spec["replicates"]
    each_run = (environment.budget_seconds if a_run is None else a_run) / hands
    reserve = fresh_runs(spec, environment) * each_run
    done = begun * a_trial + min(since, 0.95 * a_trial) * (left > 0)
    by_trials = max(a_trial * left - min(since, a_trial), 0.0) + reserve
    if certifying:
        gone = (certifying.run - 1) * each_run + min(certifying.since, 0.95 * each_run)
        done, by_trials = done + gone, max(certifying.runs * each_run - gone, 0.0)
    by_time = max(spec["hours"] * 3600 - spent, 0.0)
    if until := spec.get("until"):
        by_time = max(min(by_time, datetime.datetime.fromisoformat(until).timestamp() - now), 0.0)
    if by_time < by_trials:
        share = spent / (spent + by_time) if by_time else 1.0
        return Night(trials, spec["trials"], spent, share, "time", now + by_time)
    ends = None if each is None else now + by_trials
    whole = done + by_trials if certifying else (spec["trials"] + 1) * a_trial + reserve
    return Night(trials, spec["trials"], spent, min(done / whole, 1.0), "trials", ends)


def fresh_runs(spec: dict[str, Any], environment: Environment) -> int:
    """Runs that are kept for the certificate, both arms together; 0 under a rule that does without."""
    return 2 * runs_of(spec["trials"], environment.deterministic) if certifies(spec["rule"]) else 0


def runs_of_a_trial(
    spec: dict[str, Any], environment: Environment, number: int, calibrated: bool = False
) -> int:
    """Training runs that a trial gets. (calibrated: runs of the baseline were known before the campaign began)"""
    if number or calibrated:
        return int(spec["replicates"])
    rule = plugins.load(RULES, spec["rule"], Rule)  # type: ignore[type-abstract]
    return rule.model_construct().baseline_runs(int(spec["replicates"]), environment.deterministic)


def pace(history: History, replicates: int = 1, hands: int = 1) -> float | None:
    """Seconds from one trial, of `replicates` runs, to the next, as the last took; None before the first.

    Args:
        hands: Trials that run at once; they begin together, and then nothing does for a while.
    """
    begun = sorted(trial.runs[-1].started for trial in history[-RECENT - hands :])
    # The median: between two lives of a campaign a day may have passed.
    between = [
        later - earlier for earlier, later in zip(begun, begun[hands:], strict=False) if later > earlier
    ]
    if between:
        return statistics.median(between) / hands
    # Nothing but the baseline, which runs several times so that the noise is known.
    return replicates * history[-1].wall_seconds / len(history[-1].runs) if history else None


def a_fresh_run(history: History) -> float | None:
    """Seconds that a run takes which nobody cancels, as the last ones took; None before there was one."""
    whole = [trial for trial in history if trial.verdict.kind in ("keep", "discard")][-RECENT:]
    took = [
        trial.wall_seconds / (len(trial.runs) + sum(not rerun.calibrated for rerun in trial.reruns))
        for trial in whole
    ]
    return statistics.median(took) if took else None


@dataclass(frozen=True)
class Scene:
    """What a person wants to see of a campaign that runs, at one moment."""

    environment: Environment
    history: History
    under_way: tuple[UnderWay, ...]
    """What runs now, the lowest number first."""
    night: Night
    page: str | None
    """Where Prefect shows this life; None when it has not said so."""
    now: float
    """Unix time, in seconds."""
    certifying: Certifying | None = None
    """None while the search goes on."""
    waiting: tuple[int, ...] = ()
    """Trials that wait for a person's word."""

    @property
    def trial(self) -> UnderWay | None:
        """The one that is shown in full; None while the next is being chosen."""
        return self.under_way[0] if self.under_way else None

    @property
    def champion(self) -> Trial | None:
        return best(self.history)

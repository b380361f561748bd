"""What is shown of a campaign that runs, at one moment: its trials, the champion beside them, and how far it is.

flows/views/follow.py reads it from the campaign's directory; flows/views/live_view.py draws it.
"""

from __future__ import annotations

import datetime
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from environments import Environment, plugins
from flows.spec.clock_time import runs_in_time
from flows.status import RULES, certifies
from flows.views.curves import Axis, CurvePoint, TrainingCurve
from tasks.certifying.group_design import design_of
from tasks.deciding.champion_estimate import has_edits
from tasks.rules import Rule
from tasks.spending.spent import NOTHING_SPENT, Spent
from tasks.trial import History, Proposal, Trial, best, budgets_used

RECENT = 10
"""Trials whose pace tells how long the next ones take."""


@dataclass(frozen=True)
class UnderWay:
    """A trial that runs, beside the champion that it has to beat."""

    number: int
    proposal: Proposal
    phase: Literal["waiting", "starting", "training", "judging"]
    """`waiting`: for a slot."""
    elapsed: float
    """Seconds that it has trained, at most its budget."""
    step: float | None
    curve: TrainingCurve
    champion_curve: TrainingCurve
    run: str = ""
    """Which of its runs this is; empty where there is only one."""
    waits_for: str = ""
    """Who holds the slots, while it waits for one."""

    @property
    def share(self) -> str:
        """Its part of the budget in words; empty for the whole."""
        return f"{self.proposal.share:.0%} of the budget" if self.proposal.is_short else ""

    def axis(self, environment: Environment) -> Axis:
        """The budget that binds, along which both curves compare: seconds, or steps if they are used up first."""
        reference = self.champion_curve if self.champion_curve.points else self.curve
        last = reference.points[-1] if reference.points else CurvePoint(None, None, 0.0)
        if last.elapsed is None:
            return "step"
        if not environment.budget_steps or last.step is None:
            return "elapsed"
        faster = last.step / environment.budget_steps >= last.elapsed / environment.budget_seconds
        return "step" if faster else "elapsed"


@dataclass(frozen=True)
class Certifying:
    """A certificate that is being made."""

    champion: int
    """The trial that it is about."""
    run: int
    """The fresh run under way, from 1."""
    runs: int
    """Of both arms together."""
    since: float
    """Seconds since the run under way began."""
    groups: tuple[tuple[int, int], ...] = ()
    """Runs of champion and baseline at each look; empty where it is not known."""
    waits_for: str = ""
    """Who holds the slots, while it waits for one."""
    seconds: float = 0.0
    """Training budget of a run; 0 where it is not known."""
    where: str = ""
    """Environment and budget, where they are not the campaign's."""


@dataclass(frozen=True)
class SlotState:
    name: str
    holder: str
    """A trial or a process; empty: free."""


@dataclass(frozen=True)
class CampaignProgress:
    """How far a campaign is, and what will end it."""

    trials: float
    """Decided, without the baseline; a cancelled one counts by the part that it ran."""
    asked: int
    spent: float
    """Seconds, over all lives."""
    share: float
    """Of the whole time, as far as it can be foreseen, 0..1."""
    binds: Literal["trials", "hours", "until"]
    """The limit that is reached first."""
    ends: float | None
    """Unix time, in seconds; None while no trial has shown how long one takes."""
    hours: float = 8.0
    until: float | None = None
    """Unix time, in seconds."""
    patience: float | None = None
    """Trials in full that may still come without a new champion."""
    """Trials without a new champion that are left of the limit; None without one."""
    max_usd: float | None = None
    max_gpu_hours: float | None = None
    certifies: bool = False


@dataclass(frozen=True)
class LiveModel:
    """A campaign that runs, at one moment."""

    environment: Environment
    history: History
    under_way: tuple[UnderWay, ...]
    """By number."""
    progress: CampaignProgress
    page: str | None
    """The address of this life in Prefect; None while it is not known."""
    now: float
    """Unix time, in seconds."""
    certifying: Certifying | None = None
    waiting: tuple[int, ...] = ()
    """Trials that wait for approval."""
    answer_by: float | None = None
    """Unix time of the first deadline of those that wait."""
    slots: tuple[SlotState, ...] = ()
    """Of this machine, as far as known."""
    spent: Spent = NOTHING_SPENT
    likely: tuple[float, float] | None = None
    """Where the champion's true mean likely lies, low to high; None where it is not known."""
    unrecorded: str = ""
    """Why records wait for MLflow, and how many; empty if none does."""

    @property
    def trial(self) -> UnderWay | None:
        """The one that is shown in full; None while the next is being chosen."""
        return self.under_way[0] if self.under_way else None

    @property
    def champion(self) -> Trial | None:
        return best(self.history)


def campaign_progress(
    spec: dict[str, Any],
    environment: Environment,
    history: History,
    spent: float,
    since: float,
    now: float,
    certifying: Certifying | None = None,
) -> CampaignProgress:
    """How far a campaign is: by its trials and its certificate, or by its time, whichever ends it first.

    Args:
        spent: Seconds over all lives.
        since: Seconds since the first of the trials under way was proposed; 0 when none is.
        now: Unix time, in seconds.
    """
    parallel, replicates = spec.get("parallel", 1), spec["replicates"]
    complete = [trial for trial in history if trial.verdict.kind in ("keep", "discard")]
    measured = run_seconds(history[-RECENT:])
    proposing = statistics.median([trial.proposal.seconds for trial in history[-RECENT:]] or [0.0])
    each = ((measured or environment.budget_seconds) * replicates + proposing) / parallel
    each_run = (run_seconds(complete[-RECENT:]) or environment.budget_seconds) / parallel
    runs = runs_in_time(spec, now - spent, environment.budget_seconds)
    design = design_of(spec["trials"], environment.deterministic, edits=has_edits(history), runs=runs)
    will_certify = certifies(spec["rule"]) and not environment.scores_are_reported
    fresh_runs = design.runs if will_certify else 0
    trials = budgets_used(history)
    if certifying:
        left = (certifying.runs - certifying.run + 1) * each_run - min(certifying.since, 0.95 * each_run)
    else:
        to_do = max(spec["trials"] + 1 - trials - bool(history), 0)
        left = max(each * to_do - min(since, each), 0.0) + fresh_runs * each_run
    time_left = max(spec["hours"] * 3600 - spent, 0.0)
    deadline = datetime.datetime.fromisoformat(spec["until"]).timestamp() if spec.get("until") else None
    clock: Literal["hours", "until"] = "hours"
    if deadline is not None and deadline - now < time_left:
        time_left, clock = max(deadline - now, 0.0), "until"
    binds: Literal["trials", "hours", "until"] = clock if time_left < left else "trials"
    left = min(left, time_left)
    share = spent / (spent + left) if left else 1.0
    ends = None if measured is None and binds == "trials" else now + left
    advanced, champion = spec.get("advanced", {}), best(history)
    patience = advanced.get("patience")
    if patience is not None:
        since_champion = [trial for trial in history if champion is None or trial.order > champion.order]
        patience = max(patience - math.fsum(trial.proposal.share for trial in since_champion), 0)
    return CampaignProgress(
        trials, spec["trials"], spent, share, binds, ends, spec["hours"], deadline, patience, advanced.get("max_usd"),
        advanced.get("max_gpu_hours"), will_certify,
    )  # fmt: skip


def runs_of_a_trial(spec: dict[str, Any], environment: Environment, number: int, calibrated: bool = False) -> int:
    """Training runs that a trial gets. (calibrated: runs of the baseline were known before the campaign began)"""
    if number or calibrated:
        return int(spec["replicates"])
    rule = plugins.load(RULES, spec["rule"], Rule)  # type: ignore[type-abstract]
    return rule.model_construct().baseline_runs(int(spec["replicates"]), environment.deterministic)


def run_seconds(trials: Sequence[Trial]) -> float | None:
    """Seconds per training run in full, its judgement included, of the median trial; None without any."""
    seconds = [
        trial.wall_seconds
        / (len(trial.runs) + sum(not rerun.calibrated for rerun in trial.reruns))
        / trial.proposal.share
        for trial in trials
    ]
    return statistics.median(seconds) if seconds else None

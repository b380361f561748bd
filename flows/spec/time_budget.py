"""How long what is still to come may take, by what is known so far. Pure; all in seconds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from environments import Environment
from tasks.decide import SIMPLER_KEEPS
from tasks.deciding.simplicity import kept_in_a_row
from tasks.trial import History, Trial

if TYPE_CHECKING:
    from flows.spec.campaign_spec import CampaignSpec

SPARE = 1.1
"""Times what a certificate may take: what it is kept for must not be missed by seconds."""


def time_for_a_trial(spec: CampaignSpec, environment: Environment, history: History) -> float:
    """What the next trial may take: its whole training budgets, and the most that any run took besides training."""
    besides, rule, runs = besides_training(environment, history), spec.loaded_rule, spec.replicates
    if not history:
        runs = rule.baseline_runs(runs, environment.deterministic)
        return math.ceil(runs / spec.parallel) * (environment.budget_seconds + besides)
    again = rule.most_reruns + (kept_in_a_row(history) >= SIMPLER_KEEPS)
    # Who would be champion is started and judged once more, without the time to train.
    controls = 0 if environment.allow_untrained else 1
    thinking = max(trial.proposal.seconds for trial in history)
    return (
        (math.ceil(runs / spec.parallel) + again) * (environment.budget_seconds + besides)
        + besides * controls
        + thinking
    )


def time_for_the_certificate(spec: CampaignSpec, environment: Environment, history: History) -> float:
    """What the fresh runs at the end may take; kept free from the start."""
    runs = math.ceil(2 * spec.certificate_runs(environment) / spec.parallel)
    if runs and spec.advanced.ablation:
        runs += len(environment.space) + 1  # every parameter may differ, and the program
    return SPARE * runs * (environment.budget_seconds + besides_training(environment, history))


def besides_training(environment: Environment, history: History) -> float:
    """The most that a run took besides its training."""
    return max(
        (_besides(trial) for trial in history if not _was_controlled(trial)),
        default=environment.startup_seconds,
    )


def _besides(trial: Trial) -> float:
    """What each run of a trial took besides its training."""
    runs = [*trial.runs, *(rerun.run for rerun in trial.reruns)]
    # One that was resumed after its training has seen less time pass than that training took.
    wall = max(trial.wall_seconds, sum(run.wall_seconds for run in runs))
    return (wall - sum(run.seconds for run in runs)) / len(runs)


def _was_controlled(trial: Trial) -> bool:
    """Whether its time holds a second start and judgement (tasks/untrained.py)."""
    return "untrained" in trial.verdict.evidence

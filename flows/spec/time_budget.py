"""Upper bounds of the time that is still needed, from what is known so far. Pure; all in seconds."""

from __future__ import annotations

import math

from environments import Environment
from tasks.decide import SIMPLER_KEEPS
from tasks.deciding.simplicity import kept_in_a_row
from tasks.rules import Rule
from tasks.trial import History, Trial

SPARE = 1.1
"""Factor on the time of a certificate, so that it is not missed by seconds."""


def time_for_a_trial(
    environment: Environment, history: History, *, rule: Rule, replicates: int, parallel: int
) -> float:
    """The next trial: full training budgets, and the longest time that any run took besides training."""
    besides = besides_training(environment, history)
    a_run = environment.budget_seconds + besides
    if not history:
        return math.ceil(rule.baseline_runs(replicates, environment.deterministic) / parallel) * a_run
    reruns = rule.most_reruns + (kept_in_a_row(history) >= SIMPLER_KEEPS)
    # A trial that would be champion is judged once more without training.
    controls = 0 if environment.allow_untrained else 1
    thinking = max(trial.proposal.seconds for trial in history)
    return (math.ceil(replicates / parallel) + reruns) * a_run + besides * controls + thinking


def time_for_the_certificate(
    environment: Environment, history: History, *, runs: int, parallel: int, ablation: bool
) -> float:
    """The certificate with `runs` fresh runs of each arm, and the ablation after it."""
    in_turn = math.ceil(2 * runs / parallel)
    if in_turn and ablation:
        in_turn += len(environment.space) + 1  # every parameter may differ, and the program
    return SPARE * in_turn * (environment.budget_seconds + besides_training(environment, history))


def besides_training(environment: Environment, history: History) -> float:
    """The longest time that a run took besides training."""
    # A trial that was controlled (tasks/untrained.py) holds a second start and judgement.
    trials = (trial for trial in history if "untrained" not in trial.verdict.evidence)
    return max(map(_besides, trials), default=environment.startup_seconds)


def _besides(trial: Trial) -> float:
    """Time that each run of a trial took besides training."""
    runs = [*trial.runs, *(rerun.run for rerun in trial.reruns)]
    # After a resume, less wall time may have been measured than training took.
    wall = max(trial.wall_seconds, sum(run.wall_seconds for run in runs))
    return (wall - sum(run.seconds for run in runs)) / len(runs)

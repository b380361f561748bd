"""Campaigns on a real environment: every trial is trained and judged as `nightshift try` does it, in a sandbox.

CartPole with 5,000 environment steps instead of 20,000, so that a trial takes a few seconds and scores are noisy. What
is true of a champion is the mean of `FRESH` more trainings with seeds that no campaign has; the best known is the best
such mean of them all.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import environments
from benchmarks.champions import asker, champions
from environments import Environment
from environments.score import Score
from flows.cli.running import single_run
from tasks.store.seeds import derive
from tasks.store.workspace import TrialDir
from tasks.trial import Params, Proposal, Run

NAME = "cartpole"
STEPS = 5000
FRESH = 2
FRESH_SEEDS = "fresh"


def measure(lanes: Sequence[str], trials: int, repetitions: int) -> dict[str, NDArray[np.float64]]:
    """True scores of champions by lane, repetition and trial, the baseline's first, as shares of the best known."""
    with ProcessPoolExecutor(initializer=os.nice, initargs=(10,)) as pool:
        waiting = {lane: pool.map(partial(campaign, lane, trials), range(repetitions)) for lane in lanes}
        found = {lane: np.array(list(curves)) for lane, curves in waiting.items()}
    top = max(curves.max() for curves in found.values())
    return {lane: curves / top for lane, curves in found.items()}


def campaign(lane: str, trials: int, repetition: int) -> list[float]:
    """The champion's mean fresh score after the baseline and after every trial of one campaign."""
    with tempfile.TemporaryDirectory(prefix="nightshift-real-") as name:
        stage = _stage(Path(name))
        measure = partial(_trained, stage, repetition)
        problem = stage.environment
        found = champions(asker(lane, problem.space, repetition), measure, problem, problem.defaults, trials)
        distinct = {repr(params): params for params in found}
        truth = {key: _truth(stage, params, repetition) for key, params in distinct.items()}
    return [truth[repr(params)] for params in found]


def shortened() -> Environment:
    """CartPole in a budget of few steps; the seconds are a cap that a busy machine does not reach."""
    changes = {"budget_steps": STEPS, "budget_seconds": 120.0, "control.episodes": 40, "allow_untrained": True}
    return environments.load(environments.find(NAME), changes)


def _stage(folder: Path) -> single_run.Stage:
    problem = single_run.frozen(shortened(), folder)
    return single_run.stage(problem, "auto", allow_unsandboxed=False, edited=False, root=folder, verb="benchmark")


def _trained(stage: single_run.Stage, repetition: int | str, number: int, params: Params) -> tuple[Run, Score]:
    """One training and its judgement."""
    place = TrialDir(single_run.next_in(stage.root / "tries") / "trial")
    train, search = derive(repetition, "train", number, 1), derive(repetition, "search", number, 1)
    planned = single_run.PlannedRun("try", number, stage.root / "program", place, Proposal(params), train, search)
    return stage.measure(planned)


def _truth(stage: single_run.Stage, params: Params, repetition: int) -> float:
    """The mean score of fresh trainings; a crash counts as nothing."""
    again = (_trained(stage, f"{FRESH_SEEDS}/{repetition}", number, params)[1] for number in range(FRESH))
    return statistics.fmean(score.value or 0.0 for score in again)

"""The expensive checks: a real start of the judge's model, and a short training with its judgement.

Both go the way of `nightshift try`: sandbox, slot, recipe and judge are a campaign's. What they leave is below
`runs/.tries/<environment>`. On GPUs they take minutes, most of them until vLLM has loaded and compiled.
"""

from __future__ import annotations

import secrets
import shutil
import time
from pathlib import Path

from environments import Environment
from environments.judges.text import BASE, Text
from environments.plugins import Refused
from environments.recipe import DATA
from flows.cli import single_runs
from flows.cli.doctor.machine import Check
from tasks.evaluate import judge_run
from tasks.numbers import number
from tasks.sandbox import outputs
from tasks.store import workspace
from tasks.store.workspace import TrialDir
from tasks.trial import Run

STEPS, LONGEST_SECONDS = 2, 300.0
"""Of prime-rl; the seconds count from its first sign of work."""
SHORT_SECONDS = 10.0
"""Training time of other programs."""
QUESTIONS = 2
REMEDY = "see {}; docs/two-gpus.md says what can go wrong"


def answer(environment: Environment, home: Path) -> Check:
    """Start the judge's language model from the base model, and have it answer one question with one token."""
    judge = environment.judge
    if not isinstance(judge, Text) or judge.backend == "openai":
        return Check("answer", "ok", "its judge starts no language model")
    least = judge.model_copy(update={"questions": max(len(judge.sources), 1), "samples": 1, "max_tokens": 1})
    try:
        stage, arm = _stage(environment.model_copy(update={"judge": least}), home)
    except Refused as refused:
        return Check("answer", "bad", str(refused), "correct that first")
    problem, place = stage.environment, TrialDir(stage.folder / "trial")
    base = problem.prepared / DATA / BASE if problem.prepared else None
    if base is None or not base.is_dir():
        return Check("answer", "ok", "its recipe makes no model that could answer before a training")
    program = workspace.prepare(place, arm.program, problem, arm.proposal, 1)
    shutil.copytree(base, place.out / "model", copy_function=shutil.copyfile)
    left = outputs.checkpoint(place.out)
    run = Run("trial", 1, 0.0, "finished", isolation=stage.isolation.level, program=program, checkpoint=left)
    with stage.slots.hold() as slot:
        began = time.monotonic()
        score = judge_run(stage.marker, problem, stage.isolation, place, run, secrets.randbelow(2**31), slot)
        seconds = round(time.monotonic() - began, 1)
    shutil.rmtree(place.out / "model")
    details = {"seconds": seconds, "log": str(place.judge_log)}
    if score.error:
        return Check("answer", "bad", single_runs.first_line(score), REMEDY.format(place.judge_log), details)
    fact = f"{judge.backend} started and answered with one token, in {seconds} s"
    return Check("answer", "ok", fact, details=details)


def short_training(environment: Environment, home: Path) -> Check:
    """Train the baseline for two steps of prime-rl or some seconds of another program, and judge what it left."""
    try:
        stage, arm = _stage(shortened(environment), home)
    except Refused as refused:
        return Check("short_training", "bad", str(refused), "correct that first")
    (fresh,) = stage.runs([(arm, secrets.randbelow(2**31))])
    run, score, place = fresh.run, fresh.score, TrialDir(stage.folder.parent / fresh.run.dir)
    details = {"seconds": run.seconds, "startup_seconds": run.startup, "directory": str(place.path)}
    if score.error:
        return Check("short_training", "bad", single_runs.first_line(score), REMEDY.format(place.path), details)
    steps = f"{run.steps} steps in " if run.steps is not None else ""
    start = f" after a start of {run.startup:.1f} s" if run.startup is not None else ""
    fact = (
        f"{steps}{run.seconds:.1f} s{start}, and judged: {environment.metric} {number(score.value)}, of no meaning yet"
    )
    return Check("short_training", "ok", fact, details=details)


def shortened(environment: Environment) -> Environment:
    """The same environment with a small budget, and a judge that asks little."""
    if environment.trainer == "prime_rl":
        seconds = min(environment.budget_seconds, LONGEST_SECONDS)
        small = environment.model_copy(update={"budget_steps": STEPS, "budget_seconds": seconds})
    else:
        small = environment.at(min(1.0, SHORT_SECONDS / environment.budget_seconds))
    limits, judge = small.limits.model_copy(update={"least_seconds": 0.0}), small.judge
    if isinstance(judge, Text):
        judge = judge.model_copy(update={"questions": max(len(judge.sources), QUESTIONS), "samples": 1})
    return small.model_copy(update={"limits": limits, "judge": judge})


def _stage(environment: Environment, home: Path) -> tuple[single_runs.Stage, single_runs.Arm]:
    """A stage for runs of the environment, with its baseline. Raises Refused."""
    with single_runs.set_up(environment, None, [single_runs.Side("run")], home / ".tries" / environment.name) as made:
        stage, (baseline,) = made
        return stage, baseline

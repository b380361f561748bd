"""`nightshift try`: runs of one program and its parameters outside of any campaign, and what they say of the noise."""

from __future__ import annotations

import math
import secrets
import statistics
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from scipy import special  # type: ignore[import-untyped]

from flows.cli.single_runs import Draw, FreshRun, Job, Question, Stage, score_text, set_up
from flows.views import terminal
from tasks.numbers import number
from tasks.run_checks import learned_nothing
from tasks.sandbox.isolation import Isolation
from tasks.stats.design import design_of
from tasks.stats.permutation import pooled

FOLDER = ".tries"
TRIALS = 20
"""Of a campaign, for the certificate whose smallest likely gain is told."""
POWER = 0.8
"""A gain is said to be shown if it is shown this often."""


def attempt(question: Question, runs: int, seed: int | None, isolation: Isolation, as_json: bool) -> int:
    """Run the one side of a question, and say how it scored; 0 when every run has a score, else 1."""
    side = question.sides["run"]
    with set_up(question, FOLDER, isolation) as stage:
        first = secrets.randbelow(2**31) if seed is None else seed
    done = measure(stage, [(first + turn) % 2**31 for turn in range(runs)], quiet=as_json)
    document = document_of(stage, done, runs, is_baseline=not (question.program or side.params or side.edit))
    if as_json:
        terminal.print_json(document)
    else:
        print(*words(stage, done, document), f"see {document['directory']}", sep="\n")
    return 1 if document["error"] else 0


def measure(stage: Stage, seeds: Sequence[int], quiet: bool) -> list[FreshRun]:
    """Train and judge under each seed, each on units of its own, until a run has no score."""
    jobs = [Job("run", n, seed, Draw(secrets.randbelow(2**63))) for n, seed in enumerate(seeds, 1)]
    done = list[FreshRun]()
    with closing(stage.make(jobs)) as runs:
        for one in runs:
            done.append(one)
            if len(jobs) > 1 and not quiet:
                text = f"run {one.number} of {len(jobs)}  seed {one.run.seed:<10}  {score_text(one.score)}"
                print(text, flush=True)
            if one.score.value is None:
                break
    return done


def document_of(stage: Stage, done: Sequence[FreshRun], runs: int, is_baseline: bool) -> dict[str, Any]:
    """The output of `--json`: of one run its facts; of several what they say together, and each of them."""
    problem, last = stage.environment, done[-1]
    about = {
        "environment": problem.name, "params": stage.sides["run"].params, "metric": problem.metric,
        "direction": problem.direction, "isolation": stage.isolation.level,
    }  # fmt: skip
    if runs == 1:
        return {**about, **stage.facts(last), "steps": last.run.steps}
    scores = [one.score.value for one in done if one.score.value is not None]
    return {
        **about, "score": None if last.score.error else statistics.fmean(scores),
        **noise_of(scores, problem.deterministic, is_baseline), "error": last.score.error,
        "runs": [stage.facts(one) for one in done], "directory": str(stage.folder),
    }  # fmt: skip


def words(stage: Stage, done: Sequence[FreshRun], document: dict[str, Any]) -> list[str]:
    """What the runs say, a sentence a line."""
    last, metric = done[-1], stage.environment.metric
    if document["error"]:
        return [f"crash: {document['error']}"]
    lines = [f"{metric} {score_text(last.score)} after {last.run.seconds:.1f} s of training"]
    if "runs" in document:
        mean, sd = number(document["score"]), number(document["sd"])
        lines = [f"{metric} {mean} on average over {len(done)} runs; spread between runs: sd {sd}"]
        if shown := document["detectable"]:
            lines.append(
                f"smallest gain that a certificate likely sees ({POWER:.0%} of the time, {shown['champion']} v "
                f"{shown['baseline']} fresh runs, as after {TRIALS} trials): {number(shown['gain'])}"
            )
    if still := learned_nothing(stage.folder.parent / last.run.dir, metric):
        lines.append(f"learned nothing: {still}")
    return lines


def noise_of(scores: Sequence[float], deterministic: bool, of_baseline: bool) -> dict[str, Any]:
    """The spread between runs, and of a baseline the smallest gain that would likely be certified; None below two."""
    noise = pooled([scores])
    if noise is None:
        return {"sd": None, "detectable": None}
    design = design_of(TRIALS, deterministic)
    arms, level = design.groups[-1], design.levels[-1]
    # A true gain that both arms show with POWER at this level, in the normal approximation.
    gain = float(special.ndtri(POWER) - special.ndtri(level)) * noise.sd * math.sqrt(1 / arms[0] + 1 / arms[1])
    shown = {"champion": arms[0], "baseline": arms[1], "power": POWER, "gain": gain}
    return {"sd": noise.sd, "detectable": shown if of_baseline else None}

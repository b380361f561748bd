"""The no-training control: what a would-be champion scores when it gets next to no time to train.

A program may be good without having learned anything: it calls a controller that somebody wrote by hand, carries
finished weights, plans with a simulator, or trains before its budget begins. Then the gain is no result of training,
and the trial is not kept (tasks/decide.py), unless the environment allows it.
"""

from __future__ import annotations

from pathlib import Path

from environments import Environment
from environments.score import Score
from tasks import workspace
from tasks.checkpoint import At, stored
from tasks.evaluate import judge_run
from tasks.isolation import Isolation
from tasks.train import run_program
from tasks.trial import History, Proposal, Run, best
from tasks.workspace import TrialDir

SHARE = 0.01
"""Of the time that it trained for: one update at most, for a program that looks at the clock only then."""
STARTUP_SHARE = 0.1
"""Of the time of a program that never says when it is ready, so that its preparations count as training."""


def is_due(environment: Environment, history: History, score: Score) -> bool:
    """Whether a score is about to make a new champion, which has to show that it learned."""
    champion = best(history)
    return not environment.allow_untrained and champion is not None and score > champion.score


@stored("untrained")
def untrained(
    at: At,
    environment: Environment,
    isolation: Isolation,
    program: Path,
    place: TrialDir,
    proposal: Proposal,
    trained: Run,
    seed: int,
) -> Score:
    """The judged score of the same program, parameters and seed after a hundredth of the time, or a single step."""
    short = environment.model_copy(
        update={
            "startup_seconds": _preparations(environment, trained),
            "budget_seconds": trained.seconds * SHARE,
            "budget_steps": min(environment.budget_steps, 1),
        }
    )
    aside = TrialDir(place.path / "untrained")
    aside.path.mkdir(exist_ok=True)
    marker = f"{at.marker}/untrained"
    run = run_program(marker, short, isolation, program, aside, proposal, trained.seed)
    score = judge_run(marker, short, isolation, aside, run, seed)
    workspace.write(
        aside.trial.with_name("score.json"), workspace.SCORE.dump_json(score, indent=2).decode() + "\n"
    )
    return score


def _preparations(environment: Environment, trained: Run) -> float:
    """Seconds before the control's time begins to count: what comes before `ready` is not taken for training."""
    if trained.startup is None:
        return min(environment.startup_seconds, trained.seconds * STARTUP_SHARE)
    return environment.startup_seconds

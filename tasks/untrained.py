"""The no-training control: the score of a candidate champion that gets almost no time to train.

A program may score well without learning: a hand-written controller, finished weights, planning with a simulator, or
training before the budget begins. Its trial is not kept (tasks/decide.py), unless the environment allows it. A program
that leaves no checkpoint when stopped so early may be honest and save at its end only; where the environment's own
program leaves one, an edited program must too. A program that detects the control (by its folder or the early end) and
then plays badly is *not* caught.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from environments import Environment
from environments.score import Score
from tasks.checkpoint import At, stored
from tasks.evaluate import judge_run
from tasks.sandbox.isolation import Isolation
from tasks.store import workspace
from tasks.store.workspace import TrialDir
from tasks.system import file_trees
from tasks.system.slot import Slot
from tasks.train import Cut, run_program
from tasks.trial import Proposal, Run, UntrainedControl

SHARE = 0.01
"""Of its training time: at most one update, for a program that checks the clock once per update."""
STARTUP_SHARE = 0.1
"""Of the time of a program that never reports `ready`, whose preparations count as training."""


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
    slot: Slot,
) -> UntrainedControl:
    """Run the same program, parameters and seed, stop it after a hundredth of the time, and judge its checkpoint."""
    trial = workspace.finished(place)  # it may lack a control: verdicts are sometimes recomputed
    if trial and "untrained" in trial.verdict.evidence:
        return UntrainedControl(
            Score(trial.verdict.evidence["untrained"], higher_is_better=environment.higher_is_better)
        )
    cut = Cut(_preparations(environment, trained), trained.seconds * SHARE)

    def scored(name: str, proposal: Proposal) -> Score:
        aside = TrialDir(place.path / name)
        aside.path.mkdir(exist_ok=True)
        run = run_program(
            at.marker, environment, isolation, program, aside, proposal, trained.seed, cut, slot=slot
        )
        score = judge_run(at.marker, environment, isolation, aside, run, seed, slot)
        for large in (aside.out, aside.workspace):  # its logs are enough
            file_trees.remove(large)
        return score

    score = scored("untrained", proposal)
    if score.value is None and proposal.edit:
        return UntrainedControl(score, scored("untrained-unedited", replace(proposal, edit=None)))
    return UntrainedControl(score)


def _preparations(environment: Environment, trained: Run) -> float:
    """Seconds before the control's time begins to count: nothing before `ready` counts as training."""
    if trained.startup is None:
        return min(environment.startup_seconds, trained.seconds * STARTUP_SHARE)
    return environment.startup_seconds

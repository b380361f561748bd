"""The no-training control: the score of a candidate champion that gets almost no time to train.

A program may score well without learning: a hand-written controller, finished weights, planning with a simulator, or
training before the budget begins. Its trial is not kept (tasks/decide.py), unless the environment allows it. Where the
environment's own program leaves a checkpoint when stopped so early, an edited program must too. A program that detects
the control and then plays badly is *not* caught.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from environments import Environment
from environments.effort import Allowance
from environments.score import Score
from tasks import task_messages
from tasks.cache_key import At, stored
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


@stored("untrained", task_messages.of_control)
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
    allowance: Allowance | None,
) -> UntrainedControl:
    """Run the same program, parameters and seed, stop it after a hundredth of the time, and judge its checkpoint."""
    trial = workspace.finished(place)  # it may lack a control: verdicts are sometimes recomputed
    if trial and "untrained" in trial.verdict.evidence:
        known = trial.verdict.evidence["untrained"]
        return UntrainedControl(Score(known, higher_is_better=environment.higher_is_better))
    # Nothing before `ready` counts as training.
    startup = environment.startup_seconds
    if trained.startup is None:
        startup = min(startup, trained.seconds * STARTUP_SHARE)
    cut = Cut(startup, trained.seconds * SHARE)

    def scored(name: str, proposal: Proposal) -> Score:
        aside = TrialDir(place.path / name)
        aside.path.mkdir(exist_ok=True)
        run = run_program(at.marker, environment, isolation, program, aside, proposal, trained.seed, cut, slot=slot)
        score = judge_run(at.marker, environment, isolation, aside, run, seed, slot, allowance=allowance)
        for large in (aside.out, aside.workspace):  # its logs are enough
            file_trees.remove(large)
        return score

    score = scored("untrained", proposal)
    if score.value is None and proposal.edit:
        return UntrainedControl(score, scored("untrained-unedited", replace(proposal, edit=None)))
    return UntrainedControl(score)

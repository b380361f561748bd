"""The no-training control: what a would-be champion scores when it gets next to no time to train.

A program may be good without having learned anything: it calls a controller that somebody wrote by hand, carries
finished weights, plans with a simulator, or trains before its budget begins. Then the gain is no result of training,
and the trial is not kept (tasks/decide.py), unless the environment allows it. A program that leaves nothing when it
is stopped so early may be an honest one, which saves at its end alone, or hide; where the environment's own program
leaves something, an edited one has to. What is *not* caught is one that looks for signs of the control (its folder, an
early end) and then plays badly.
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
"""Of the time that it trained for: one update at most, for a program that looks at the clock only then."""
STARTUP_SHARE = 0.1
"""Of the time of a program that never says when it is ready, so that its preparations count as training."""


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
    """Run the same program, parameters and seed, stop it after a hundredth of the time, and judge what it leaves."""
    known = workspace.finished(place)  # which need not have asked for it: a verdict may be given anew
    if known and "untrained" in known.verdict.evidence:
        seen = known.verdict.evidence["untrained"]
        return UntrainedControl(Score(seen, higher_is_better=environment.higher_is_better))
    cut = Cut(_preparations(environment, trained), trained.seconds * SHARE)

    def scored(name: str, proposal: Proposal) -> Score:
        aside = TrialDir(place.path / name)
        aside.path.mkdir(exist_ok=True)
        run = run_program(
            at.marker, environment, isolation, program, aside, proposal, trained.seed, cut, slot=slot
        )
        score = judge_run(at.marker, environment, isolation, aside, run, seed, slot)
        for large in (aside.out, aside.workspace):  # its logs are enough to understand it by
            file_trees.remove(large)
        return score

    score = scored("untrained", proposal)
    if score.value is None and proposal.edit:
        return UntrainedControl(score, scored("untrained-unedited", replace(proposal, edit=None)))
    return UntrainedControl(score)


def _preparations(environment: Environment, trained: Run) -> float:
    """Seconds before the control's time begins to count: what comes before `ready` is not taken for training."""
    if trained.startup is None:
        return min(environment.startup_seconds, trained.seconds * STARTUP_SHARE)
    return environment.startup_seconds

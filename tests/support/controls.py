"""The control of a would-be champion, without a campaign around it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from environments import Environment
from environments.score import Score, Wait
from tasks.bench import Bench, RunPlan
from tasks.control import control_of
from tasks.store.workspace import TrialDir
from tasks.system.slot import NOWHERE
from tasks.task_key import TaskKey
from tasks.trial import Proposal, Run, UntrainedControl
from tests.support.toy import SANDBOX


class LoneBench(Bench):
    """A bench whose seed is given."""

    def __init__(self, environment: Environment, program: Path, folder: Path, seed: int) -> None:
        self.environment, self.program, self.folder, self.own_seed = environment, program, folder, seed
        self.isolation, self.launched = SANDBOX, False

    def seed(self, purpose: str, key: TaskKey) -> int:
        return self.own_seed

    def dir(self, plan: RunPlan) -> TrialDir:
        return TrialDir(self.folder / plan.folder)


def controlled(
    environment: Environment, program: Path, folder: Path, proposal: Proposal, run: Run, baseline: Score, *,
    seconds: float = 60.0, seed: int = 9, need: Wait | None = None,
) -> UntrainedControl:  # fmt: skip
    """The control of a trial in `folder`.

    Args:
        seconds: How long the baseline trained.
        seed: Draws the units of the control.
    """
    bench = LoneBench(environment, program, folder, seed)
    plan = RunPlan(TaskKey("test", "digest", int(run.dir[-4:])), proposal, run.dir)
    return control_of(bench, plan, run, need, (replace(run, seconds=seconds), baseline), NOWHERE)

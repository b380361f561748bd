"""The control of a would-be champion, without a campaign around it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from environments import Environment
from environments.score import Score
from tasks.bench import Bench, RunPlan
from tasks.control import control_of
from tasks.store.workspace import TrialDir
from tasks.system.slot import NOWHERE
from tasks.task_key import TaskKey
from tasks.trial import Proposal, Run, UntrainedControl
from tests.support.toy import SANDBOX


class _Seeds:
    def seed(self, purpose: str, key: TaskKey) -> int:
        return 9


class LoneBench(Bench):
    def __init__(self, environment: Environment, program: Path, folder: Path) -> None:
        self.environment, self.program, self.folder = environment, program, folder
        self.isolation, self.launched, self.ledger = SANDBOX, False, _Seeds()  # type: ignore[assignment]

    def dir(self, plan: RunPlan) -> TrialDir:
        return TrialDir(self.folder / plan.folder)


def controlled(
    environment: Environment, program: Path, folder: Path, proposal: Proposal, run: Run, baseline: Score, *,
    seconds: float = 60.0,
) -> UntrainedControl:  # fmt: skip
    """The control of a trial in `folder`, where the baseline trained so many seconds."""
    bench = LoneBench(environment, program, folder)
    plan = RunPlan(TaskKey("test", "digest", int(run.dir[-4:])), proposal, run.dir, control_of=run)
    return control_of(bench, plan, None, (replace(run, seconds=seconds), baseline), NOWHERE)

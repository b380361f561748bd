"""The controls of a would-be champion, without a campaign around them."""

from __future__ import annotations

from pathlib import Path

from environments.effort import Allowance

from environments import Environment
from environments.score import Score
from tasks.bench import Bench, RunPlan
from tasks.control import Reference, controls_of
from tasks.machine.slots import NOWHERE
from tasks.store.workspace import TrialDir
from tasks.task_key import TaskKey
from tasks.trial import Proposal, Run, UntrainedControl
from tests.support.toy import SANDBOX


class LoneBench(Bench):
    """A bench whose seeds are given: of the control itself, and of the units of the trial's own judgement."""

    def __init__(self, environment: Environment, program: Path, folder: Path, seeds: dict[str, int]) -> None:
        self.environment, self.program, self.folder, self.seeds = environment, program, folder, seeds
        self.isolation, self.launched = SANDBOX, False

    def seed(self, purpose: str, key: TaskKey) -> int:
        return self.seeds[purpose]

    def dir(self, plan: RunPlan) -> TrialDir:
        return TrialDir(self.folder / plan.folder)


def controlled(
    environment: Environment, program: Path, folder: Path, proposal: Proposal, run: Run, baseline: Score, *,
    seconds: float | None = None, seed: int = 9, units: int = 8, baseline_units: int = 8,
    allowance: Allowance | None = None,
) -> UntrainedControl:  # fmt: skip
    """The controls of a trial in `folder`, beside its baseline in trials/0000.

    Args:
        seconds: How long the baseline trained; None where that is not known.
        seed: Draws the units of the controls; `units` those of the trial itself, `baseline_units` of the baseline.
    """
    bench = LoneBench(environment, program, folder, {"control": seed, "search": units})
    plan = RunPlan(TaskKey("test", "digest", int(run.dir[-4:])), proposal, run.dir)
    first = Reference(TrialDir(folder / "trials/0000"), baseline_units, baseline, seconds)
    return controls_of(bench, plan, run, allowance, first, NOWHERE)

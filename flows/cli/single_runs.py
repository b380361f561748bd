"""Training runs outside of any campaign, without Prefect and MLflow: for `try`, `compare` and `doctor`."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from environments import Environment
from environments.judges import ComparisonBlock, Use
from environments.plugins import Refused
from environments.score import Score
from tasks.numbers import number
from tasks.recipes.preparing import check_gpus, hold_to, laid, prepare
from tasks.store.ledger import freeze
from tasks.store.workspace import TrialDir
from tasks.system import file_trees, interrupt
from tasks.system.home import home
from tasks.trial import Params, Proposal, Run

if TYPE_CHECKING:
    from tasks.machine.slots import Slots
    from tasks.sandbox.isolation import Isolation


@dataclass(frozen=True)
class Side:
    """A program and parameters as they were named on the command line."""

    arm: str
    """Its name in the folders of its runs."""
    text: str = ""
    """As it was named."""
    params: Params = field(default_factory=dict)
    """Over the baseline's."""
    edit: str | None = None
    """Of the program."""
    program: Path | None = None
    """A campaign's baseline; None: that of the environment in which it is run."""


@dataclass(frozen=True)
class Arm:
    """A program with its parameters, which is trained under one or more seeds."""

    name: str
    program: Path
    """The folder with the files of the baseline that an edit of `proposal` changes."""
    proposal: Proposal


@dataclass(frozen=True)
class FreshRun:
    arm: str
    number: int
    """Within its arm, from 1."""
    run: Run
    """Its directory is relative to the parent of the stage's folder."""
    score: Score


@dataclass(frozen=True)
class Draw:
    """Which units a run is judged on."""

    seed: int
    use: Use = "search"
    block: ComparisonBlock | None = None
    """Its share of a finite pool; None: no comparison."""


@dataclass(frozen=True)
class Stage:
    """A frozen environment with a sandbox and slots: all that runs need."""

    environment: Environment
    isolation: Isolation
    folder: Path
    marker: str
    """Identifies its processes."""
    slots: Slots

    def runs(self, arm: Arm, seeds: Sequence[int]) -> Iterator[FreshRun]:
        """Train once under each seed, in order, and judge the result on units of its own.

        A signal interrupts between two runs, and ends the one that is under way.

        Raises:
            ChildProcessError: no process could be started.
        """
        before: list[Run] = []
        with interrupt.deferred():
            for number, seed in enumerate(seeds, 1):
                interrupt.check()
                one = self.run(arm, number, seed, Draw(secrets.randbelow(2**63)), before)
                before.append(one.run)
                yield one

    def dir(self, arm: str, number: int) -> TrialDir:
        return TrialDir(self.folder / "trials" / f"{arm}-{number}")

    def run(
        self, arm: Arm, number: int, seed: int, draw: Draw, siblings: Sequence[Run] = (), echo: Draw | None = None
    ) -> FreshRun:
        """One run as soon as a slot is free; an implausible one is a crash.

        Args:
            siblings: Earlier runs of the arm, of which it must not be a copy.
            echo: What it is judged on besides (`Score.echo`).
        """
        from tasks.evaluate import judge_run
        from tasks.run_checks import plausible, plausible_beside
        from tasks.sandbox.program import CannotStart
        from tasks.train import run_program

        problem, sandbox, root, place = self.environment, self.isolation, self.folder.parent, self.dir(arm.name, number)
        try:
            with self.slots.hold(lambda reason: print_aside(f"waiting: {reason}")) as slot:
                run = run_program(self.marker, problem, sandbox, arm.program, place, arm.proposal, seed, slot=slot)
                run = replace(run, dir=place.path.relative_to(root).as_posix())
                run = plausible(problem, run, root)
                run = plausible_beside(problem, (), arm.proposal, run, root, siblings)

                def judged(on: Draw) -> Score:
                    return judge_run(self.marker, problem, sandbox, place, run, on.seed, slot, on.use, block=on.block)

                repeated = judged(echo).units if echo else ()
                return FreshRun(arm.name, number, run, replace(judged(draw), echo=repeated))
        except CannotStart as fault:
            raise ChildProcessError(str(fault)) from fault

    def facts(self, run: Run, score: Score) -> dict[str, object]:
        """A run in a JSON document."""
        return {
            "seed": run.seed, "score": score.value, "se": score.se, "n": score.n, "seconds": run.seconds,
            "error": score.error, "directory": str(self.folder.parent / run.dir),
        }  # fmt: skip


@contextlib.contextmanager
def set_up(
    environment: Environment, baseline: Path | None, sides: Sequence[Side], parent: Path, isolation: str = "auto",
    allow_unsandboxed: bool = False,
) -> Iterator[tuple[Stage, list[Arm]]]:  # fmt: skip
    """A stage in the next numbered folder of `parent`, and the sides as its arms; nothing is left if that is refused.

    The environment's recipe is run if that is still to do.

    Args:
        baseline: The program that a campaign has frozen; None: the environment's own.
        isolation: The sandbox level, or `auto`.

    Raises:
        Refused: parameters or an edit do not fit, this machine does not offer that sandbox, an edited program would
            run without any, a GPU does not answer, or the recipe fails.
    """
    params = [environment.complete(side.params) for side in sides]
    folder = _next_folder(parent)
    try:
        freeze(environment, folder)
        if baseline:
            file_trees.remove(folder / "program")
            shutil.copytree(baseline, folder / "program")
        problem = laid(environment.model_copy(update={"folder": folder / "environment"}), home())
        arms = [_arm(side, values, problem, folder) for side, values in zip(sides, params, strict=True)]
        edited = any(arm.proposal.edit for arm in arms)
        yield stage_in(folder, problem, isolation, allow_unsandboxed, edited), arms
    except Refused:
        file_trees.remove(folder)
        raise


def _next_folder(parent: Path) -> Path:
    """Make the next numbered folder; two processes get two."""
    parent.mkdir(parents=True, exist_ok=True)
    number = 1 + max((int(path.name) for path in parent.iterdir() if path.name.isdigit()), default=0)
    while True:
        try:
            (parent / f"{number:04d}").mkdir()
        except FileExistsError:
            number += 1
        else:
            return parent / f"{number:04d}"


def _arm(side: Side, params: Params, environment: Environment, folder: Path) -> Arm:
    """A side with the program that its edit applies to. Refused if it does not apply."""
    from flows.cli.arguments import placed
    from tasks.proposing.validation import originals  # imports Prefect, which reads its settings then

    program, edit = side.program or folder / "program", side.edit
    if edit:
        edit = placed(edit, side.text, originals(environment, program), environment.editable)
    return Arm(side.arm, program, Proposal(params, edit, rationale="by hand", proposer="hand"))


def stage_in(folder: Path, environment: Environment, isolation: str, allow_unsandboxed: bool, edited: bool) -> Stage:
    """All that runs need. Refused if this machine does not offer that sandbox, or it lacks a GPU."""
    from tasks.machine.slots import slots_of
    from tasks.sandbox.confinement import outside
    from tasks.sandbox.isolation import Isolation, check_given, choose
    from tasks.train import UNSANDBOXED

    chosen = Isolation(choose(isolation), allow_unsandboxed)
    check_given(chosen.level, home(), outside(environment))
    if edited and not chosen.may_run("an edit"):
        raise Refused(UNSANDBOXED)
    slots = slots_of(environment, home())
    if environment.prepare:
        check_gpus(environment, home())
        with interrupt.deferred():
            prepare(environment, home(), print_aside)
        hold_to(environment)
    return Stage(environment, chosen, folder, f"single-{secrets.token_hex(4)}", slots)


def print_aside(text: str) -> None:
    """Print on stderr: stdout may be read by a program."""
    print(text, file=sys.stderr)


def score_text(score: Score) -> str:
    """A score with its standard error, or the first line of why there is none."""
    if score.value is None:
        return f"crash: {first_line(score)}"
    return number(score.value) + (f" (se {number(score.se)} over {score.n})" if score.se is not None else "")


def first_line(score: Score) -> str:
    """Why there is no score, in a line that is safe to print."""
    from flows.views.terminal import clean

    return clean((score.error or "no score").partition("\n")[0])

"""Training runs outside of any campaign, without Prefect and MLflow: shared by `try`, `duel` and `calibrate`."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
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
from tasks.trial import Proposal, Run

if TYPE_CHECKING:
    from tasks.machine.slots import Slots
    from tasks.sandbox.isolation import Isolation


@dataclass(frozen=True)
class PlannedRun:
    """A run that is to be made."""

    arm: str
    """Runs of one arm have the same program and parameters."""
    number: int
    """Within its arm, from 1."""
    program: Path
    """The folder with the program's files."""
    place: TrialDir
    proposal: Proposal
    seed: int
    """Of the training."""
    units: int
    """Seed of the judge's units."""
    use: Use = "search"
    block: ComparisonBlock | None = None
    """Its block in a comparison."""


@dataclass(frozen=True)
class Stage:
    """A frozen environment with a sandbox and slots: all that a run needs."""

    environment: Environment
    isolation: Isolation
    root: Path
    """The directories of runs are relative to it."""
    marker: str
    """Identifies its processes."""
    slots: Slots

    def measure_all(
        self, plan: Iterable[PlannedRun], earlier: Sequence[Run] = ()
    ) -> Iterator[tuple[PlannedRun, Run, Score]]:
        """Make runs one after another; a signal interrupts between two of them.

        Args:
            earlier: Runs that exist already, where there is only one arm.
        """
        runs: dict[str, list[Run]] = {}
        with interrupt.deferred():
            for planned in plan:
                interrupt.check()
                siblings = runs.setdefault(planned.arm, [*earlier])
                run, score = self.measure(planned, siblings)
                siblings.append(run)
                yield planned, run, score

    def measure(self, planned: PlannedRun, siblings: Sequence[Run] = ()) -> tuple[Run, Score]:
        """Train once as soon as a slot is free, and judge the result; an implausible run is a crash.

        Args:
            siblings: Earlier runs of the same arm.

        Raises:
            ChildProcessError: no process could be started.
        """
        from tasks.deciding.run_checks import plausible, plausible_beside
        from tasks.evaluate import judge_run
        from tasks.sandbox.program import CannotStart
        from tasks.train import run_program

        problem, sandbox, place = self.environment.at(planned.proposal.share), self.isolation, planned.place
        try:
            with self.slots.hold(lambda reason: _print_aside(f"waiting: {reason}")) as slot:
                run = run_program(
                    self.marker, problem, sandbox, planned.program, place, planned.proposal, planned.seed, slot=slot
                )  # fmt: skip
                run = replace(run, dir=place.path.relative_to(self.root).as_posix())
                run = plausible(problem, run, self.root)
                run = plausible_beside(problem, (), planned.proposal, run, self.root, siblings)
                score = judge_run(
                    self.marker, problem, sandbox, place, run, planned.units, slot, planned.use, block=planned.block
                )
                return run, score
        except CannotStart as fault:
            raise ChildProcessError(str(fault)) from fault

    def facts(self, run: Run, score: Score) -> dict[str, object]:
        """A run in a JSON document."""
        return {
            "seed": run.seed, "score": score.value, "se": score.se, "n": score.n, "seconds": run.seconds,
            "error": score.error, "directory": str(self.root / run.dir),
        }  # fmt: skip


def stage(
    environment: Environment, isolation: str, allow_unsandboxed: bool, edited: bool, root: Path, verb: str
) -> Stage:
    """The stage for runs of a frozen environment, whose recipe is run first if that is still to do.

    Args:
        isolation: The sandbox level, or `auto`.
        edited: Whether a program is an edited one.

    Raises:
        Refused: this machine does not offer that sandbox, an edited program would run without any, a GPU does not
            answer, or the recipe fails.
    """
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
            prepare(environment, home(), _print_aside)
        hold_to(environment)
    return Stage(environment, chosen, root, f"{verb}-{secrets.token_hex(4)}", slots)


def _print_aside(text: str) -> None:
    """Print on stderr: stdout may be read by a program."""
    print(text, file=sys.stderr)


def frozen(environment: Environment, folder: Path, program: Path | None = None) -> Environment:
    """A copy of the environment in a folder, with its baseline program beside it.

    Args:
        program: The baseline program that a campaign has frozen; None: the environment's own.
    """
    freeze(environment, folder)
    if program:
        file_trees.remove(folder / "program")
        shutil.copytree(program, folder / "program")
    return laid(environment.model_copy(update={"folder": folder / "environment"}), home())


def next_in(folder: Path) -> Path:
    """Make the next numbered directory of a folder; two processes get two."""
    folder.mkdir(parents=True, exist_ok=True)
    number = 1 + max((int(path.name) for path in folder.iterdir() if path.name.isdigit()), default=0)
    while True:
        try:
            (folder / f"{number:04d}").mkdir()
        except FileExistsError:
            number += 1
        else:
            return folder / f"{number:04d}"


@contextlib.contextmanager
def removed_if_refused(folder: Path) -> Iterator[None]:
    """Remove a folder if the block is refused."""
    try:
        yield
    except Refused:
        file_trees.remove(folder)
        raise


def score_text(score: Score) -> str:
    """A score with its standard error, or the first line of why there is none."""
    if score.value is None:
        return f"crash: {first_line(score)}"
    return number(score.value) + (f" (se {number(score.se)} over {score.n})" if score.se is not None else "")


def first_line(score: Score) -> str:
    """Why there is no score, in a line that is safe to print."""
    from flows.views.terminal import clean

    return clean((score.error or "no score").partition("\n")[0])

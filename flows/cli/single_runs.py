"""Training runs outside of any campaign, without Prefect's server and MLflow: for `try` and `compare`.

Prefect reads its settings when this is imported: `settle_in` comes before.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter

from environments import Environment
from environments.judges import ComparisonBlock, Use
from environments.plugins import Refused
from environments.score import Score
from environments.space import Value
from flows.cli.arguments import placed
from flows.views.terminal import clean
from tasks.evaluate import judge_run
from tasks.machine.slots import Slots, slots_of
from tasks.numbers import number
from tasks.proposing.validation import originals
from tasks.recipes.preparing import check_gpus, hold_to, laid, prepare
from tasks.run_checks import plausible, plausible_beside
from tasks.sandbox.confinement import outside
from tasks.sandbox.isolation import Isolation, check_given, choose
from tasks.sandbox.program import CannotStart
from tasks.store.ledger import freeze
from tasks.store.workspace import TrialDir
from tasks.system import file_trees, interrupt
from tasks.system.files import write_atomic
from tasks.system.home import home
from tasks.train import UNSANDBOXED, run_program
from tasks.trial import Params, Proposal, Run

FILE = "fresh.json"
POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Side:
    """A program and parameters as they were named on the command line."""

    text: str = ""
    """As it was named."""
    params: Params = field(default_factory=dict)
    """Over the baseline's."""
    edit: str | None = None
    """Of the program."""
    program: Path | None = None
    """A campaign's baseline; None: that of the environment in which it is run."""


@dataclass(frozen=True)
class Question:
    """What is to be trained and judged, and in which environment."""

    sides: Mapping[str, Side]
    """By the name that they have in the folders of their runs."""
    environment: Environment
    overrides: dict[str, Value]
    """Keys of environment.toml with which it was loaded."""
    program: Path | None = None
    """The baseline that a campaign has frozen; None: the environment's own."""


@dataclass(frozen=True)
class FreshRun:
    arm: str
    number: int
    """Within its arm, from 1."""
    run: Run
    """Its directory is relative to the parent of the stage's folder."""
    score: Score


FRESH = TypeAdapter(FreshRun)


@dataclass(frozen=True)
class Draw:
    """Which units a run is judged on."""

    seed: int
    use: Use = "search"
    block: ComparisonBlock | None = None
    """Its share of a finite pool; None: no comparison."""


@dataclass(frozen=True)
class Job:
    """A run that is to be made."""

    arm: str
    number: int
    """Within its arm, from 1."""
    seed: int
    draw: Draw
    echo: Draw | None = None
    """What it is judged on besides (`Score.echo`)."""


@dataclass(frozen=True)
class Stage:
    """A frozen environment with the sides that run in it, a sandbox and slots: all that runs need."""

    environment: Environment
    isolation: Isolation
    folder: Path
    sides: Mapping[str, Side]
    slots: Slots
    marker: str = field(default_factory=lambda: f"single-{secrets.token_hex(4)}")
    """Identifies its processes."""

    def make(self, jobs: Sequence[Job], done: Sequence[FreshRun] = ()) -> Generator[FreshRun, None, None]:
        """Make runs side by side in the slots of this machine. A signal, and the end of the iteration, end all of them.

        Args:
            done: Earlier runs, of which these must not be copies.

        Raises:
            ChildProcessError: no process could be started.
        """
        siblings = {arm: [one.run for one in done if one.arm == arm] for arm in self.sides}
        with interrupt.deferred(), ThreadPoolExecutor(len(self.slots.parts)) as pool:
            running = {pool.submit(self._run, job, siblings[job.arm]) for job in jobs}
            try:
                while running:
                    ended, running = wait(running, POLL_SECONDS, FIRST_COMPLETED)
                    yield from (future.result() for future in ended)
                    interrupt.check()
            finally:
                with interrupt.asked():
                    pool.shutdown(cancel_futures=True)

    def _run(self, job: Job, siblings: list[Run]) -> FreshRun:
        """Train and judge, in a slot; an implausible run is a crash."""
        problem, sandbox, root, place = self.environment, self.isolation, self.folder.parent, self._dir(job)
        side = self.sides[job.arm]
        program = side.program or self.folder / "program"
        proposal = Proposal(side.params, side.edit, rationale="by hand", proposer="hand")
        try:
            with self.slots.hold(lambda reason: print_aside(f"waiting: {reason}")) as slot:
                run = run_program(self.marker, problem, sandbox, program, place, proposal, job.seed, slot=slot)
                run = replace(run, dir=place.path.relative_to(root).as_posix())
                run = plausible_beside(problem, (), proposal, plausible(problem, run, root), root, siblings)
                *again, score = (
                    judge_run(self.marker, problem, sandbox, place, run, on.seed, slot, on.use, block=on.block)
                    for on in (job.echo, job.draw)  # in this order: the files that stay are those of the score
                    if on
                )
        except CannotStart as fault:
            raise ChildProcessError(str(fault)) from fault
        echo = score.units if problem.judge.block_units == "same" else again[0].units if again else ()
        one = FreshRun(job.arm, job.number, run, replace(score, echo=echo))
        write_atomic(place.path / FILE, FRESH.dump_json(one).decode() + "\n")
        siblings.append(run)
        return one

    def finished(self, jobs: Iterable[Job]) -> list[FreshRun]:
        """Those of the runs that were made."""
        files = [self._dir(job).path / FILE for job in jobs]
        return [FRESH.validate_json(file.read_bytes()) for file in files if file.is_file()]

    def _dir(self, job: Job) -> TrialDir:
        return TrialDir(self.folder / "trials" / f"{job.arm}-{job.number}")

    def facts(self, run: Run, score: Score) -> dict[str, object]:
        """A run in a JSON document."""
        return {
            "seed": run.seed, "score": score.value, "se": score.se, "n": score.n, "seconds": run.seconds,
            "error": score.error, "directory": str(self.folder.parent / run.dir),
        }  # fmt: skip


@contextlib.contextmanager
def set_up(question: Question, place: str, isolation: Isolation) -> Iterator[Stage]:
    """A stage in a new numbered folder of the home below `place`; none is left if it, or the block, is refused.

    Raises:
        Refused: parameters or an edit do not fit, an edited program would run without a sandbox, a GPU does not answer,
            or the recipe fails.
    """
    parent = home() / place / question.environment.name
    parent.mkdir(parents=True, exist_ok=True)
    last = max((int(path.name) for path in parent.iterdir() if path.name.isdigit()), default=0)
    folder = parent / f"{last + 1:04d}"
    folder.mkdir()
    try:
        freeze(question.environment, folder)
        if question.program:
            file_trees.remove(folder / "program")
            shutil.copytree(question.program, folder / "program")
        problem = laid(question.environment.model_copy(update={"folder": folder / "environment"}), home())
        sides = {name: _fitted(side, problem, folder) for name, side in question.sides.items()}
        yield stage_in(folder, problem, sides, isolation)
    except Refused:
        file_trees.remove(folder)
        raise


def _fitted(side: Side, environment: Environment, folder: Path) -> Side:
    """A side with complete parameters, and its edit as its program has the lines. Refused if one does not fit."""
    params, edit = environment.complete(side.params), side.edit
    if edit:
        program = originals(environment, side.program or folder / "program")
        edit = placed(edit, side.text, program, environment.editable)
    return replace(side, params=params, edit=edit)


def stage_in(folder: Path, environment: Environment, sides: Mapping[str, Side], isolation: Isolation) -> Stage:
    """All that runs need; the recipe is run if that is still to do. Refused as in `set_up`."""
    check_given(isolation.level, home(), outside(environment))
    if not all(isolation.may_run(side.edit) for side in sides.values()):
        raise Refused(UNSANDBOXED)
    if environment.prepare:
        check_gpus(environment, home())
        with interrupt.deferred():
            prepare(environment, home(), print_aside)
        hold_to(environment)
    return Stage(environment, isolation, folder, sides, slots_of(environment, home()))


def isolated(level: str, allow_unsandboxed: bool) -> Isolation:
    """The sandbox of all runs. Refused if this machine does not offer it. (level: `auto` takes the strongest)"""
    return Isolation(choose(level), allow_unsandboxed)


def print_aside(text: str) -> None:
    """Print on stderr: stdout may be read by a program."""
    print(text, file=sys.stderr)


def score_text(score: Score) -> str:
    """A score with its standard error, or the first line of why there is none."""
    if score.value is None:
        return f"crash: {first_line(score.error)}"
    return number(score.value) + (f" (se {number(score.se)} over {score.n})" if score.se is not None else "")


def first_line(error: str | None) -> str:
    """Why there is no score, in a line that is safe to print."""
    return clean((error or "no score").partition("\n")[0])

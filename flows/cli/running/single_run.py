"""Single runs outside of any campaign: what `try`, `duel` and `calibrate` share. No Prefect run, no MLflow."""

from __future__ import annotations

import json
import secrets
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from environments import Environment
from environments.plugins import Refused
from environments.score import Score
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
class Stage:
    """Where single runs take place: a frozen environment, and the walls."""

    environment: Environment
    isolation: Isolation
    root: Path
    """What the directory of each run is relative to."""
    marker: str
    """What its processes are found by."""
    slots: Slots

    def measure(
        self,
        program: Path,
        place: TrialDir,
        proposal: Proposal,
        seed: int,
        units: int,
        siblings: Sequence[Run] = (),
    ) -> tuple[Run, Score]:
        """Train once, and judge what comes of it, as soon as a slot is free; what cannot be what it says is a crash.

        Args:
            program: The folder with the files of the program.
            units: What the judge's units are drawn from.
            siblings: Other runs of the same proposal.

        Raises:
            CannotStart: no process could be started.
            SlotHeld: somebody else's process uses the slots of this machine.
        """
        from tasks.deciding.run_checks import believed
        from tasks.evaluate import judge_run
        from tasks.train import run_program

        problem, walls = self.environment, self.isolation
        with self.slots.hold(_say) as slot:
            run = run_program(self.marker, problem, walls, program, place, proposal, seed, slot=slot)
            run = replace(run, dir=place.path.relative_to(self.root).as_posix())
            run = believed(problem, (), proposal, run, self.root, siblings)
            return run, judge_run(self.marker, problem, walls, place, run, units, slot)


def stage(
    environment: Environment, walls: str, allow_unsandboxed: bool, edited: bool, root: Path, verb: str
) -> Stage:
    """The place for runs of a frozen environment, which is prepared here unless it is already.

    Raises:
        Refused: walls that this machine does not offer, an edited program that would run without any, a GPU that
            does not answer, or a recipe that fails.
    """
    from tasks.machine.slot_layout import here
    from tasks.sandbox.confinement import listed
    from tasks.sandbox.isolation import Isolation, check_given, choose
    from tasks.train import UNSANDBOXED

    isolation = Isolation(choose(walls), allow_unsandboxed)
    check_given(isolation.level, home(), listed(environment))
    if edited and not isolation.may_run("an edit"):
        raise Refused(UNSANDBOXED)
    slots = here(home(), environment)
    if environment.prepare:
        check_gpus(environment, home())
        with interrupt.deferred():
            prepare(environment, home(), _tell)
        hold_to(environment)
    return Stage(environment, isolation, root, f"{verb}-{secrets.token_hex(4)}", slots)


def _tell(words: str) -> None:
    """What goes on before the first run, where it is not in the way of what is printed for programs."""
    print(words, file=sys.stderr)


def _say(words: str) -> None:
    """That something is waited for, where it is not in the way of what is printed for programs."""
    print(f"waiting: {words}", file=sys.stderr)


def frozen(environment: Environment, folder: Path, program: Path | None = None) -> Environment:
    """The environment as it stands now, copied into a folder, its baseline program beside it.

    Args:
        program: The baseline program where a campaign has frozen it; None: the environment's own.
    """
    freeze(environment, folder)
    if program:
        file_trees.remove(folder / "program")
        shutil.copytree(program, folder / "program")
    return laid(environment.model_copy(update={"folder": folder / "environment"}), home())


def next_in(folder: Path) -> Path:
    """The next numbered directory of a folder, made here, so that two at once get two."""
    folder.mkdir(parents=True, exist_ok=True)
    number = 1 + max((int(path.name) for path in folder.iterdir() if path.name.isdigit()), default=0)
    while True:
        try:
            (folder / f"{number:04d}").mkdir()
        except FileExistsError:
            number += 1
        else:
            return folder / f"{number:04d}"


def parse_params(text: str, what: str) -> Params:
    """Parameters as JSON; `what` is what a refusal calls them."""
    try:
        params = json.loads(text)
    except ValueError as wrong:
        raise Refused(f"{what} {text!r} is not JSON: {wrong}") from wrong
    if not isinstance(params, dict) or not all(isinstance(v, int | float | str) for v in params.values()):
        raise Refused(
            f'{what} {text!r}: give a JSON object of numbers, texts and booleans, such as {{"lr": 0.001}}'
        )
    return params


def read_text(path: Path, what: str) -> str:
    """A file that was named on the command line; `what` is what a refusal calls it."""
    try:
        return path.read_text()
    except OSError as wrong:
        raise Refused(f"{what} {path}: {wrong.strerror}") from wrong
    except UnicodeDecodeError as wrong:
        raise Refused(f"{what} {path} is not text: {wrong}") from wrong


def read_diff(path: Path, what: str) -> str:
    """An edit that was named on the command line."""
    text = read_text(path, what)
    if not text.strip():
        raise Refused(
            f"{what} {path} is empty: give a unified diff, as `diff -u a/train.py b/train.py` writes it"
        )
    return text

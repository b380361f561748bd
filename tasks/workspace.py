"""A trial's directory: the program it runs, the configuration it reads, the place where it leaves its checkpoint.

trials/0007/
    proposal.json   what was proposed, stored before anything runs; never remade
    workspace/      the program (a copy, with the edit applied) and config.json
    out/            all that the program leaves: progress.jsonl and its checkpoint
    log.txt         what it printed in training; judge.txt: under judgement
    result.json     what an evaluation command said
    diff.patch      what differs from the baseline
    trial.json      the decided trial; its presence is what makes a trial finished
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from environments import Environment, plugins
from environments.plugins import Refused
from tasks.trial import Proposal, Trial

TRAINERS = "tasks.trainers"
PROPOSAL = TypeAdapter(Proposal)
TRIAL = TypeAdapter(Trial)


NOT_A_TEXT = re.compile(r" (rename|copy|create mode 1[26]0000|mode change \d+ => 1[26]0000) ")
"""Lines of `git apply --summary`: a file moved or copied from a place that need not be editable, a link, a module."""


class EditFailed(Exception):
    """A code edit does not apply, or touches what it must not; the message says which and why."""


@dataclass(frozen=True)
class TrialDir:
    """The paths of one trial."""

    path: Path

    @property
    def proposal(self) -> Path:
        return self.path / "proposal.json"

    @property
    def workspace(self) -> Path:
        return self.path / "workspace"

    @property
    def config(self) -> Path:
        return self.workspace / "config.json"

    @property
    def out(self) -> Path:
        return self.path / "out"

    @property
    def progress(self) -> Path:
        return self.out / "progress.jsonl"

    @property
    def log(self) -> Path:
        return self.path / "log.txt"

    @property
    def judge_log(self) -> Path:
        return self.path / "judge.txt"

    @property
    def result(self) -> Path:
        return self.path / "result.json"

    @property
    def diff(self) -> Path:
        return self.path / "diff.patch"

    @property
    def trial(self) -> Path:
        return self.path / "trial.json"


def prepare(place: TrialDir, program: Path, environment: Environment, proposal: Proposal, seed: int) -> None:
    """Lay out a fresh workspace and an empty out/; what an earlier, interrupted life left there goes.

    Raises:
        EditFailed: the proposal's edit does not apply.
    """
    for old in (place.workspace, place.out, place.judge_log, place.result):
        _remove(old)
    shutil.copytree(program, place.workspace)
    place.out.mkdir(parents=True)
    if proposal.edit:
        apply_edit(place.workspace, proposal.edit, environment.editable)
    write(place.config, json.dumps(config(place, environment, proposal, seed), indent=2) + "\n")


def _remove(path: Path) -> None:
    """Remove whatever a program has put there: a directory, one without permissions in it, a file, a link."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    path.chmod(0o700)
    for parent, directories, _ in os.walk(path):
        for name in directories:
            if not (Path(parent) / name).is_symlink():
                (Path(parent) / name).chmod(0o700)
    shutil.rmtree(path)


def config(place: TrialDir, environment: Environment, proposal: Proposal, seed: int) -> dict[str, object]:
    """What the program reads as config.json."""
    return {
        "params": proposal.params,
        "seed": seed,
        "budget_seconds": environment.budget_seconds,
        "budget_steps": environment.budget_steps,
        "device": environment.device,
        "out": str(place.out.absolute()),
        "resume": None,
        "init": None,
        "problem": environment.judge.problem(),
    }


def finished(place: TrialDir) -> Trial | None:
    """The trial as the ledger has it, once it is decided; None before."""
    return TRIAL.validate_json(place.trial.read_bytes()) if place.trial.is_file() else None


def fill(command: str, values: Mapping[str, object]) -> list[str]:
    """A command line as arguments, each `{name}` replaced. No shell reads it, so no value can break out of its place.

    Raises:
        Refused: a placeholder that nothing fills, or quotes that do not close.
    """
    try:
        words = shlex.split(command)
    except ValueError as broken:
        raise Refused(f"command line {command!r}: {broken}") from broken
    if not words:
        raise Refused("the command line is empty")
    try:
        return [word.format_map(values) for word in words]
    except KeyError as unknown:
        name = str(unknown.args[0])
        try:
            plugins.require(name, sorted(values), what="placeholder")
        except Refused as refused:
            raise Refused(f"command line {command!r}: {refused}") from None
        raise
    except (ValueError, IndexError, AttributeError, TypeError) as broken:
        raise Refused(f"command line {command!r}: {broken} (write a literal brace twice)") from broken


def apply_edit(workspace: Path, edit: str, editable: tuple[str, ...]) -> None:
    """Apply a unified diff to the editable files: all of it or nothing.

    Raises:
        EditFailed: it does not apply, or touches another file.
    """
    text = edit if edit.endswith("\n") else edit + "\n"
    git = ["git", "apply", "--recount", "--ignore-whitespace", "-C1"]
    numstat = _git_apply([*git, "--numstat", "-z"], workspace, text)
    touched = [entry.split("\t", 2)[2] for entry in numstat.split("\0") if entry.count("\t") == 2]
    for name in touched:
        if name not in editable:
            raise EditFailed(f"the edit touches {name!r}; editable: {', '.join(editable)}")
    if not touched:
        raise EditFailed("the edit changes nothing: it holds no hunk of a unified diff")
    for line in _git_apply([*git, "--summary"], workspace, text).splitlines():
        if NOT_A_TEXT.match(line):  # its name may be editable, what it takes away or points to is not
            raise EditFailed(
                f"the edit has {line.strip()!r}: it may change and add plain files, nothing else"
            )
    _git_apply(git, workspace, text)


def _git_apply(command: list[str], workspace: Path, text: str) -> str:
    # The ceiling keeps git from taking a repository around the campaign for the one to patch.
    environment = git_environment(GIT_CEILING_DIRECTORIES=str(workspace.absolute().parent))
    done = subprocess.run(command, cwd=workspace, input=text, text=True, capture_output=True, env=environment)
    if done.returncode:
        raise EditFailed(f"the edit does not apply: {done.stderr.strip().removeprefix('error: ')}")
    return done.stdout


def git_environment(**more: str) -> dict[str, str]:
    """What git may see: neither the user's configuration, nor a repository that a hook above us speaks of."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    # A home on a mounted volume may belong to another user; what is in it is ours all the same.
    trusted = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    return kept | alone | trusted | more


def write(path: Path, text: str) -> None:
    """Replace a file as a whole: a reader, or a life after kill -9, sees the old text or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)

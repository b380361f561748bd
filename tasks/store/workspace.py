"""A trial's directory: its program, its configuration and its output.

trials/0007/
    proposal.json   the proposal
    workspace/      the program (a copy, with the edit applied) and config.json
    out/            the program's output: progress.jsonl and its checkpoint
    log.txt         its printed output in training; judge.txt: under judgement
    judged/         result.json: the result of an evaluation command
    untrained/      the untrained control of a would-be champion (tasks/control.py)
    diff.patch      its difference from the baseline
    trial.json      the decided trial
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from pydantic import TypeAdapter

import environments
from environments import Environment, plugins
from environments.plugins import Refused
from environments.recipe import DATA
from environments.safe_open import open_file
from tasks.sandbox import outputs
from tasks.system import file_trees
from tasks.system.files import write_atomic
from tasks.trial import Proposal, Trial

TRAINERS = "tasks.trainers"
PROPOSAL = TypeAdapter(Proposal)
TRIAL = TypeAdapter(Trial)
CONFIG_BYTES = 2**24
"""A larger configuration is none of ours."""


class TrialDir:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.proposal = path / "proposal.json"
        self.workspace = path / "workspace"
        self.config = path / "workspace/config.json"
        self.out = path / "out"
        self.progress = path / "out/progress.jsonl"
        self.log = path / "log.txt"
        self.judge_log = path / "judge.txt"
        self.judged = path / "judged"
        self.result = path / "judged/result.json"
        self.diff = path / "diff.patch"
        self.trial = path / "trial.json"


def prepare(place: TrialDir, program: Path, environment: Environment, proposal: Proposal, seed: int) -> str:
    """Make a fresh workspace and an empty out/; returns the digest of the program as it will run."""
    for old in (place.workspace, place.out, place.judge_log, place.judged):
        file_trees.remove(old)
    shutil.copytree(program, place.workspace)
    place.out.mkdir(parents=True)
    if proposal.edit:
        from tasks.editing.edits import apply_edit

        for path in place.workspace.rglob("*"):  # frozen files are read-only, also for an ordinary user
            path.chmod(path.stat().st_mode | stat.S_IWUSR)
        apply_edit(place.workspace, proposal.edit, environment)
    write_atomic(place.config, json.dumps(config(place, environment, proposal, seed), indent=2) + "\n")
    for path in (place.workspace, *place.workspace.rglob("*")):  # whatever the umask: it may run as another user
        path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))
    return program_digest(place)


def relocate(place: TrialDir, environment: Environment) -> None:
    """Correct the paths in the program's configuration, which were written before the home was moved or restored."""
    stored, here = None, _paths(place, environment)
    with suppress(OSError, ValueError, RecursionError), open_file(place.config) as file:  # else it fails for that
        stored = json.loads(file.read(CONFIG_BYTES))
    if isinstance(stored, dict) and stored | here != stored:
        write_atomic(place.config, json.dumps(stored | here, indent=2) + "\n")
        place.config.chmod(place.config.stat().st_mode | 0o444)  # whatever the umask: it may run as another user


def baseline_files(environment: Environment) -> Iterator[tuple[Path, str]]:
    """The files of an environment's own program, with their names in a workspace."""
    for name in environment.program:
        source = environment.folder / name
        for file in environments.files(source) if source.is_dir() else [source]:
            yield file, file.relative_to(environment.folder).as_posix()
    own = "train.py" in environment.program or environment.train_cmd != "python train.py"
    if environment.trainer != "command" and not environment.remote and not (environment.program and own):
        yield from trainer_files(environment.trainer)


def trainer_files(name: str) -> Iterator[tuple[Path, str]]:
    """A trainer's program, called train.py, the `_*.py` modules it imports, and the folder `<name>_parts`."""
    folder = plugins.folder(TRAINERS)
    program = folder / f"{name}.py"
    yield program, "train.py"
    for module in sorted(folder.glob("_[!_]*.py")):
        if re.search(rf"^from {module.stem} import ", program.read_text(), re.MULTILINE):
            yield module, module.name
    for part in environments.files(folder / f"{name}_parts"):
        yield part, part.relative_to(folder).as_posix()


def program_digest(place: TrialDir) -> str:
    return outputs.digest(place.workspace, without=place.config.name.encode())


def config(place: TrialDir, environment: Environment, proposal: Proposal, seed: int) -> dict[str, object]:
    return {
        "params": proposal.params, "seed": seed, "budget_seconds": environment.budget_seconds,
        "budget_steps": environment.budget_steps, "device": environment.device, "cores": max(environment.cores, 1),
        "memory_gb": environment.limits.memory_gb, "problem": environment.judge.problem(), **_paths(place, environment),
    }  # fmt: skip


def _paths(place: TrialDir, environment: Environment) -> dict[str, str | None]:
    data = str(environment.prepared / DATA) if environment.prepared else None
    return {"out": str(place.out.absolute()), "data": data}


def is_own(part: str) -> bool:
    """Whether a run is the trial's own, and so repeated in every attempt."""
    return part.partition("-")[0] in ("", "run", "again")  # others belong to certificates and ablations


PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([^{}:]*)(?::([^{}]*))?\}|[{}]")
"""A literal brace written twice, `{name}`, or `{name:FORM}`; a brace alone matches too, and is refused."""


def fill(command: str, values: Mapping[str, object], where: str = "") -> list[str]:
    """A command line as arguments; Refused if it is invalid, with `where` it stands. No shell reads it.

    `{name}` becomes the value of that name. A truth value may be a switch: `{amp:--amp}` becomes `--amp` or nothing,
    and `{amp:--amp|--no-amp}` one of both. Of other values FORM is that of Python's `format`.
    """
    try:
        words = shlex.split(command)
        filled = [(word, PLACEHOLDER.sub(lambda match: _filled(match, values), word)) for word in words]
    except (Refused, ValueError) as wrong:  # ours, or Python's own of a quote or a form
        raise Refused(f"{where}command line {command!r}: {wrong}") from wrong
    if not words:
        raise Refused(f"{where}the command line is empty")
    switches = {word for word in words if (match := PLACEHOLDER.fullmatch(word)) and match[2] is not None}
    return [text for word, text in filled if text or word not in switches]


def _filled(match: re.Match[str], values: Mapping[str, object]) -> str:
    name, form = match.groups()
    if match[0] in ("{{", "}}"):
        return match[0][0]
    if not name:
        raise Refused(f"{match[0]!r} is no placeholder (write a literal brace twice)")
    plugins.require(name, sorted(values), what="placeholder")
    value = values[name]
    if form is not None and isinstance(value, bool):
        if_true, _, if_false = form.partition("|")
        return if_true if value else if_false
    return format(value, form or "")

"""Whether programs are there and find what they import, before anything trains."""

from __future__ import annotations

import ast
import json
import os
import shlex
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from environments import FILE, Environment
from environments.judges import Misbehaved
from environments.plugins import Refused
from tasks.importing import _original
from tasks.sandbox import confinement
from tasks.sandbox.advice import missing_module
from tasks.sandbox.interpreter import interpreter_of
from tasks.sandbox.isolation import check_given, choose
from tasks.sandbox.program import CannotStart, NotAProgram, Program, child_environment, find_program
from tasks.store import workspace
from tasks.system.home import home

SECONDS = 60.0
FIND = """
import importlib.util, json, sys
print("found", json.dumps([*filter(importlib.util.find_spec, sys.argv[1:])]))
"""


def imported(environment: Environment) -> dict[str, str]:
    """The modules that its judge and the files which its command lines name import when they start, each with who does.

    Modules of its own are followed. What a program imports later, or starts, may have been given other modules by then.
    """
    program = {name: path for path, name in workspace.baseline_files(environment) if path.is_file()}
    judged = {path.name: path for path in environment.folder.glob("*.py")}
    found = dict.fromkeys(environment.judge.imports, "the judge")
    for command, files in ((environment.train_cmd, program), (environment.judge.command(), judged)):
        own = {part for name in files for part in Path(name).with_suffix("").parts}
        waiting = [word for word in shlex.split(command) if word in files and word.endswith(".py")]
        for name in waiting:  # it grows
            for module in _imports(files[name]):
                if (beside := f"{module}.py") in files:
                    waiting += [beside] if beside not in waiting else []
                elif module not in own and module not in sys.stdlib_module_names:
                    found.setdefault(module, name)
    module, _, rest = str(environment.judge.problem().get("id", "")).partition(":")
    top, own = module.partition(".")[0], {name.partition("/")[0].removesuffix(".py") for name in program}
    if rest and environment.trainer in ("ppo", "sac") and top not in own:
        found.setdefault(top, "[control] id")
    return found


def check_commands(environment: Environment) -> None:
    """Refuse a command line that begins with what is no program of this machine, nor a placeholder."""
    python = interpreter_of(environment.python).executable
    path = child_environment("", "", python)["PATH"]
    commands = {"[command] eval_cmd": environment.judge.model_dump().get("eval_cmd")}
    if not environment.remote:
        commands |= {"train_cmd": environment.train_cmd, "check_cmd": environment.check_cmd}
    copied = {name for _, name in workspace.baseline_files(environment)}
    for key, command in commands.items():
        word, *_ = shlex.split(command or "python")
        if "{" in word:
            continue
        try:
            found = Path(find_program(word, environment.folder, path, python))
            own = found == environment.folder / word and not Path(word).is_absolute()
            if own and "eval_cmd" not in key and Path(word).as_posix() not in copied:
                raise NotAProgram(f"{word!r} is not copied to where it runs: add it to `program`")
        except NotAProgram as wrong:
            raise Refused(f"{environment.folder / FILE}: {key}: {wrong}") from wrong


def lacking(environment: Environment) -> list[str]:
    """What its command lines begin with, its programs read and import, and its taskset imports, and is not found here,
    each with what to do.

    It may be meant for another machine. Raises Refused: its Python does not start.
    """
    taskset = environment.folder / str(environment.judge.model_dump().get("taskset", ""))
    beside = {path.stem for path in environment.folder.iterdir()}
    lacks = [
        f"{taskset.name} imports {module}: it is not installed in {sys.executable}"  # which runs it
        for module in (_imports(taskset) if taskset.is_file() else ())
        if module not in beside and find_spec(module) is None
    ]
    level = choose("auto")
    try:
        check_commands(environment)
        check_given(level, home(), confinement.outside(environment))
    except Refused as refused:
        return [str(refused), *lacks]
    modules = imported(environment)
    if not modules or environment.remote or shlex.split(environment.train_cmd)[:1] not in (["python"], ["python3"]):
        return lacks
    with tempfile.TemporaryDirectory(prefix="nightshift-imports-") as folder:
        place = Path(folder).resolve()
        place.chmod(0o755)
        (place / "log").mkdir()
        try:
            with Program(
                ["python", "-c", FIND, *modules], cwd=place, log=place / "log/imports.txt",
                marker=f"imports-{os.getpid()}", level=level, view=confinement.of(environment, (place,), ()),
                limits=environment.limits,
            ) as program:  # fmt: skip
                program.wait(SECONDS)
                lines = program.tail().splitlines()
        except (CannotStart, Misbehaved) as fault:
            return [str(fault), *lacks]
    answers = [line.partition("found ")[2] for line in lines if "found [" in line]
    if not answers:
        raise Refused(f"its Python does not start: {' '.join(lines)[-300:] or 'it printed nothing'}")
    lost = [module for module in modules if module not in json.loads(answers[-1])]
    return [*(f"{modules[module]} imports {module}: {missing_module(environment, module)}" for module in lost), *lacks]


def _imports(file: Path) -> list[str]:
    """The first parts of the modules that a file imports at its top."""
    top = [line for line in _original.parsed(file).body if isinstance(line, ast.Import | ast.ImportFrom)]
    return sorted(_original.imports(ast.Module([*top], [])) - {"__main__"})

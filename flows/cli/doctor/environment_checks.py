"""Checks of one environment on this machine: what its campaign would be refused for, before the night.

They are cheap and train nothing. Those of prime-rl and its GPUs are in prime_rl_checks.py; first_runs.py trains.
"""

from __future__ import annotations

import ast
import importlib.util
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import psutil

from environments import Environment
from environments.plugins import Refused
from flows.cli.doctor.machine import Check, State, gib
from tasks.system.commands import Unanswered

GIB = 2**30
VALIDATE = "correct environment.toml, and ask `nightshift env validate`"
REMEDIES = {
    "files": VALIDATE,
    "packages": VALIDATE,
    "judge": VALIDATE,
    "sandbox": "put on this machine what trials read, or correct readable in environment.toml",
    "room": "make its GPUs visible to this user: `nvidia-smi` must list them",
    "data": "set NIGHTSHIFT_HOME to a folder on a larger disk",
    "space": "set NIGHTSHIFT_HOME to a folder on a larger disk",
}
"""What to do where a check is refused; most refusals say more."""


def checks(environment: Environment, home: Path) -> Mapping[str, Callable[[], Check]]:
    """The cheap checks by name, in the order of the report."""
    own: dict[str, Callable[[], Check]] = {
        name: partial(_held, name, check, environment, home)
        for name, check in {
            "files": files, "packages": packages, "judge": judge, "sandbox": sandbox, "room": room, "data": data,
            "space": space,
        }.items()
    }  # fmt: skip
    if environment.trainer == "prime_rl":
        from flows.cli.doctor import prime_rl_checks

        own |= prime_rl_checks.checks(environment, home)
    return own


def _held(name: str, check: Callable[[Environment, Path], Check], environment: Environment, home: Path) -> Check:
    """The check's result; a refusal is a thing to fix."""
    try:
        return check(environment, home)
    except (Refused, Unanswered) as refused:
        return Check(name, "bad", str(refused), REMEDIES[name])


def files(environment: Environment, home: Path) -> Check:
    """Whether the files and paths that it names are there, and its command lines can be filled in."""
    from tasks import evaluate, train

    environment.check_files()
    train.check(environment)
    evaluate.check(environment)
    return Check("files", "ok", f"{environment.name} in {environment.folder}: files and command lines are in order")


def packages(environment: Environment, home: Path) -> Check:
    """Whether the modules that its Python files import at their top are installed; nothing is imported."""
    from tasks.store import workspace

    if environment.remote:
        fact = f"its program runs at {environment.trainer}, where its packages are"
        return Check("packages", "ok", fact, details={"modules": {}})
    words = shlex.split(environment.train_cmd)
    if not words or words[0] != "python":
        fact = f"its program is started by {words[0] if words else 'nothing'!r}, whose packages are its own"
        return Check("packages", "ok", fact, details={"modules": {}})
    program = {name: path for path, name in workspace.baseline_files(environment) if path.is_file()}
    own = {part for name in program for part in Path(name).with_suffix("").parts}
    modules: dict[str, bool] = {}
    for name, path in program.items():
        if name.endswith(".py"):
            modules |= {module: _is_there(module) for module in _imported(path) if module not in own}
    details = {"modules": modules}
    missing = [module for module, there in modules.items() if not there]
    if missing:
        fact = f"its program imports {', '.join(missing)}, which this Python does not have"
        return Check("packages", "bad", fact, f"`pip install {' '.join(missing)}`, or the extra that names it", details)
    return Check("packages", "ok", f"{len(modules)} imported modules are installed", details=details)


def _imported(file: Path) -> Iterator[str]:
    """The first parts of the modules that a file imports when it is started."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError) as broken:
        raise Refused(f"{file} is no Python that this version reads: {broken}: correct it") from broken
    for line in tree.body:
        if isinstance(line, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in line.names)
        elif isinstance(line, ast.ImportFrom) and line.module and not line.level:
            yield line.module.partition(".")[0]


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ValueError:  # a module that was loaded without a spec is there
        return True


def judge(environment: Environment, home: Path) -> Check:
    """The judge's own check: its packages and settings; a Gymnasium environment is made and reset once."""
    environment.check()
    return Check("judge", "ok", f"the judge {type(environment.judge).__name__.lower()} can be started")


def sandbox(environment: Environment, home: Path) -> Check:
    """Whether its trials have the sandbox that they need, and may read what it lists."""
    from tasks.sandbox.confinement import outside
    from tasks.sandbox.isolation import check_given, choose

    level = choose("auto")
    details = {"level": level}
    check_given(level, home, outside(environment))
    if environment.trainer == "prime_rl" and (level != "bwrap" or environment.network):
        fact = f"prime-rl needs sockets and shared memory: level bwrap without network, and this is {level}"
        fact += " with network = true" * environment.network
        remedy = "let bubblewrap make namespaces (docs/two-gpus.md, Sandbox), and leave network = false"
        return Check("sandbox", "bad", fact, remedy, details)
    return Check("sandbox", "ok", f"its trials run at level {level}, and see what they may read", details=details)


def room(environment: Environment, home: Path) -> Check:
    """The slots for its runs: the GPUs that it needs, or cores."""
    from tasks.machine.slots import slots_of
    from tasks.recipes.preparing import check_gpus

    if environment.trainer == "prime_rl" and environment.gpus < 2:
        fact = f"gpus = {environment.gpus}, and a run of prime-rl needs two: one for vLLM, one that trains"
        return Check("room", "bad", fact, "state gpus = 2 in environment.toml")
    check_gpus(environment, home)
    slots = slots_of(environment, home)
    names = [part.name for part in slots.parts]
    where = "GPUs" if slots.have_gpus else "cores"
    fact = f"{len(names)} run{'s' * (len(names) != 1)} at a time on {where}: {', '.join(names)}"
    return Check("room", "ok", fact, details={"slots": names})


def data(environment: Environment, home: Path) -> Check:
    """Whether what its recipe makes is there, or can be made."""
    from flows.spec.environment import typed
    from tasks.recipes import output, preparing

    place = preparing.place(environment, home)
    if place is None:
        return Check("data", "ok", "it needs no prepared data", details={"folder": None})
    details = {"folder": str(place)}
    made = output.read(place)
    preparing.check_disk(environment, home)
    if made is None:
        remedy = f"`nightshift env prepare {typed(environment)}`, which may need the network and minutes"
        return Check("data", "note", "its data is not prepared yet", remedy, details)
    return Check("data", "ok", f"prepared in {place}, content {made.content}", details=details)


def space(environment: Environment, home: Path) -> Check:
    """Room for what a trial may write: its output on the disk, its temporary files in memory."""
    limits, free = environment.limits, shutil.disk_usage(home).free
    memory = psutil.virtual_memory().available
    facts = [f"{gib(free)} free for out/ (at most {limits.out_gb:g} GiB for each run)"]
    facts.append(f"{gib(memory)} of memory, in which temporary files lie (at most {limits.scratch_gb:g} GiB)")
    wants: list[str] = []
    if free < limits.out_gb * GIB:
        wants.append("a larger disk (NIGHTSHIFT_HOME), `nightshift prune`, or a lower [limits] out_gb")
    needed = limits.scratch_gb + (limits.memory_gb or 0)
    if memory < needed * GIB:
        wants.append("more memory, or lower [limits] scratch_gb and memory_gb")
    state: State = "note" if wants else "ok"
    details = {"free_bytes": free, "memory_free_bytes": memory}
    return Check("space", state, "; ".join(facts), "; ".join(wants), details)

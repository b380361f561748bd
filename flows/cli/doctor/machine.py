"""Checks of the machine and the installed packages, a function each.

They change nothing. Commands are killed after some seconds. Only the names of keys are shown, and of other people's
processes only the program.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import psutil

from tasks.system.commands import Unanswered, ask
from tasks.system.home import install_extra, is_checkout

State = Literal["ok", "note", "bad"]
GIB = 2**30
LITTLE_DISK, NO_DISK = 10 * GIB, GIB
"""Free bytes below which a campaign may fill the disk, and below which it will."""
FIRST_PYTHON, FIRST_PYTHON_TOO_NEW = (3, 11), (3, 14)
KEYS = (
    "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY", "MISTRAL_API_KEY",
    "DEEPSEEK_API_KEY", "GROQ_API_KEY", "AZURE_API_KEY",
)  # fmt: skip
TRAINING = {"torch": ("torch",), "gymnasium": ("gymnasium",), "box2d": ("box2d", "box2d-py")}
"""Packages of the extra `ppo`, with the names of their distributions."""
LANGUAGE = ("litellm", "transformers", "trl", "vllm", "verifiers", "prime-rl")


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    name: str
    state: State
    """`bad` must be fixed; a `note` is good to know."""
    fact: str
    remedy: str = ""
    """What to do; empty where the state is ok."""
    details: Mapping[str, object] = field(default_factory=dict)
    """The same as JSON."""


def isolation() -> Check:
    """The sandbox level of trials on this machine, and why no stronger one works."""
    from tasks.sandbox.isolation import findings

    probed = findings()
    level = next((each.level for each in probed if each.works), "none")
    levels = [{"level": each.level, "works": each.works, "why": each.why} for each in probed]
    better = "; ".join(f"{each.level} does not work: {each.why}" for each in probed if not each.works)
    details = {"level": level, "levels": levels}
    if level == probed[0].level:
        return Check("isolation", "ok", f"trials run at isolation {level}", details=details)
    if not shutil.which("bwrap"):
        remedy = "install bubblewrap: `apt install bubblewrap`"
    elif "failed to execute" in probed[0].why:
        remedy = f"make the interpreter readable for every user: `chmod -R o+rX {sys.prefix} {sys.base_prefix}`"
    else:
        remedy = "allow bwrap to create user namespaces, which a container or AppArmor may forbid"
    if level == "none":
        fact = f"trials run without a sandbox and could reach your files, so code edits are refused: {better}"
        return Check("isolation", "bad", fact, remedy, details)
    return Check("isolation", "note", f"trials run at isolation {level}; {better}", remedy, details)


def limits() -> Check:
    """How the memory and the number of processes of a trial are limited."""
    from tasks.sandbox.cgroup import find

    if cgroup := find():
        fact = f"a cgroup (version {cgroup.version}) limits the memory and the processes of a whole trial"
        return Check("limits", "ok", fact, details={"cgroup": cgroup.version})
    fact = "no cgroup can be created: rlimits limit the memory of each process of a trial alone"
    remedy = "run nightshift as root, or in a systemd scope: `systemd-run --user --scope nightshift ...`"
    if os.geteuid() == 0:
        remedy = "root may lack them in a container: limit the whole container, such as by `docker run --memory`"
    return Check("limits", "note", fact, remedy, {"cgroup": None})


def machine() -> Check:
    """Memory and cores."""
    memory, cores = psutil.virtual_memory(), len(os.sched_getaffinity(0))
    fact = f"{gib(memory.total)} of memory, {gib(memory.available)} of it free; {cores} core{'s' * (cores > 1)}"
    details = {"memory_bytes": memory.total, "memory_free_bytes": memory.available, "cores": cores}
    return Check("machine", "ok", fact, details=details)


def python() -> Check:
    """Whether this version of Python is supported."""
    version = platform.python_version()
    if FIRST_PYTHON <= sys.version_info[:2] < FIRST_PYTHON_TOO_NEW:
        return Check("python", "ok", f"Python {version} at {sys.executable}", details={"version": version})
    (major, minor), (_, end) = FIRST_PYTHON, FIRST_PYTHON_TOO_NEW
    supported = f"{major}.{minor} to {major}.{end - 1}"
    command = f"make clean setup PYTHON=python3.{end - 1}" if is_checkout() else f"python3.{end - 1} -m venv"
    remedy = f"create the environment with Python {supported}: `{command}`"
    return Check("python", "bad", f"Python {version} is not supported ({supported} are)", remedy, {"version": version})


def git() -> Check:
    """Git stores the lineage of a campaign, one commit per trial."""
    remedy = "install it: `apt install git`"
    if shutil.which("git") is None:
        return Check("git", "bad", "git is not installed, which stores the lineage", remedy, {"version": None})
    try:
        version = ask(["git", "--version"]).removeprefix("git version ").strip()
    except Unanswered as silent:
        return Check("git", "bad", str(silent), f"repair it, or {remedy}", {"version": None})
    return Check("git", "ok", f"git {version}", details={"version": version})


def training() -> Check:
    """Whether the packages of the bundled trainers and environments are installed."""
    return _packages("training", TRAINING, "without {} no bundled trainer runs", f"`{install_extra('ppo')}`")


def language() -> Check:
    """Which packages for language models are installed."""
    remedy = "only needed by proposers and trainers that ask for one"
    return _packages("language", {part: (part,) for part in LANGUAGE}, "not installed: {}", remedy)


def _packages(name: str, parts: Mapping[str, Sequence[str]], without: str, remedy: str) -> Check:
    """Whether these parts are installed, by the names of their distributions; nothing is imported."""
    versions: dict[str, str | None] = dict.fromkeys(parts)
    for part, distributions in parts.items():
        for distribution in reversed(distributions):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                versions[part] = importlib.metadata.version(distribution)
    installed = ", ".join(f"{part} {version}" for part, version in versions.items() if version)
    if all(versions.values()):
        return Check(name, "ok", installed, details={"parts": versions})
    missing = ", ".join(part for part, version in versions.items() if version is None)
    fact = without.format(missing) + (f"; installed: {installed}" if installed else "")
    return Check(name, "note", fact, remedy, {"parts": versions})


def keys() -> Check:
    """The keys of LLM services that are set, by name."""
    found = [name for name in KEYS if os.environ.get(name, "").strip()]
    if found:
        return Check("keys", "ok", f"set: {', '.join(found)}", details={"keys": found})
    fact = "no key for an LLM service is set"
    remedy = f"proposers that ask an LLM need one: `export {KEYS[0]}=...`, or another's"
    return Check("keys", "note", fact, remedy, {"keys": []})


def place(home: Path) -> Check:
    """Whether the home is writable and private."""
    mode = home.stat().st_mode & 0o777
    details = {"path": str(home), "mode": f"{mode:04o}"}
    try:
        with tempfile.TemporaryFile(dir=home) as file:
            file.write(bytes(2**16))
            file.flush()
            os.fsync(file.fileno())
    except OSError as fault:
        remedy = "make it writable, or set NIGHTSHIFT_HOME to another folder"
        return Check("home", "bad", f"{home} is not writable: {fault.strerror}", remedy, details)
    if mode & 0o066:  # others may pass through (x), as the user of a database below it must
        fact = f"{home} is readable by others (mode {mode:04o})"
        return Check("home", "note", fact, f"`chmod 700 {home}`", details)
    return Check("home", "ok", f"{home} is writable and private (mode {mode:04o})", details=details)


def disk(home: Path) -> Check:
    """Free disk space for campaigns."""
    usage = shutil.disk_usage(home)
    state: State = "bad" if usage.free < NO_DISK else "note" if usage.free < LITTLE_DISK else "ok"
    remedy = "free some space, or set NIGHTSHIFT_HOME to a folder on a larger disk" if state != "ok" else ""
    details = {"free_bytes": usage.free, "total_bytes": usage.total}
    return Check("disk", state, f"{gib(usage.free)} of {gib(usage.total)} free at {home}", remedy, details)


def prepared(home: Path) -> Check:
    """Data that recipes have prepared for environments, unfinished data, and the cache of models."""
    from tasks.recipes.execution import OFFLINE, is_offline, shared
    from tasks.recipes.output import FILE
    from tasks.recipes.preparing import FOLDER

    whole = {path.parent.name: _size(path.parent) for path in sorted((home / FOLDER).glob(f"*/{FILE}"))}
    making = [path.stem for path in sorted((home / FOLDER).glob("*.making"))]
    unfinished = [name for name in making if name not in whole]
    hub, offline = shared(os.environ)["HF_HUB_CACHE"], is_offline(os.environ)
    details = {"bytes": whole, "unfinished": unfinished, "hub": str(hub), "offline": offline}
    fact = f"{len(whole)} environment{'s' * (len(whole) != 1)} in {home / FOLDER}, {gib(sum(whole.values()))}"
    fact += f"; {OFFLINE} is set: recipes use only what is in {hub}" * offline
    if unfinished:
        fact += f"; in progress or interrupted: {', '.join(unfinished)}"
        remedy = "the next `nightshift env prepare` removes interrupted ones"
        return Check("prepared", "note", fact, remedy, details)
    return Check("prepared", "ok", fact, details=details)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def gib(size: float) -> str:
    """A number of bytes, for people."""
    return f"{size / GIB:.1f} GiB"

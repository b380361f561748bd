"""What `nightshift doctor` asks of the machine and of what is installed: a function each, which returns a `Check`.

Nothing here changes anything, and nothing waits for long: a command that is asked is given some seconds and then
killed. Of the environment's keys only the names are told, of other people's processes no more than the program.
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

State = Literal["ok", "note", "bad"]
GIB = 2**30
LITTLE_DISK, NO_DISK = 10 * GIB, GIB
"""Free bytes below which a night may fill the disk, and below which it will."""
FIRST_PYTHON, FIRST_PYTHON_TOO_NEW = (3, 11), (3, 14)
KEYS = (
    "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY", "MISTRAL_API_KEY",
    "DEEPSEEK_API_KEY", "GROQ_API_KEY", "AZURE_API_KEY",
)  # fmt: skip
TRAINING = {"torch": ("torch",), "gymnasium": ("gymnasium",), "box2d": ("box2d", "box2d-py")}
"""What the extra `ppo` installs, and the names that each is known by."""
LANGUAGE = ("litellm", "transformers", "trl", "vllm", "verifiers", "prime-rl")


@dataclass(frozen=True)
class Check:
    """What was looked at and what was found there."""

    name: str
    state: State
    """`bad` has to be mended; a `note` is only good to know."""
    fact: str
    remedy: str = ""
    """What to do about it; empty where it is ok."""
    details: Mapping[str, object] = field(default_factory=dict)
    """The same for programs: what JSON can hold."""


def isolation() -> Check:
    """At which level the programs of trials run here, and why at no better one."""
    from tasks.sandbox.isolation import findings

    found = findings()
    level = next((one.level for one in found if one.works), "none")
    levels = [{"level": one.level, "works": one.works, "why": one.why} for one in found]
    better = "; ".join(f"{one.level} does not work: {one.why}" for one in found if not one.works)
    details = {"level": level, "levels": levels}
    if level == found[0].level:
        return Check("isolation", "ok", f"a trial's program runs at the level {level}", details=details)
    if not shutil.which("bwrap"):
        remedy = "install bubblewrap: `apt install bubblewrap`"
    elif "failed to execute" in found[0].why:
        remedy = f"let every user read the interpreter: `chmod -R o+rX {sys.prefix} {sys.base_prefix}`"
    else:
        remedy = "let bwrap make user namespaces, which a container or AppArmor may forbid"
    if level == "none":
        fact = f"nothing keeps a trial's program from your files, so edits of code are refused: {better}"
        return Check("isolation", "bad", fact, remedy, details)
    return Check(
        "isolation", "note", f"a trial's program runs at the level {level}; {better}", remedy, details
    )


def limits() -> Check:
    """What keeps a trial from taking all memory and all process numbers."""
    from tasks.sandbox.cgroup import find

    found = find()
    if found:
        fact = f"a cgroup (version {found.version}) limits the memory and the processes of a trial as a whole"
        return Check("limits", "ok", fact, details={"cgroup": found.version})
    fact = "no cgroup can be made here: rlimits limit the memory of each of a trial's processes by itself"
    remedy = "start it where some can: as root, or in a session of systemd, `systemd-run --user --scope nightshift ...`"
    return Check("limits", "note", fact, remedy, {"cgroup": None})


def machine() -> Check:
    """Memory and cores."""
    memory, cores = psutil.virtual_memory(), len(os.sched_getaffinity(0))
    fact = (
        f"{gib(memory.total)} of memory, {gib(memory.available)} of it free; {cores} core{'s' * (cores > 1)}"
    )
    details = {"memory_bytes": memory.total, "memory_free_bytes": memory.available, "cores": cores}
    return Check("machine", "ok", fact, details=details)


def python() -> Check:
    """Whether this Python is one that Nightshift is made for."""
    version = platform.python_version()
    if FIRST_PYTHON <= sys.version_info[:2] < FIRST_PYTHON_TOO_NEW:
        return Check("python", "ok", f"Python {version} at {sys.executable}", details={"version": version})
    (major, minor), (_, end) = FIRST_PYTHON, FIRST_PYTHON_TOO_NEW
    supported = f"{major}.{minor} to {major}.{end - 1}"
    remedy = f"make the environment with Python {supported}: `make clean setup PYTHON=python3.{end - 1}`"
    return Check("python", "bad", f"Python {version} is not one of {supported}", remedy, {"version": version})


def git() -> Check:
    """Git writes the lineage of a campaign, a commit for each trial."""
    remedy = "install it: `apt install git`"
    if shutil.which("git") is None:
        return Check("git", "bad", "there is no git, which keeps the lineage", remedy, {"version": None})
    try:
        version = ask(["git", "--version"]).removeprefix("git version ").strip()
    except Unanswered as silent:
        return Check("git", "bad", str(silent), f"mend it, or {remedy}", {"version": None})
    return Check("git", "ok", f"git {version}", details={"version": version})


def training() -> Check:
    """Whether what the bundled trainers and environments import is installed."""
    found = {part: _version(names) for part, names in TRAINING.items()}
    missing = [part for part, version in found.items() if version is None]
    if not missing:
        return Check("training", "ok", _listed(found), details={"parts": found})
    has = f"; installed: {_listed(found)}" if any(found.values()) else ""
    fact = f"without {', '.join(missing)} no bundled trainer runs{has}"
    return Check("training", "note", fact, "`pip install --editable '.[ppo]'`", {"parts": found})


def language() -> Check:
    """Which of the packages for language models are installed: nothing needs them that does not name them."""
    found = {part: _version((part,)) for part in LANGUAGE}
    missing = [part for part, version in found.items() if version is None]
    if not missing:
        return Check("language", "ok", _listed(found), details={"parts": found})
    has = f"; installed: {_listed(found)}" if any(found.values()) else ""
    remedy = "nothing to do unless a proposer or a trainer asks for one"
    return Check("language", "note", f"not installed: {', '.join(missing)}{has}", remedy, {"parts": found})


def keys() -> Check:
    """For which LLM services there is a key: its name, never its value."""
    found = [name for name in KEYS if os.environ.get(name, "").strip()]
    if found:
        return Check("keys", "ok", f"set: {', '.join(found)}", details={"keys": found})
    fact = "no key for an LLM service is set"
    remedy = f"proposers that ask an LLM need one: `export {KEYS[0]}=...`, or another's"
    return Check("keys", "note", fact, remedy, {"keys": []})


def place(home: Path) -> Check:
    """Whether campaigns can be written, and whether they are private."""
    mode = home.stat().st_mode & 0o777
    details = {"path": str(home), "mode": f"{mode:04o}"}
    try:
        with tempfile.TemporaryFile(dir=home) as file:
            file.write(bytes(2**16))
            file.flush()
            os.fsync(file.fileno())
    except OSError as fault:
        remedy = "give it to this user, or set NIGHTSHIFT_HOME to another folder"
        return Check("home", "bad", f"{home} cannot be written: {fault.strerror}", remedy, details)
    if mode & 0o066:  # who may only pass through, as the user of a database below it has to, reads nothing
        fact = f"{home} can be read by others (mode {mode:04o})"
        return Check("home", "note", fact, f"`chmod 700 {home}`", details)
    return Check("home", "ok", f"{home} can be written, and is private (mode {mode:04o})", details=details)


def disk(home: Path) -> Check:
    """How much room there is for campaigns."""
    usage = shutil.disk_usage(home)
    state: State = "bad" if usage.free < NO_DISK else "note" if usage.free < LITTLE_DISK else "ok"
    remedy = "make room, or set NIGHTSHIFT_HOME to a folder on a larger disk" if state != "ok" else ""
    details = {"free_bytes": usage.free, "total_bytes": usage.total}
    return Check("disk", state, f"{gib(usage.free)} of {gib(usage.total)} free at {home}", remedy, details)


def prepared(home: Path) -> Check:
    """What recipes have made for environments, what of that is not whole, and where they find models."""
    from tasks.recipes.execution import OFFLINE, is_offline, shared
    from tasks.recipes.output import FILE
    from tasks.recipes.preparing import FOLDER

    whole = {path.parent.name: _size(path.parent) for path in sorted((home / FOLDER).glob(f"*/{FILE}"))}
    making = [path.stem for path in sorted((home / FOLDER).glob("*.making"))]
    unfinished = [name for name in making if name not in whole]
    hub, offline = shared(os.environ)["HF_HUB_CACHE"], is_offline(os.environ)
    details = {"bytes": whole, "unfinished": unfinished, "hub": str(hub), "offline": offline}
    fact = f"{len(whole)} environment{'s' * (len(whole) != 1)} in {home / FOLDER}, {gib(sum(whole.values()))}"
    fact += f"; {OFFLINE} is set: recipes have no network, and what is in {hub}" * offline
    if unfinished:
        fact += f"; under way, or cut off: {', '.join(unfinished)}"
        remedy = "the next `nightshift env prepare` clears what was cut off"
        return Check("prepared", "note", fact, remedy, details)
    return Check("prepared", "ok", fact, details=details)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def gib(size: float) -> str:
    """A number of bytes, for people."""
    return f"{size / GIB:.1f} GiB"


def _version(names: Sequence[str]) -> str | None:
    """The version of an installed distribution, whichever of its names it goes by; nothing is imported."""
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    return None


def _listed(found: Mapping[str, str | None]) -> str:
    return ", ".join(f"{part} {version}" for part, version in found.items() if version)

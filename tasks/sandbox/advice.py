"""Advice on a program's failure: the line to change, as far as its last words tell what was missing.

Its words are only read. They may be forged, so nothing is looked up for them but files of the environment's own folder
that the judge does not use, and packages of our own interpreter.
"""

from __future__ import annotations

import os
import re
import sysconfig
from importlib.machinery import PathFinder
from pathlib import Path

from environments import FILE, Environment
from tasks.sandbox import confinement, usage
from tasks.sandbox.confinement import Level
from tasks.sandbox.interpreter import OWN, hidden_because, interpreter_of
from tasks.system.home import home_path

MISSING = re.compile(r"No module named '([A-Za-z_][\w.]{0,99})'")
DENIED = re.compile(r"(?:No such file or directory|Permission denied|Read-only file system)\W+'([^'\n]+)'")
"""The operating system's words, with the path that Python puts behind them."""
PROCESSES = re.compile("Resource temporarily unavailable|can't start new thread|pthread_create")
MEMORY = re.compile("MemoryError|[Cc]an(?:not|'t) allocate memory|bad_alloc")
NO_NETWORK = re.compile(
    "name resolution|Network is unreachable|No route to host|Connection refused"
    "|connect to 'https://huggingface|host='huggingface|LocalEntryNotFound"
)
NO_CUDA = re.compile("Error 304|cudaErrorOperatingSystem|CUDA_ERROR_OPERATING_SYSTEM")
NO_SHARING = re.compile("SemLock|/dev/shm")
SHUT = re.compile("Permission denied|PermissionError|Read-only file system|Operation not permitted")


def advice(level: Level, environment: Environment, words: str) -> str:
    """What to change, in parentheses on a line of its own; empty when `words`, printed last, do not tell."""
    found = _module(environment, words) or _file(environment, words) or _limit(environment, words)
    if not found and level != "none":
        found = _network(level, environment, words) or _outside(level, words)
    return f"\n({found})" if found else ""


def saves_elsewhere(level: Level, command: str, folder: Path) -> str:
    """The same for a program that left nothing: whether its command, or Python in `folder`, names files in /tmp."""
    if level == "none":
        return ""
    texts = [path.read_text(errors="replace") for path in sorted(folder.glob("*.py")) if path.is_file()]
    return f"\n({_private(level)})" if any("/tmp/" in text for text in (command, *texts)) else ""


def missing_module(environment: Environment, module: str) -> str:
    """What to do about a module that programs do not find."""
    for beside in (f"{module}.py", module):
        if _is_left_out(environment, beside):
            return f"{beside} lies beside {FILE}, but programs see only files that `program` lists: add it to `program`"
    own = interpreter_of(environment.python)
    if (folder := own.editable_package(module)) and (why := hidden_because(folder)):
        return f"{module} is installed in editable mode from {folder}, and {why}: install it without --editable"
    # Which distribution has a module is not known: one of its name may be a stranger's.
    remedy = f": {environment.requires[module]}" if module in environment.requires else ""
    return f"{module} is not installed in {own.executable}, which is `python` to programs{remedy}"


def _module(environment: Environment, words: str) -> str:
    if not (names := MISSING.findall(words)):
        return ""
    top, _, part = names[-1].partition(".")
    own = interpreter_of(environment.python)
    places = [str(path) for prefix in own.prefixes for path in prefix.glob("lib/python3*/site-packages")]
    places += [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")] if own is OWN else []
    if not PathFinder.find_spec(top, places):
        return missing_module(environment, top)
    return f"{top} is installed in {own.executable}, without {names[-1]}: another version?" if part else ""


def _file(environment: Environment, words: str) -> str:
    for name in DENIED.findall(words)[-1:]:
        if Path(name).parts[:1] in [(path,) for path in environment.readable]:
            return f"what `readable` lists is not in the workspace: open {{environment}}/{name}"
        if not name.startswith("/") and _is_left_out(environment, name):
            return f"{name} lies beside {FILE}, but programs see only files that are listed: add it to `program`"
    return ""


def _is_left_out(environment: Environment, name: str) -> bool:
    """Whether the environment has this file or folder, neither listed nor used by its judge."""
    folder = environment.folder.resolve()
    path = Path(os.path.realpath(folder / name))
    # A name may be too long for a file, which Path.exists() raises.
    if not os.path.exists(path) or not path.is_relative_to(folder) or path in (folder, folder / FILE):  # noqa: PTH110
        return False
    listed = [(folder / given).resolve() for given in (*environment.program, *environment.readable)]
    asked = [(folder / word).resolve() for word in environment.judge.command().split()]
    return not any(path.is_relative_to(one) for one in listed) and not any(one.is_relative_to(path) for one in asked)


def _limit(environment: Environment, words: str) -> str:
    limits = environment.limits
    if PROCESSES.search(words):
        return f"it may have {limits.processes} processes and threads at a time: start fewer, or raise limits.processes"
    if MEMORY.search(words):
        most = usage.allowed(limits) / usage.GIB
        return f"it may use {most:.3g} GiB of memory: use less, or raise limits.memory_gb"
    return ""


def _network(level: Level, environment: Environment, words: str) -> str:
    if NO_CUDA.search(words) and (level == "landlock" or environment.network):
        return "NVIDIA's driver opens a Unix socket, which takes bubblewrap, and a program without a network"
    if not NO_NETWORK.search(words) or environment.network:
        return ""
    return (
        f"sandbox {level}: programs have no network, and a home of their own: list data in `readable`, of Hugging Face "
        "the `hub` folder of your cache, beginning the command with `env HF_HUB_CACHE=.../hub HF_HUB_OFFLINE=1`; or "
        "set network = true"
    )


def _outside(level: Level, words: str) -> str:
    shut, paths = SHUT.search(words), DENIED.findall(words)[-1:]
    if level == "landlock" and NO_SHARING.search(words):
        return "sandbox landlock: shared memory and multiprocessing's locks and queues need bubblewrap"
    if shut and "socket" in words and not paths:
        return f"sandbox {level}: Unix sockets, and at landlock all others, need bubblewrap without `network = true`"
    if any(path.startswith("/tmp/") and not _is_ours(path) for path in paths):
        return _private(level)
    if not shut and not any(path.startswith("/") for path in paths):
        return ""
    return (
        f"sandbox {level}: it reads its workspace and what `readable` lists, and writes {{out}} and TMPDIR; "
        "files elsewhere are not there, or not open to it"
    )


def _is_ours(path: str) -> bool:
    """Whether it is in the home of programs, or in that of campaigns, which may be below /tmp."""
    return path.startswith(f"{confinement.HOME}/") or Path(path).is_relative_to(home_path())


def _private(level: Level) -> str:
    how = "its own and gone after it" if level == "bwrap" else "closed to it"
    return f"sandbox {level}: to a program /tmp is {how}: write what is to stay to {{out}}, the rest to TMPDIR"

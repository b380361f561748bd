"""Advice on a program's failure: the line to change, as far as its last words tell what was missing.

Its words may be forged, so nothing is looked up for them but files of the environment's own folder that the judge does
not use.
"""

from __future__ import annotations

import os
import re

from environments import FILE, Environment
from tasks.sandbox.confinement import Level
from tasks.sandbox.interpreter import interpreter_of
from tasks.sandbox.program import GIB, allowed_memory

MISSING = re.compile(r"No module named '([A-Za-z_]\w{0,99})'")
DENIED = re.compile(
    r"(?:No such file or directory|Permission denied|Read-only file system)\W+'([^'\n]+)'|exec(?:ute|vp) (/[^:\n]+)"
)
"""The operating system's words, with the path that Python puts behind them, or a starter before them."""
MEMORY = re.compile("MemoryError|[Cc]an(?:not|'t) allocate memory|bad_alloc")
NO_NETWORK = re.compile(
    "name resolution|Network is unreachable|No route to host|Connection refused"
    "|connect to 'https://huggingface|host='huggingface|LocalEntryNotFound"
)


def advice(level: Level, environment: Environment, words: str) -> str:
    """What to change, in parentheses on a line of its own; empty when `words`, printed last, do not tell."""
    modules, paths = MISSING.findall(words)[-1:], ["".join(found) for found in DENIED.findall(words)][-1:]
    hint = ""
    if modules:
        hint = missing_module(environment, modules[0])
    elif paths and not paths[0].startswith("/") and _is_left_out(environment, paths[0]):
        hint = _beside(paths[0])
    elif MEMORY.search(words):
        most = allowed_memory(environment.limits) / GIB
        hint = f"it may use {most:.3g} GiB of memory: use less, or raise limits.memory_gb"
    elif level != "none" and not environment.network and NO_NETWORK.search(words):
        hint = (
            f"sandbox {level}: programs have no network, and a home of their own: list data in `readable`, of Hugging "
            "Face the `hub` folder of your cache, beginning the command with `env HF_HUB_CACHE=.../hub "
            "HF_HUB_OFFLINE=1`; or set network = true"
        )
    elif level != "none" and paths and paths[0].startswith("/"):
        hint = (
            f"sandbox {level}: it reads its workspace and what `python` and `readable` name, and writes {{out}} and "
            "TMPDIR; files elsewhere, in /tmp too, are not there, not open to it, or gone after it"
        )
    return f"\n({hint})" if hint else ""


def missing_module(environment: Environment, module: str) -> str:
    """What to do about a module that programs do not find."""
    for beside in (f"{module}.py", module):
        if _is_left_out(environment, beside):
            return _beside(beside)
    # Which distribution has a module is not known: one of its name may be a stranger's.
    remedy = f": {environment.requires[module]}" if module in environment.requires else ""
    python = interpreter_of(environment.python).executable
    return f"{module} is not installed in {python}, which is `python` to programs{remedy}"


def _beside(name: str) -> str:
    return f"{name} lies beside {FILE}, but programs see only files that `program` lists: add it to `program`"


def _is_left_out(environment: Environment, name: str) -> bool:
    """Whether a path leads into a file or folder of the environment of which nothing is listed or used by its judge."""
    used = (*environment.program, *environment.readable, *environment.judge.command().split(), FILE)
    first, *known = (os.path.normpath(one).partition("/")[0] for one in (name, *used))
    return first not in known and any(path.name == first for path in environment.folder.iterdir())

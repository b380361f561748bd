"""The process that reads one foreign text for `reader.read`, with limits.

    main(PLAN)   # {"function": "module:name", "engine": 123, "scratch": ..., "landlock": ..., "filter": ...}, as JSON

It is run by `python -I -S`, and so is the function's module: they import nothing but the standard library. It loads the
module, limits and confines itself, reads the values from its standard input, and answers on its standard output, a
file. It ends with its engine.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

from tasks.sandbox import supervisor

CPU_SECONDS = 3
"""Of processor time for one reading, without those of git."""
MEMORY = 512 * 2**20
"""Bytes of address space, of the reader and of git."""
ANSWER_LIMIT = 32 * 2**20
"""Most bytes of a result, and of any file that is written."""
FILES = 64
"""Open at once."""
OUT_OF_MEMORY, NOT_CONFINED = 101, 102
"""Exit statuses of a reader that cannot say so itself."""


def main(stated: str) -> None:
    """Run the function of that plan, and end."""
    plan = json.loads(stated)
    module, _, name = plan["function"].partition(":")
    function = getattr(importlib.import_module(module), name)
    status = NOT_CONFINED
    try:
        _confine(plan)
        status = OUT_OF_MEMORY
        _answer(function)
        status = 0
    finally:
        os._exit(status)


def _confine(plan: dict[str, Any]) -> None:
    """Limits on the reader and the git that it may start, and nothing to reach but a folder of its own."""
    if sys.platform == "linux":
        supervisor.die_with(plan["engine"])
        # When memory is short, it is killed before anything else.
        own = Path("/proc/self/oom_score_adj")
        if int(own.read_text()) < 900:  # to lower it takes a privilege
            own.write_text("900")
    limits = {"RLIMIT_AS": MEMORY, "RLIMIT_FSIZE": ANSWER_LIMIT, "RLIMIT_NOFILE": FILES, "RLIMIT_CORE": 0}
    supervisor.limit(limits)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))  # SIGXCPU, and then SIGKILL
    if plan["landlock"] is not None:
        rules = [*plan["landlock"]["rules"], (plan["scratch"], True)]
        supervisor.restrict({**plan["landlock"], "rules": rules}, plan["filter"])


def _answer(function: Any) -> None:
    """Read the values, and write what the function makes of them, or why it makes nothing."""
    try:
        said = json.dumps({"made": function(*json.load(sys.stdin.buffer))}).encode()
        if len(said) > ANSWER_LIMIT:
            said = json.dumps({"limit": f"makes a result of more than {ANSWER_LIMIT // 2**20} MiB"}).encode()
    except MemoryError:
        raise
    except RecursionError:
        said = b'{"limit": "is nested too deeply to be read"}'
    except Exception as wrong:  # noqa: BLE001 - whatever a text provokes is about that text
        ours = type(wrong).__module__.startswith("tasks.")
        reason = str(wrong) if ours else f"cannot be read ({type(wrong).__name__}: {str(wrong)[:200]})"
        said = json.dumps({"refused" if ours else "limit": reason}).encode()
    sys.stdout.buffer.write(said)
    sys.stdout.buffer.flush()

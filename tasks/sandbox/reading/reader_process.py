"""The process that reads one foreign text for `reader.read`, within limits.

    main()   # ["module:function", [values]] on standard input, as JSON

It is run by `python -I -S`, and so is the function's module: they import nothing but the standard library.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys

from tasks.sandbox import supervisor

CPU_SECONDS = 3
"""Of processor time for one reading, and for each git that it starts."""
MEMORY = 512 * 2**20
"""Bytes of address space, of the reader and of git."""
ANSWER_LIMIT = 32 * 2**20
"""Most bytes of a result, and of any file that is written."""
OUT_OF_MEMORY = 101
"""Exit status of a reader that cannot say so itself."""


def main() -> None:
    """Run the function, and end with its answer on standard output."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what anything prints is no answer
    name, values = json.load(sys.stdin.buffer)
    module, _, function = name.partition(":")
    called = getattr(importlib.import_module(module), function)
    supervisor.limit({"RLIMIT_AS": MEMORY, "RLIMIT_FSIZE": ANSWER_LIMIT, "RLIMIT_CORE": 0})
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))  # SIGXCPU, and then SIGKILL
    try:
        said = json.dumps({"made": called(*values)}).encode()
        if len(said) > ANSWER_LIMIT:
            said = json.dumps({"limit": f"makes a result of more than {ANSWER_LIMIT // 2**20} MiB"}).encode()
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    except RecursionError:
        said = b'{"limit": "is nested too deeply to be read"}'
    except Exception as wrong:  # noqa: BLE001 - whatever a text provokes is about that text
        ours = type(wrong).__module__.startswith("tasks.")
        reason = str(wrong) if ours else f"cannot be read ({type(wrong).__name__}: {str(wrong)[:200]})"
        said = json.dumps({"refused" if ours else "limit": reason}).encode()
    with os.fdopen(answers, "wb") as answer:
        answer.write(said)

"""Reading of foreign text, such as an edited program or a model's answer, in a process of its own with limits.

    text = read(diff.diff_of, before, after)

A parser may need exponential time, all memory, or the whole stack for a text of a few kilobytes, and no Python code can
end it. So nothing in the engine parses what others wrote: a plain function of ours does, in a process with limits on
processor time and memory. That process runs `python -I -S`: this module and the function's import nothing but the
standard library there.

A verdict must not depend on how busy the machine is. The wall limit is a last resort, and a fault of the machine.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, TypeVarTuple, cast

from tasks.sandbox import supervisor

CPU_SECONDS = 3
"""Of processor time for one reading, and for each git that it starts."""
MEMORY = 512 * 2**20
"""Bytes of address space, of the reader and of git."""
FILE_BYTES = 32 * 2**20
"""Of any file that is written."""
WALL_SECONDS = 60.0
ROOT = Path(__file__).parents[2]
BEGIN = "import sys; sys.path.append(sys.argv[1]); from tasks.sandbox.reader import main; main()"

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class EditFailed(Exception):
    """Foreign text, such as an edit, cannot be read, does not apply or is not allowed: what, where and why."""


def read(function: Callable[[*Ts], T], *values: *Ts) -> T:
    """The result of a function of a module that imports only the standard library, run in a process with limits.

    Values and result are JSON.

    Raises:
        EditFailed: the function raises it, or any other exception, or needs more time, memory or depth than it may.
        CannotStart: the machine could not run it, or not in time.
    """
    from tasks.sandbox.program import CannotStart  # with packages that the reader's process does not have

    question = json.dumps([function.__module__, function.__name__, values]).encode()
    try:
        with tempfile.TemporaryDirectory(prefix="nightshift-read-") as scratch:
            done = subprocess.run(
                [sys.executable, "-I", "-S", "-B", "-c", BEGIN, str(ROOT)], cwd=scratch, input=question,
                env={"PATH": os.environ.get("PATH", os.defpath), "TMPDIR": scratch}, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, timeout=WALL_SECONDS,
            )  # fmt: skip
    except (subprocess.TimeoutExpired, OSError) as fault:
        raise CannotStart(f"foreign text cannot be read: {fault}") from fault
    if done.returncode == -signal.SIGKILL:
        raise CannotStart("foreign text was being read when the reader was killed: is the machine out of memory?")
    if done.returncode == -signal.SIGXCPU:
        raise EditFailed(f"the text takes more than {CPU_SECONDS} s of processor time to be read")
    if done.returncode:
        raise EditFailed(f"the text crashes its parser (status {done.returncode}): it may be nested too deeply")
    result, reason = json.loads(done.stdout)
    if reason is not None:
        raise EditFailed(reason)
    return cast(T, result)


def main() -> None:
    """In the reader's process: run the function that standard input names, and print its answer."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what anything prints is no answer
    module, name, values = json.load(sys.stdin.buffer)
    called = getattr(importlib.import_module(module), name)
    supervisor.limit({"RLIMIT_AS": MEMORY, "RLIMIT_FSIZE": FILE_BYTES, "RLIMIT_CORE": 0})
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))  # SIGXCPU, and then SIGKILL
    try:
        answer = json.dumps([called(*values), None])
    except EditFailed as wrong:
        answer = json.dumps([None, str(wrong)])
    except Exception as wrong:  # noqa: BLE001 - whatever a text provokes is about that text
        answer = json.dumps([None, f"the text cannot be read ({type(wrong).__name__}: {str(wrong)[:200]})"])
    with os.fdopen(answers, "w") as pipe:
        pipe.write(answer)

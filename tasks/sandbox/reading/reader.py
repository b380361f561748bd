"""Reading of foreign text, such as an edited program or a model's answer, in a process of its own with limits.

    text = read(diff.diff_of, before, after)

A parser may need exponential time, all memory, or the whole stack for a text of a few kilobytes, and no Python code can
end it. So nothing in the engine parses what others wrote: a plain function of ours does, in a process with limits on
processor time and memory (tasks/sandbox/reading/reader_process.py). Its values are JSON in both directions.

A verdict must not depend on how busy the machine is. The wall limit is a last resort, and a fault of the machine.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from tasks.sandbox.program import CannotStart
from tasks.sandbox.reading.reader_process import CPU_SECONDS, MEMORY, OUT_OF_MEMORY

QUESTION_LIMIT = 16 * 2**20
"""Most bytes of the values of one call."""
WALL_SECONDS = 60.0
ROOT = Path(__file__).parents[3]
BEGIN = "import sys; sys.path.append(sys.argv[1]); from tasks.sandbox.reading.reader_process import main; main()"

P = ParamSpec("P")
T = TypeVar("T")


class Unreadable(Exception):
    """A text that could not be read: the reason that the function states, or the limit that it has met."""

    def __init__(self, reason: str, stated: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.stated = stated
        """Whether the function itself refused the text, in a whole sentence."""

    def about(self, what: str) -> str:
        """The reason as a sentence about `what`."""
        return self.reason if self.stated else f"{what} {self.reason}"


def read(function: Callable[P, T], *values: P.args, **none: P.kwargs) -> T:
    """The result of a function of a module, run in a process with limits.

    Args:
        function: Of a module that imports only the standard library. An exception of ours that it raises is a refusal.
        values: Texts, numbers, lists and dictionaries of them, as is the result.

    Raises:
        Unreadable: the function refuses the text, or needs more time, memory or depth than it may.
        CannotStart: the machine could not run it, or not in time.
    """
    assert not none, "values are given by position"
    question = json.dumps([f"{function.__module__}:{function.__name__}", values]).encode()
    if len(question) > QUESTION_LIMIT:
        raise Unreadable(f"has more than {QUESTION_LIMIT // 2**20} MiB", stated=False)
    try:
        with tempfile.TemporaryDirectory(prefix="nightshift-read-") as scratch:
            done = subprocess.run(
                [sys.executable, "-I", "-S", "-B", "-c", BEGIN, str(ROOT)],
                cwd=scratch,
                env={"PATH": os.environ.get("PATH", os.defpath), "TMPDIR": scratch},
                input=question,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=WALL_SECONDS,
            )
    except subprocess.TimeoutExpired as late:
        raise CannotStart("foreign text had too little of the processor to be read in time") from late
    except OSError as fault:
        raise CannotStart(f"cannot read foreign text: {fault}") from fault
    _check(done.returncode)
    answer: dict[str, Any] = json.loads(done.stdout)
    if "made" in answer:
        return cast(T, answer["made"])
    raise Unreadable(answer.get("refused") or answer["limit"], stated="refused" in answer)


def _check(status: int) -> None:
    """Raise what the end of a reader means, unless it has answered."""
    if status == -signal.SIGKILL:
        raise CannotStart("foreign text was being read when the reader was killed: is the machine out of memory?")
    if status == OUT_OF_MEMORY:
        raise Unreadable(f"takes more than {MEMORY // 2**20} MiB of memory to be read", stated=False)
    if status == -signal.SIGXCPU:
        raise Unreadable(f"takes more than {CPU_SECONDS} s of processor time to be read", stated=False)
    if status:
        name = signal.Signals(-status).name if -status in set(signal.Signals) else f"status {status}"
        raise Unreadable(f"crashes its parser ({name}): it may be nested too deeply", stated=False)

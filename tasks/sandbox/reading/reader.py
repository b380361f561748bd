"""Reading of foreign text, such as an edited program or a model's answer, in a confined process with limits.

    text = read(diff.diff_of, before, after)

A parser may need exponential time, all memory, or the whole stack for a text of a few kilobytes, and no Python code can
end it. So nothing in the engine parses what others wrote: a plain function of ours does, in a process of its own that
reads nothing else (tasks/sandbox/reading/reader_process.py). Its values are JSON in both directions.

A verdict must not depend on how busy the machine is: processor time and memory decide. The wall limit is a last resort,
and a fault of the machine.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, ParamSpec, TypeVar, cast

from tasks.sandbox import seccomp
from tasks.sandbox.child_environment import passed_on
from tasks.sandbox.confinement import SYSTEM, VisiblePaths, landlock, landlock_version
from tasks.sandbox.program import CannotStart
from tasks.sandbox.reading.reader_process import CPU_SECONDS, MEMORY, NOT_CONFINED, OUT_OF_MEMORY
from tasks.system import interrupt
from tasks.system.clock import clock

QUESTION_LIMIT = 16 * 2**20
"""Most bytes of the values of one call."""
WALL_SECONDS = 60.0
POLL_SECONDS = 0.05
ROOT = Path(__file__).parents[3]
BEGIN = """\
import sys
sys.path.append(sys.argv[1])
from tasks.sandbox.reading.reader_process import main
main(sys.argv[2])
"""

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
    """The result of a function of a module, run in a process that can do nothing but compute.

    Args:
        function: Of a module that imports only the standard library. An exception of ours that it raises is a refusal.
        values: Texts, numbers, lists and dictionaries of them, as is the result.

    Raises:
        Unreadable: the function refuses the text, or needs more time, memory or depth than it may.
        CannotStart: the machine could not run it, or not in time.
        KeyboardInterrupt: a signal asks this process to end.
    """
    assert not none, "values are given by position"
    question = json.dumps(values).encode()
    if len(question) > QUESTION_LIMIT:
        raise Unreadable(f"has more than {QUESTION_LIMIT // 2**20} MiB", stated=False)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="nightshift-read-") as scratch,
            tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as answered,
        ):  # fmt: skip
            asked.write(question)
            asked.seek(0)
            _check(_run(f"{function.__module__}:{function.__name__}", scratch, asked, answered))
            answered.seek(0)
            answer: dict[str, Any] = json.load(answered)
    except OSError as fault:
        raise CannotStart(f"cannot read foreign text: {fault}") from fault
    if "made" in answer:
        return cast(T, answer["made"])
    raise Unreadable(answer.get("refused") or answer["limit"], stated="refused" in answer)


def _run(name: str, scratch: str, asked: IO[bytes], answered: IO[bytes]) -> int:
    """Run a function in a process of its own; its exit status."""
    git = shutil.which("git") or ""
    plan = {"function": name, "engine": os.getpid(), "scratch": scratch, **_confinement(git)}
    path = os.pathsep.join([*([str(Path(git).parent)] if git else []), os.defpath])
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-B", "-c", BEGIN, str(ROOT), json.dumps(plan)],
        cwd=scratch,
        env={**passed_on(), "PATH": path, "TMPDIR": scratch},
        stdin=asked,
        stdout=answered,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = clock() + WALL_SECONDS
    try:
        while True:
            interrupt.check()
            with suppress(subprocess.TimeoutExpired):
                return process.wait(POLL_SECONDS)
            if clock() > deadline:
                raise CannotStart(f"foreign text had too little of the processor to be read within {WALL_SECONDS:g} s")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with it a git that it has started
        process.wait()


def _check(status: int) -> None:
    """Raise what the end of a reader means, unless it has answered."""
    if status == -signal.SIGKILL:
        raise CannotStart("foreign text was being read when the reader was killed: is the machine out of memory?")
    if status == NOT_CONFINED:
        raise CannotStart("foreign text could not be read: the reader could not be confined")
    if status == OUT_OF_MEMORY:
        raise Unreadable(f"takes more than {MEMORY // 2**20} MiB of memory to be read", stated=False)
    if status == -signal.SIGXCPU:
        raise Unreadable(f"takes more than {CPU_SECONDS} s of processor time to be read", stated=False)
    if status:
        name = signal.Signals(-status).name if -status in set(signal.Signals) else f"status {status}"
        raise Unreadable(f"crashes its parser ({name}): it may be nested too deeply", stated=False)


def _confinement(git: str) -> dict[str, Any]:
    """The rules of Landlock and the system call filter, where the kernel has them; else the limits have to do."""
    version = landlock_version()
    if not version or not seccomp.is_known():
        return {"landlock": None, "filter": ""}
    own = Path(git).resolve().parents[1] if git else Path("/usr")  # git may lie elsewhere than in the system
    others = () if own == Path("/") or any(own.is_relative_to(path) for path in SYSTEM) else (own,)
    rules = landlock(VisiblePaths(others, ()), scratch=Path(os.devnull))
    return {
        "landlock": {"version": version, "rules": rules, "network": False},
        "filter": seccomp.without_namespaces(False, version).hex(),
    }

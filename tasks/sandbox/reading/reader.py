"""Reading of foreign text, such as an edited program or a model's answer, in a confined process with limits.

    text = read(diff.diff_of, before, after)

A parser may need exponential time, all memory, or the whole stack for a text of a few kilobytes, and no Python code can
end it. So nothing in the engine parses what others wrote: a plain function of ours does, in a process of its own that
has read nothing before (tasks/sandbox/reading/reader_process.py). Its values are JSON in both directions.

A verdict must not depend on how busy the machine is: processor time and memory decide. The wall limit is a last resort,
and a fault of the machine.
"""

from __future__ import annotations

import atexit
import json
import marshal
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from tasks.sandbox import seccomp
from tasks.sandbox.child_environment import passed_on
from tasks.sandbox.confinement import SYSTEM, VisiblePaths, landlock, landlock_version
from tasks.sandbox.program import CannotStart
from tasks.sandbox.reading.reader_process import ANSWER_LIMIT, WALL_SECONDS
from tasks.system import interrupt
from tasks.system.clock import clock

QUESTION_LIMIT = 16 * 2**20
"""Most bytes of the values of one call."""
POLL_SECONDS = 0.05
CHUNK = 2**20
LATE_SECONDS = 15.0
"""After the wall limit, until the process that keeps it counts as hanging."""
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
    name, question = f"{function.__module__}:{function.__name__}", json.dumps(values).encode()
    if len(question) > QUESTION_LIMIT:
        raise Unreadable(f"has more than {QUESTION_LIMIT // 2**20} MiB", stated=False)
    # A second try: the processes may have been killed by somebody who does not know them.
    heard = _ask(name, question)
    if heard is None:
        _forget()  # its folder may be gone, too
        heard = _ask(name, question)
    answer, end = heard or ({}, {"fault": "was being read when that was killed"})
    if "fault" in end:
        raise CannotStart(f"foreign text {end['fault']}")
    told: dict[str, Any] = end or answer
    if "made" in told:
        return cast(T, told["made"])
    raise Unreadable(told.get("refused") or told["limit"], stated="refused" in told)


def _ask(name: str, question: bytes) -> tuple[dict[str, Any], dict[str, str]] | None:
    """The answer to one call, and how its process ended; None when its guard was killed."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            _give(name, theirs)
        ours.settimeout(POLL_SECONDS)
        deadline = clock() + WALL_SECONDS + LATE_SECONDS
        with suppress(ConnectionError):  # it ended before it had read everything; its guard says why
            left = memoryview(question)
            while left:
                left = left[_done(partial(ours.send, left), deadline) :]
            ours.shutdown(socket.SHUT_WR)
        said = bytearray()
        with suppress(ConnectionError):
            while chunk := _done(partial(ours.recv, CHUNK), deadline):
                said += chunk
                if len(said) > 2 * ANSWER_LIMIT:
                    raise CannotStart("the process that reads foreign text says more than it may")
    answer, _, end = said.rpartition(b"\n")
    if not (end.endswith(b"}") and b"\n" in said):
        return None
    how: dict[str, str] = json.loads(end)
    return ({} if how else json.loads(answer or b"{}")), how  # that end may have cut the answer off


def _done(step: Callable[[], T], deadline: float) -> T:
    """A step on a socket, tried until it is done, the deadline has passed, or a signal asks to end."""
    while True:
        interrupt.check()
        try:
            return step()
        except TimeoutError:
            if clock() > deadline:
                _forget()
                raise CannotStart("the process that reads foreign text does not answer") from None


@dataclass(frozen=True)
class _Begun:
    """The process that forks one for each call."""

    by: int
    """The pid of its engine: a fork of that must not use it."""
    process: subprocess.Popen[bytes]
    calls: socket.socket
    folder: str
    """Where readers have their own folders."""


_lock = threading.Lock()
_begun: _Begun | None = None


def _give(name: str, connection: socket.socket) -> None:
    """Hand a call's connection to the process that forks, begun anew if it has ended."""
    global _begun
    with _lock:
        for _ in range(2):
            if _begun is None or _begun.by != os.getpid() or _begun.process.poll() is not None:
                _end()
                _begun = _begin()
            try:
                socket.send_fds(_begun.calls, [name.encode()], [connection.fileno()])
                return
            except ConnectionError:
                _end()
    raise CannotStart("the process that reads foreign text ends at once")


def _begin() -> _Begun:
    folder = tempfile.mkdtemp(prefix="nightshift-read-")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    git = shutil.which("git") or ""
    plan = {"engine": os.getpid(), "git": git, "folder": folder, **_confined(git)}
    with theirs:
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", "-c", BEGIN, str(ROOT), marshal.dumps(plan).hex()],
                cwd="/",
                env={**passed_on(), "PATH": os.defpath},
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as fault:
            ours.close()
            shutil.rmtree(folder)
            raise CannotStart(f"cannot start the process that reads foreign text: {fault}") from fault
    return _Begun(os.getpid(), process, ours, folder)


def _confined(git: str) -> dict[str, Any]:
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


def _forget() -> None:
    with _lock:
        _end()


@atexit.register
def _end() -> None:
    """End the process that forks; the readers end with it."""
    global _begun
    if _begun is not None:
        _begun.calls.close()
        if _begun.by == os.getpid():
            _begun.process.kill()
            _begun.process.wait()
            shutil.rmtree(_begun.folder, ignore_errors=True)
        else:
            _begun.process.returncode = 0  # the engine's child, which a fork of the engine cannot wait for
    _begun = None

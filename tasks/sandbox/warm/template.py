"""A template: a process that has imported packages, from which programs are forked (template_process.py).

It is outside of every sandbox, as the engine is, and runs installed packages only. What is forked from it is first the
supervisor of one program, and that forks the program and confines it before any of the trial is read.
"""

from __future__ import annotations

import marshal
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from tasks.sandbox import supervisor
from tasks.sandbox.child_environment import child_environment
from tasks.sandbox.supervised import Supervised, variables
from tasks.sandbox.warm import joining
from tasks.sandbox.warm.forked import ForkedProcess
from tasks.sandbox.warm.kind import Kind
from tasks.system import file_trees, interrupt
from tasks.system.clock import clock

SOURCE = Path(__file__).with_name("template_process.py")
ROOM, ROOM_BYTES = "NIGHTSHIFT_ROOM", 2**14
"""A variable and an argument that leave room for a program's own, which replace all of the template's."""
IMPORT_SECONDS = 300.0
BEGIN_SECONDS = 20.0
POLL_SECONDS = 0.1


class TemplateFailed(Exception):
    """No program could be forked; the message says why, and `is_over` whether the template is of no more use."""

    def __init__(self, why: str, is_over: bool = True) -> None:
        super().__init__(why)
        self.is_over = is_over


class Template:
    """One template, from the start of its imports until it is ended.

    Raises:
        OSError: the machine has no process or memory left.
    """

    def __init__(self, kind: Kind, home: Path, marker: str, cores: Sequence[int], afterwards: Sequence[int]) -> None:
        """Start it, with `home` as its own, which is made; it imports on `cores`."""
        self.kind, self._home, self._begun = kind, home, clock()
        self._said: bytes | None = None
        self._lock = threading.Lock()
        home.mkdir(parents=True)
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.settimeout(BEGIN_SECONDS)
        plan = {
            "modules": list(kind.ahead.modules), "variables": kind.ahead.variables, "channel": theirs.fileno(),
            "home": str(home), "cores": (list(cores), list(afterwards)),
            "supervisor": [marshal.dumps(_code(module)) for module in (supervisor, joining)],
        }  # fmt: skip
        words = ["-c", SOURCE.read_text("utf-8"), marshal.dumps(plan).hex(), "." * ROOM_BYTES]
        try:
            with theirs:
                self.process = subprocess.Popen(
                    [sys.executable, *kind.flags, *words],
                    cwd="/",
                    env=child_environment(str(home), marker) | {ROOM: "." * ROOM_BYTES},
                    # Of the kinds that its programs have: the interpreter asks at its start.
                    stdin=subprocess.PIPE if kind.pipes else subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                    pass_fds=(theirs.fileno(),),
                )
        except BaseException:
            self._channel.close()
            file_trees.remove(home)
            raise
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe:
                pipe.close()

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def wait(self) -> None:
        """Wait until its packages are imported.

        Raises:
            TemplateFailed: it has ended, cannot import them, must not be forked, or takes too long.
        """
        with self._lock:
            while self._said is None:
                interrupt.check()
                if select.select([self._channel], [], [], POLL_SECONDS)[0]:
                    self._said = b""
                    with suppress(ConnectionError):
                        self._said = self._channel.recv(2**12)
                elif clock() - self._begun > IMPORT_SECONDS:
                    self._said = f"nothing within {IMPORT_SECONDS:g} s".encode()
        if self._said != b"ready":
            raise TemplateFailed(
                f"packages were not imported ahead: {self._said.decode(errors='replace') or 'it ended'}"
            )

    def start(
        self, plan: Mapping[str, Any], line: Sequence[str], *, marker: str, cwd: Path, passed: tuple[int, ...]
    ) -> Supervised:
        """Start a program, with this command line behind the interpreter's, as `supervised.start` does.

        Raises:
            TemplateFailed: nothing of it runs, or is left.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            process = self._fork(ours, theirs)
            report, say = os.pipe()
            order = {
                "plan": dict(plan), "line": list(line), "cwd": str(cwd), "variables": variables(marker),
                "numbers": [0, 1, 2, *passed],
            }  # fmt: skip
            try:
                socket.send_fds(ours, [marshal.dumps(order)], [*process.theirs, *passed, say])
            except OSError as fault:
                process.abandon()
                os.close(report)
                raise TemplateFailed(f"the forked process did not take its order: {fault}") from fault
            finally:
                os.close(say)
                process.close_theirs()
        supervised = Supervised(process, report)
        if "started" in (told := supervised.hear()):
            return supervised
        process.abandon()
        os.close(report)
        raise TemplateFailed(told.get("why") or "the forked process ended, or said nothing", "outdated" in told)

    def _fork(self, ours: socket.socket, theirs: socket.socket) -> ForkedProcess:
        """A process that waits for its order at `theirs`, which is closed."""
        ours.settimeout(BEGIN_SECONDS)
        handles: list[int] = []
        try:
            with theirs:
                socket.send_fds(self._channel, [b"fork"], [theirs.fileno()])
            pid, handles, _, _ = socket.recv_fds(ours, 16, 1, socket.MSG_CMSG_CLOEXEC)
        except OSError as fault:  # a timeout, too
            raise TemplateFailed(f"the template did not fork: {fault}") from fault
        if not handles:
            raise TemplateFailed("the template did not fork: it has ended")
        return ForkedProcess(int(pid), handles[0], self.kind.pipes)

    def end(self) -> None:
        """End it, and remove what it has; what was forked from it goes on. Safe to call again."""
        if self._said != b"ready":  # with the processes that packages may have begun; later ones are programs'
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        self._channel.close()
        file_trees.remove(self._home)


def _code(module: ModuleType) -> CodeType | None:
    assert module.__file__ is not None, "it is a file"
    return SourceFileLoader(module.__name__, module.__file__).get_code(module.__name__)

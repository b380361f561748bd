"""A supervisor that was forked from a template: no child of the engine, and used like one."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from contextlib import suppress
from typing import IO


class ForkedProcess:
    """As much of subprocess.Popen as a supervisor needs. Its exit status is not known: it reports its program's."""

    def __init__(self, pid: int, handle: int, pipes: bool) -> None:
        """Make its pipes. `handle`: a descriptor of the process (pidfd_open(2)), closed when it has ended."""
        self.pid = pid
        self._handle: int | None = handle
        self.theirs: list[int] = []
        """Its standard input, output and error, until `give` closes them."""
        self.stdin: IO[bytes] | None = None
        self.stderr: IO[bytes] | None = None
        if pipes:
            read, write = os.pipe()
            self.stdin = os.fdopen(write, "wb", 0)
            self.theirs.append(read)
        else:
            self.theirs.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        read, write = os.pipe()
        self.stdout: IO[bytes] | None = os.fdopen(read, "rb", 0)
        self.theirs.append(write)
        if pipes:
            read, write = os.pipe()
            self.stderr = os.fdopen(read, "rb", 0)
            self.theirs.append(write)
        else:
            self.theirs.append(os.dup(write))

    def close_theirs(self) -> None:
        """Close the engine's copies of the program's ends."""
        while self.theirs:
            os.close(self.theirs.pop())

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        if (status := self._ended(timeout)) is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return status

    def send_signal(self, sig: int) -> None:
        if self._handle is not None:
            with suppress(ProcessLookupError):  # it has ended
                signal.pidfd_send_signal(self._handle, sig)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def abandon(self) -> None:
        """End it, and close everything."""
        self.kill()
        self.wait()
        self.close_theirs()
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe:
                pipe.close()

    def _ended(self, seconds: float | None) -> int | None:
        if self._handle is None:
            return 0
        if not select.select([self._handle], [], [], seconds)[0]:
            return None
        os.close(self._handle)
        self._handle = None
        return 0

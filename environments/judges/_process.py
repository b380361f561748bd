"""A process of its own for foreign code, an environment's or a taskset's, in which our functions are called.

What that code prints, a `sys.exit`, a handler of signals or a crash harms neither the engine nor its output. It is no
sandbox: whoever runs an environment with code of its own was asked about that.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self, TypeVar

from environments.judges import Misbehaved

PR_SET_PDEATHSIG = 1
POLL_SECONDS = 0.5
SHOWN = 300
"""Characters of what it printed last, in the reason of a failure."""

T = TypeVar("T")


class ProcessLost(Misbehaved):
    """It ended, or did not answer."""


class ForeignProcess:
    """One such process; it ends with the block, and with the thread that started it."""

    def __init__(
        self, folder: Path | None, seconds: float, check: Callable[[], None] = lambda: None, name: str = "environment"
    ) -> None:
        """It finds what is found here, and the modules of `folder`; each answer may take so many seconds. `check`
        raises where nobody waits for an answer any more; `name` is what runs there, for messages.
        """
        self._seconds, self._check, self._name = seconds, check, f"the {name}"
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        paths = [path for path in [*sys.path, str(folder or "")] if path]
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-u", "-B", "-P", "-m", "environments.judges._process", str(theirs.fileno())],
                stdin=subprocess.DEVNULL, stdout=self._printed, stderr=self._printed, pass_fds=(theirs.fileno(),),
                env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)}, start_new_session=True,
            )  # fmt: skip
        self._talk = Connection(ours.detach())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._talk.close()
        self._kill()
        self._printed.close()

    def call(self, function: Callable[..., T], *values: Any, seconds: float | None = None) -> T:
        """What a function of a module returns there. Raises Misbehaved, whatever it raises there, and ProcessLost.

        Once a class was called, its object stays there, and is the first value of each function after it. `seconds`:
        in place of the usual time.
        """
        most = self._seconds if seconds is None else seconds
        deadline = time.monotonic() + most
        try:
            self._talk.send((function, values))
            while not self._talk.poll(min(POLL_SECONDS, most)):
                self._check()
                if self._process.poll() is not None and not self._talk.poll():  # what it has forked holds the other end
                    raise self._lost()
                if time.monotonic() > deadline:
                    self._kill()
                    raise ProcessLost(f"{self._name} did not come back within {most:g} s{self._last_words()}")
            value, fault = self._talk.recv()
        except (EOFError, OSError):
            raise self._lost() from None
        if fault is not None:
            raise Misbehaved(fault)
        return value  # type: ignore[no-any-return]

    def _lost(self) -> ProcessLost:
        with contextlib.suppress(subprocess.TimeoutExpired):  # it closes its end a moment before it has ended
            self._process.wait(1)
        return ProcessLost(f"{self._name}'s process ended with status {self._kill()}{self._last_words()}")

    def _kill(self) -> int:
        """End it with what it has started, unless that left its session; returns its status."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        return self._process.wait()

    def _last_words(self) -> str:
        self._printed.seek(max(os.fstat(self._printed.fileno()).st_size - SHOWN, 0))
        said = " ".join(self._printed.read().decode(errors="replace").split())
        return f"; it printed last: {said}" if said else ""


def main(descriptor: int) -> None:
    """Call functions for the process at the other end, until it is gone."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # even if foreign code never comes back
    with contextlib.suppress(OSError):  # where memory is short, it is killed before the engine and any training
        Path("/proc/self/oom_score_adj").write_text("900")
    talk, held = Connection(descriptor), list[Any]()
    while True:
        try:
            function, values = talk.recv()
        except (EOFError, OSError):
            return
        value: Any = None
        fault: str | None = None
        try:
            value = function(*held, *values)
            if isinstance(function, type):
                held, value = [value], None
        except Misbehaved as wrong:
            fault = str(wrong)
        except BaseException as wrong:  # noqa: BLE001 (whatever foreign code raises, which the engine may not know)
            fault = f"{type(wrong).__name__}: {wrong}"
        talk.send((value, fault))


if __name__ == "__main__":
    main(int(sys.argv[1]))

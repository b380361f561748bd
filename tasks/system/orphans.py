"""Processes left by a dead engine, found by a variable in their environment."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator

import psutil

from tasks.system.clock import clock

MARKER = "NIGHTSHIFT_TRIAL"
"""An environment variable that a program's processes inherit, by which a resumed engine finds them."""
SUPERVISOR = "NIGHTSHIFT_KEEPER"
"""The same for their supervisor (tasks/sandbox/supervisor.py), which ends them all when its engine dies."""
SUPERVISOR_SECONDS = 5.0
"""How long a supervisor may take to do so. A program that sets this variable itself would not end by itself."""


def marked(marker: str) -> list[psutil.Process]:
    """Every live process whose marker is `marker`, or begins with `marker/`."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):  # ended meanwhile, or another user's
            value = process.environ().get(MARKER, "")
            if f"{value}/".startswith(f"{marker}/") and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def end(marker: str, patience: float = 10.0) -> list[str]:
    """Kill every process that carries the marker, and those that they start meanwhile; their command lines.

    Raises TimeoutError when some survive SIGKILL for `patience` seconds (they hang in the kernel).
    """
    killed: dict[int, str] = {}
    deadline = clock() + patience
    while survivors := marked(marker):
        if clock() > deadline:
            raise TimeoutError(f"processes {[p.pid for p in survivors]} of {marker} survive SIGKILL")
        for process in survivors:
            with contextlib.suppress(psutil.NoSuchProcess):
                killed[process.pid] = f"process {process.pid}"
                with contextlib.suppress(psutil.Error):
                    killed[process.pid] = " ".join(process.cmdline())[:80].strip() or process.name()
                process.kill()
        time.sleep(0.005)
    return list(killed.values())


def having_open(descriptor: int) -> list[psutil.Process]:
    """Every other process that has the same file open, as far as this user can see."""
    file = os.fstat(descriptor)
    others = (process for process in psutil.process_iter() if process.pid != os.getpid())
    return [other for other in others if any(os.path.samestat(file, status) for status in open_files(other.pid))]


def open_files(pid: int) -> Iterator[os.stat_result]:
    """The status of each file that a process has open, as far as this user can see."""
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as descriptors:
        for descriptor in descriptors:
            with contextlib.suppress(OSError):  # closed meanwhile
                yield descriptor.stat()


def is_ours(process: psutil.Process) -> bool:
    """Whether it is a supervisor or a supervised program."""
    return bool({MARKER, SUPERVISOR} & _variables(process))


def is_supervised(process: psutil.Process) -> bool:
    """Whether it runs under a supervisor, which will end it."""
    with contextlib.suppress(psutil.Error):
        return any(SUPERVISOR in _variables(above) for above in process.parents())
    return False


def end_left(processes: Iterable[psutil.Process]) -> None:
    """End the processes that a dead engine left: supervisors are asked to, then the rest is killed."""
    left = list(processes)
    supervisors = [process for process in left if SUPERVISOR in _variables(process)]
    for supervisor in supervisors:
        with contextlib.suppress(psutil.Error):  # it has just ended
            supervisor.terminate()
            supervisor.send_signal(signal.SIGCONT)  # without a sandbox a program can have stopped it
    psutil.wait_procs(supervisors, timeout=SUPERVISOR_SECONDS)
    for process in left:
        with contextlib.suppress(psutil.Error):
            for member in [*process.children(recursive=True), process]:
                with contextlib.suppress(psutil.Error):
                    member.kill()


def _variables(process: psutil.Process) -> set[str]:
    """Names of its environment variables; empty where it is another user's, or has ended."""
    with contextlib.suppress(psutil.Error):
        return set(process.environ())
    return set()

"""Processes left by a dead engine, found by variables in their environment."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator

import psutil

from tasks.system.clock import clock
from tasks.system.commands import identity

MARKER = "NIGHTSHIFT_TRIAL"
"""An environment variable that a program's processes inherit, by which a resumed engine finds them."""
SUPERVISOR = "NIGHTSHIFT_KEEPER"
"""The same for their supervisor (tasks/sandbox/supervisor.py), which ends them all when its engine dies."""
ENGINE = "NIGHTSHIFT_ENGINE"
"""The engine of both: who takes its slot finds by it what a dead one has left."""
SUPERVISOR_SECONDS = 5.0
"""How long a supervisor may take to end everything."""


def this_engine() -> str:
    """This process: its pid, and what tells it from a later process with that pid."""
    return f"{os.getpid()} {identity(os.getpid())}"


def is_alive(engine: str) -> bool:
    """Whether an engine lives; one of another container cannot be seen."""
    pid, _, its_identity = engine.partition(" ")
    with contextlib.suppress(OSError, ValueError):
        return identity(int(pid)) == its_identity
    return False


def marked(marker: str) -> list[psutil.Process]:
    """Every live process whose marker is `marker`, or begins with `marker/`."""
    return [each for each, variables in _live() if f"{variables.get(MARKER, '')}/".startswith(f"{marker}/")]


def left_by(engine: str) -> dict[psutil.Process, bool]:
    """Every live process of an engine's programs, and whether it is a supervisor."""
    return {each: SUPERVISOR in variables for each, variables in _live() if variables.get(ENGINE) == engine}


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


def end_left_by(engine: str, patience: float = SUPERVISOR_SECONDS) -> list[psutil.Process]:
    """End what a dead engine has left; the processes that survive that for `patience` seconds.

    Its supervisors are about to do so, and find even what has lost the variables. So these are asked, not killed.
    """
    deadline = clock() + patience
    while (left := left_by(engine)) and clock() < deadline:
        for process, is_supervisor in left.items():
            with contextlib.suppress(psutil.Error):  # it has just ended
                process.send_signal(signal.SIGTERM if is_supervisor else signal.SIGKILL)
                process.send_signal(signal.SIGCONT)  # without a sandbox a program can have stopped its supervisor
        time.sleep(0.02)
    return list(left)


def open_files(pid: int) -> Iterator[os.stat_result]:
    """The status of each file that a process has open, as far as this user can see."""
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as descriptors:
        for descriptor in descriptors:
            with contextlib.suppress(OSError):  # closed meanwhile
                yield descriptor.stat()


def _live() -> Iterator[tuple[psutil.Process, dict[str, str]]]:
    """Every live process whose variables this user may read, with them."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):  # ended meanwhile, or another user's
            variables = process.environ()
            if process.status() != psutil.STATUS_ZOMBIE:
                yield process, variables

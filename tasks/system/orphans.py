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
SUPERVISOR = "NIGHTSHIFT_SUPERVISOR"
"""The same for their supervisor (tasks/sandbox/supervisor.py), which ends them all when its engine dies."""
ENGINE = "NIGHTSHIFT_ENGINE"
"""The engine of both: who takes its slot finds by it what a dead one has left."""
KILL_SECONDS = 10.0
SUPERVISOR_SECONDS = 5.0


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


def end(marker: str) -> list[str]:
    """Kill every process that carries the marker, and those that they start meanwhile; their command lines.
    TimeoutError when some survive SIGKILL for KILL_SECONDS (they hang in the kernel).
    """
    killed: dict[int, str] = {}
    deadline = clock() + KILL_SECONDS
    while survivors := marked(marker):
        if clock() > deadline:
            raise TimeoutError(f"processes {[p.pid for p in survivors]} of {marker} survive SIGKILL")
        for process in survivors:
            with contextlib.suppress(psutil.Error):
                killed[process.pid] = " ".join(process.cmdline())[:80].strip() or process.name()
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(0.005)
    return list(killed.values())


def end_left_by(engine: str) -> list[psutil.Process]:
    """End what a dead engine has left; the processes that survive that for SUPERVISOR_SECONDS. Its supervisors are
    asked, not killed: they find even what has lost the variables. Who ends loses its variables before its files, so
    that each is waited for.
    """
    deadline = clock() + SUPERVISOR_SECONDS
    left: dict[psutil.Process, bool] = {}
    while (left := {each: left[each] for each in left if is_live(each)} | _left_by(engine)) and clock() < deadline:
        for process, is_supervisor in left.items():
            with contextlib.suppress(psutil.Error):  # it has just ended
                process.send_signal(signal.SIGTERM if is_supervisor else signal.SIGKILL)
                process.send_signal(signal.SIGCONT)  # without a sandbox a program can have stopped its supervisor
        time.sleep(0.02)
    return list(left)


def _left_by(engine: str) -> dict[psutil.Process, bool]:
    """Every live process of an engine's programs, and whether it is a supervisor."""
    return {each: SUPERVISOR in variables for each, variables in _live() if variables.get(ENGINE) == engine}


def _live() -> Iterator[tuple[psutil.Process, dict[str, str]]]:
    """Every live process whose variables this user may read, with them."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):  # ended meanwhile, or another user's
            variables = process.environ()
            if is_live(process):
                yield process, variables


def is_live(process: psutil.Process) -> bool:
    """Whether a process has not ended yet; one that nobody has collected has."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False

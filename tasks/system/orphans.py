"""Processes left by a dead engine, found by variables in their environment."""

import contextlib
import os
import signal
import time
from pathlib import Path

import psutil

MARKER = "NIGHTSHIFT_TRIAL"
"""An environment variable that a program's processes inherit, by which a resumed engine finds them."""
SUPERVISOR = "NIGHTSHIFT_SUPERVISOR"
"""The same for their supervisor (tasks/sandbox/supervisor.py), which ends them all when its engine dies."""
ENGINE = "NIGHTSHIFT_ENGINE"
"""The engine of both: who takes its slot finds by it what a dead one has left."""
KILL_SECONDS = 10.0
START_TICK = 19
"""Index of a process's start time in /proc/PID/stat, counted after its name."""


def identity(pid: int) -> str:
    """The boot id and a process's start tick: unique, unlike a pid. Raises OSError when there is no such process."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {after_name[START_TICK]}"


def this_engine() -> str:
    """This process: its pid, and what tells it from a later process with that pid."""
    return f"{os.getpid()} {identity(os.getpid())}"


def is_alive(engine: str) -> bool:
    """Whether an engine lives; one of another container cannot be seen."""
    pid, _, its_identity = engine.partition(" ")
    with contextlib.suppress(OSError, ValueError, psutil.Error):
        return identity(int(pid)) == its_identity and is_live(psutil.Process(int(pid)))
    return False


def marked(value: str, variable: str = MARKER) -> list[psutil.Process]:
    """Every live process in which the variable is `value`, or begins with `value/`; not those of other users."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if f"{process.environ().get(variable, '')}/".startswith(f"{value}/") and is_live(process):
                found.append(process)
    return found


def end(value: str, variable: str = MARKER) -> list[str]:
    """Kill every process that `marked` finds, and those that they start meanwhile; their command lines. Not those whose
    engine is another process that lives, as that of a copied campaign. Supervisors, which have no MARKER, are asked
    instead: they find even what has lost the variables. TimeoutError when some survive for KILL_SECONDS (they hang in
    the kernel).
    """
    ended: dict[psutil.Process, str] = {}
    deadline = time.monotonic() + KILL_SECONDS
    # Who ends loses its variables before its files, so that each is waited for.
    while left := {*filter(is_live, ended), *(one for one in marked(value, variable) if not _engine(one))}:
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {[process.pid for process in left]} of {value} survive SIGKILL")
        for process in left:
            with contextlib.suppress(psutil.Error):  # it has just ended
                ended.setdefault(process, " ".join(process.cmdline())[:80].strip() or process.name())
                is_asked = variable != MARKER and SUPERVISOR in process.environ()
                process.send_signal(signal.SIGTERM if is_asked else signal.SIGKILL)
                process.send_signal(signal.SIGCONT)  # without a sandbox a program can have stopped its supervisor
        time.sleep(0.005)
    return list(ended.values())


def _engine(process: psutil.Process) -> str:
    """The engine of a marked process, if it lives and is another process than this one."""
    with contextlib.suppress(psutil.Error):
        engine = process.environ().get(ENGINE, "")
        return engine if engine != this_engine() and is_alive(engine) else ""
    return ""


def is_live(process: psutil.Process) -> bool:
    """Whether a process has not ended yet; one that nobody has collected has."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False

"""Orphans: processes that are known by a mark in their environment, whoever their parents are by now."""

from __future__ import annotations

import time

import psutil

from tasks.clock import clock

MARKER = "NIGHTSHIFT_TRIAL"
"""An environment variable that a program's processes inherit: what an engine's next life finds them by."""


def marked(marker: str) -> list[psutil.Process]:
    """Every live process whose marker is `marker`, or begins with it and a slash."""
    own = (marker, marker + "/")
    found = []
    for process in psutil.process_iter():
        try:
            value = process.environ().get(MARKER, "")
            if (value == own[0] or value.startswith(own[1])) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue  # ended meanwhile, or another user's: not one of ours
    return found


def end(marker: str, patience: float = 10.0) -> list[str]:
    """Kill every process that carries the marker; their command lines. New ones that they start are killed too.

    Raises:
        TimeoutError: some survive SIGKILL for `patience` seconds (they hang in the kernel).
    """
    killed: dict[int, str] = {}
    deadline = clock() + patience
    while survivors := marked(marker):
        if clock() > deadline:
            raise TimeoutError(f"processes {[p.pid for p in survivors]} of {marker} survive SIGKILL")
        for process in survivors:
            try:
                killed[process.pid] = _name(process)
                process.kill()
            except psutil.NoSuchProcess:
                continue
        time.sleep(0.005)
    return list(killed.values())


def _name(process: psutil.Process) -> str:
    """A process's command line, short enough for a reason."""
    try:
        return " ".join(process.cmdline())[:80] or process.name()
    except psutil.Error:
        return f"process {process.pid}"

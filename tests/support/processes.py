"""Processes that sleep, found by their command lines."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil

from tasks.sandbox import supervisor

T = TypeVar("T")
LONG = 1_000_000 + os.getpid()
"""Seconds that nobody else sleeps: how the processes of these tests are told from all others."""
SLEEP, NAP = f"sleep {LONG}", f"time.sleep({LONG})"


def alive(words: str) -> list[int]:
    """The processes whose command line has these words, keepers aside: theirs holds the whole plan."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            line = process.cmdline()
            if words in " ".join(line) and supervisor.__file__ not in line:
                found.append(process.pid)
    return found


def naming(folder: Path) -> list[str]:
    """The command lines of the processes, but for this one, that name what lies in a folder."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            line = " ".join(process.cmdline())
            found += [line] if f"{folder}/" in line and process.pid != os.getpid() else []
    return found


def own_children(words: str) -> list[psutil.Process]:
    """The children of this process whose command line has these words; those that have ended aside."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            found += [child] if words in " ".join(child.cmdline()) else []
    return found


def wait_for(condition: Callable[[], T], seconds: float = 240, why: Callable[[], str] = str) -> T:
    """What a condition gives once it is true. A Prefect server on SQLite may wait 60 s for its own database."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited in vain {why()}"
        time.sleep(0.05)
    return value

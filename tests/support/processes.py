"""Processes that sleep, found by their command lines."""

from __future__ import annotations

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


def command_lines() -> dict[psutil.Process, str]:
    """That of every process."""
    return {one: " ".join(one.info["cmdline"] or ()) for one in psutil.process_iter(["cmdline", "ppid"])}


def alive(words: str) -> list[int]:
    """The processes whose command line has these words, keepers aside: theirs holds the whole plan."""
    return [one.pid for one, line in command_lines().items() if words in line and supervisor.__file__ not in line]


def naming(folder: Path) -> list[str]:
    """The command lines of the processes, but for this one, that name what lies in a folder."""
    return [line for one, line in command_lines().items() if f"{folder}/" in line and one.pid != os.getpid()]


def own_children(words: str) -> list[psutil.Process]:
    """The children of this process whose command line has these words."""
    return [one for one, line in command_lines().items() if words in line and one.info["ppid"] == os.getpid()]


def wait_for(condition: Callable[[], T], seconds: float = 240, why: Callable[[], str] = str) -> T:
    """What a condition gives once it is true. A Prefect server on SQLite may wait 60 s for its own database."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited in vain {why()}"
        time.sleep(0.05)
    return value

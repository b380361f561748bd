"""Functions for tasks/sandbox/reading/reader.py to run: each meets another limit, or says what it finds around it."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any


class Refusal(Exception):
    """An exception of ours: its module is taken for the engine's."""


Refusal.__module__ = "tasks.tests"
seen: list[str] = []


def echo(value: Any) -> Any:
    return value


def refuses(text: str) -> str:
    raise Refusal(f"{text!r} is refused")


def breaks(text: str) -> str:
    raise KeyError(text)


def spins() -> None:
    while True:
        pass


def sleeps() -> None:
    signal.pause()


def hoards() -> int:
    return len(bytearray(2**30))


def recurs() -> None:
    recurs()


def crashes() -> None:
    ctypes.string_at(0)


def is_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def says_much() -> str:
    return "x" * 2**26


def nests(depth: int) -> Any:
    made: Any = 0
    for _ in range(depth):
        made = [made]
    return made


def remembers(text: str) -> list[str]:
    seen.append(text)
    return seen


def surroundings(file: str, port: int) -> dict[str, Any]:
    """What a reader has of its engine."""
    reached = []
    with suppress(OSError):
        Path(file).read_text()
        reached.append("file")
    with suppress(OSError):
        Path(file).with_name("written").write_text("")
        reached.append("folder")
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", port), 1)
        reached.append("network")
    with suppress(OSError):
        os.kill(os.getppid(), 0)
        reached.append("processes")
    open_files = list(Path("/proc/self/fd").iterdir())[:-1]
    return {
        "reached": reached,
        "variables": sorted(os.environ),
        "descriptors": len(open_files),
        "folder": str(Path.cwd()),
        "heavy": sorted({"numpy", "pydantic", "prefect"} & set(sys.modules)),
    }

"""Functions for tasks/sandbox/reader.py to run: each meets another limit."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Any


class Refusal(Exception):
    """An exception of ours: its module is taken for the engine's."""


Refusal.__module__ = "tasks.tests"


def echo(value: Any) -> Any:
    return value


def refuses(text: str) -> str:
    raise Refusal(f"{text!r} is refused")


def breaks(text: str) -> str:
    raise KeyError(text)


def spins() -> None:
    while True:
        pass


def hoards() -> int:
    return len(bytearray(2**30))


def recurs() -> None:
    recurs()


def crashes() -> None:
    ctypes.string_at(0)


def is_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)

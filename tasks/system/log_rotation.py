"""Logs of programs that run for months: moved aside at each start, and cut while they are written.

`worker.log` becomes `worker.log.1`, that `worker.log.2`, and the oldest is removed. A log that a program holds open is
copied and emptied instead: it is opened for appending, by the program and by all that it started, so they go on at its
new end. Lines written between the copy and the cut, within less than a millisecond, are lost.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

LOG_BYTES = 10 * 2**20
"""A longer log is cut."""
KEPT = 3
"""Earlier logs of a program."""


def begin(log: Path) -> None:
    """Move aside the log of a program that has ended."""
    if log.exists() and log.stat().st_size:
        _make_room(log)
        log.rename(_aside(log, 1))


def cut(log: Path) -> None:
    """Copy aside and empty a log that is long, whoever writes to it. On a full disk the copy is left out."""
    with suppress(FileNotFoundError):  # it has just been moved aside
        if log.stat().st_size <= LOG_BYTES:
            return
        _make_room(log)
        try:
            shutil.copyfile(log, _aside(log, 1))
        except OSError:  # emptying it is what helps now
            _aside(log, 1).unlink(missing_ok=True)
        os.truncate(log, 0)


def _make_room(log: Path) -> None:
    """Move the earlier logs on by one; the oldest is replaced."""
    for number in range(KEPT - 1, 0, -1):
        with suppress(FileNotFoundError):
            _aside(log, number).replace(_aside(log, number + 1))


def _aside(log: Path, number: int) -> Path:
    return log.with_name(f"{log.name}.{number}")

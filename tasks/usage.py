"""What a program and all of its processes use at one moment, seen from outside."""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class Usage:
    processes: int
    memory: int
    """Resident sets, and files in memory that have no name, in bytes."""
    unlinked: int
    """Files on the disk that have no name any more and are held open, in bytes."""


def measure(keeper: int, disk: int) -> Usage:
    """Look at every process below the keeper; `disk` is the device that the trial is on.

    A process that ends meanwhile is left out: what it held is free again.
    """
    processes = memory = 0
    held: dict[tuple[int, int], int] = {}
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in psutil.Process(keeper).children(recursive=True):
            processes += 1
            with contextlib.suppress(psutil.Error):
                memory += process.memory_info().rss
            held |= _without_name(process.pid)
    unlinked = sum(size for (device, _), size in held.items() if device == disk)
    return Usage(processes, memory + sum(held.values()) - unlinked, unlinked)


def _without_name(pid: int) -> dict[tuple[int, int], int]:
    """The open files of a process that no folder holds: (device, inode) -> bytes that they take up."""
    found: dict[tuple[int, int], int] = {}
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as descriptors:
        for descriptor in descriptors:
            with contextlib.suppress(OSError):  # closed meanwhile
                status = descriptor.stat()
                if stat.S_ISREG(status.st_mode) and not status.st_nlink:
                    found[status.st_dev, status.st_ino] = status.st_blocks * 512
    return found

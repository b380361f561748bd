"""The resources that a program and all of its processes use now, and their limits."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
from dataclasses import dataclass

import psutil

from environments.limits import Limits
from tasks.sandbox import confinement
from tasks.sandbox.confinement import Level

GIB = 2**30
QUEUED_SIGNALS = 4096
"""Signals and timers that wait; the user's other processes may queue more."""


@dataclass(frozen=True)
class ResourceUsage:
    processes: int
    memory: int
    """Resident sets (or, exactly, each one's share of them), and files in memory that have no name, in bytes."""
    unlinked: int
    """Files on the disk that have no name any more and are held open, in bytes."""
    cpu: float = 0.0
    """Processor time of every process so far, in seconds: of those that live, and of those that were waited for."""


def measure(supervisor: int, disk: int, exact: bool = False) -> ResourceUsage:
    """The use of every process below the supervisor; `disk` is the device that the trial is on.

    A process that ends meanwhile is left out: what it held is free again.
    """
    processes = memory = 0
    cpu = 0.0
    held: dict[tuple[int, int], int] = {}
    with contextlib.suppress(psutil.NoSuchProcess):
        top = psutil.Process(supervisor)
        cpu += sum(top.cpu_times()[2:4])  # what it waited for: orphans, and the program itself
        for process in top.children(recursive=True):
            processes += 1
            with contextlib.suppress(psutil.Error):
                cpu += sum(process.cpu_times()[:4])  # its own, and of the children that it waited for
                memory += process.memory_full_info().pss if exact else process.memory_info().rss
            held |= _without_name(process.pid)
    unlinked = sum(size for (device, _), size in held.items() if device == disk)
    return ResourceUsage(processes, memory + sum(held.values()) - unlinked, unlinked, cpu)


def _without_name(pid: int) -> dict[tuple[int, int], int]:
    """A process's open files without a name: (device, inode) -> bytes on disk or in memory."""
    held = {}
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as descriptors:
        for descriptor in descriptors:
            with contextlib.suppress(OSError):  # closed meanwhile
                status = descriptor.stat()
                if stat.S_ISREG(status.st_mode) and not status.st_nlink:
                    held[status.st_dev, status.st_ino] = status.st_blocks * 512
    return held


def allowed(limits: Limits) -> int:
    """Memory that a program may use, in bytes."""
    stated = limits.memory_gb
    return psutil.virtual_memory().total * 3 // 4 if stated is None else int(stated * GIB)


def ended(status: int) -> str:
    """An exit status in words, where no limit explains it."""
    if status >= 0:
        return f"exited with status {status}"
    name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
    return f"was ended by {name}{' (out of memory?)' if -status == signal.SIGKILL else ''}"


def rlimits(limits: Limits, level: Level, grouped: bool, gpu: bool) -> dict[str, int]:
    """Resource limits of each process. Without a control group they bound memory and processes too: memory as address
    space, except on a GPU, where programs reserve address space without using it."""
    # The machine's handler of core dumps runs as root; 1 is the only core limit that keeps it from being started.
    bounds = {"RLIMIT_CORE": 1, "RLIMIT_FSIZE": int(limits.file_gb * GIB)}
    # Counted for all processes of the user, or taken from all of the machine: a share, and none.
    bounds |= {"RLIMIT_SIGPENDING": QUEUED_SIGNALS, "RLIMIT_RTPRIO": 0, "RLIMIT_NICE": 0}
    if not grouped and not gpu:
        bounds["RLIMIT_AS"] = allowed(limits)
    if not grouped:
        user = os.geteuid() if (owner := confinement.owner(level)) is None else owner
        facts = [process.info for process in psutil.process_iter(["uids", "num_threads"])]
        threads = [fact["num_threads"] or 0 for fact in facts if fact["uids"] and fact["uids"].real == user]
        bounds["RLIMIT_NPROC"] = limits.processes + sum(threads)  # the kernel counts all threads of the user
    return bounds

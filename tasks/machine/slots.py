"""Slots: where trainings may run at the same time, on this machine.

A slot is a group of GPUs, or a part of the CPU. One training at a time has it, whichever campaign or command started
that; what a killed engine has left there is ended before the next begins, and what is not ours never is
(tasks/machine/file_locks.py has the locks).
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import psutil

from tasks.machine import file_locks, gpus
from tasks.machine.gpus import Gpu
from tasks.system import interrupt, orphans
from tasks.system.clock import clock
from tasks.system.commands import Unanswered, command_of
from tasks.system.slot import NOWHERE, Slot

__all__ = ["NOWHERE", "Slot", "SlotHeld", "Slots"]

POLL_SECONDS = 0.2
PATIENCE_SECONDS = 10.0
"""How long a slot that we hold may still be used by others: a driver needs some seconds to forget a process."""


class SlotHeld(OSError):
    """Somebody's process uses a slot, a fault of the machine that a person has to mend; the message says which."""


@dataclass(frozen=True)
class Part:
    """What one slot consists of."""

    name: str
    locks: tuple[str, ...]
    """Names of its locks, in the order in which everybody takes them."""
    gpus: tuple[str, ...] = ()
    """UUIDs, in the order in which programs see them."""


@dataclass(frozen=True)
class Hindrance:
    """Why a slot cannot be had now."""

    words: str
    is_foreign: bool = False
    """Whether waiting for it is of no use: nobody who gives it back has it."""


@dataclass(frozen=True)
class Slots:
    """The slots of this machine that a campaign may use: groups of GPUs, or where there are none parts of the CPU."""

    home: Path
    """Where campaigns live; CPU slots are told apart by it."""
    groups: tuple[tuple[Gpu, ...], ...] = ()
    cpu_slots: int | None = None
    """Without groups; None: as many as there are usable cores."""
    folder: Path = field(default_factory=file_locks.folder)
    """Where their locks lie, the same for all of the machine."""
    patience: float = PATIENCE_SECONDS

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        if self.groups:
            return tuple(_of_gpus(group) for group in self.groups)
        prefix = cpu_prefix(self.home)
        count = self.cpu_slots or len(os.sched_getaffinity(0))
        return tuple(Part(f"cpu-{number}", (f"{prefix}{number}",)) for number in range(count))

    @contextmanager
    def hold(self, waiting: Callable[[str], None] | None = None) -> Iterator[Slot]:
        """One slot that nobody else has, for as long as the block runs; waits until there is one.

        Who waits first gets the next one, but for two that begin to wait while a third does.

        Args:
            waiting: Told once, in words, who has what is waited for.

        Raises:
            SlotHeld: a process that is none of ours uses a slot, and no other is free.
            KeyboardInterrupt: somebody asked to end.
        """
        file_locks.prepare(self.folder)
        tell = _Once(waiting)
        with ExitStack() as held:
            with ExitStack() as turn:
                while (queue := file_locks.take(self._queue)) is None:
                    tell(self._holders())
                    interrupt.wait(POLL_SECONDS)
                turn.callback(os.close, queue)
                slot = self._wait(held, tell)
            yield slot

    def _wait(self, held: ExitStack, tell: Callable[[str], None]) -> Slot:
        """The next slot that is free; what it is held by goes to `held`."""
        foreign_since: float | None = None
        while isinstance(found := self._first_free(held), Hindrance):
            foreign_since = (foreign_since or clock()) if found.is_foreign else None
            if foreign_since and clock() - foreign_since >= self.patience:
                raise SlotHeld(found.words)
            tell(found.words)
            interrupt.wait(POLL_SECONDS)
        return found

    def _first_free(self, held: ExitStack) -> Slot | Hindrance:
        hindrances: list[Hindrance] = []
        for part in self.parts:
            with ExitStack() as mine:
                found = self._look(part, mine)
                if isinstance(found, Slot):
                    held.push(mine.pop_all())
                    return found
                hindrances.append(found)
        foreign = (hindrance for hindrance in hindrances if hindrance.is_foreign)
        return next(foreign, None) or Hindrance("; ".join(hindrance.words for hindrance in hindrances))

    def _look(self, part: Part, mine: ExitStack) -> Slot | Hindrance:
        """Take all of a part, or say why that cannot be; what it is held by goes to `mine`."""
        locks: list[int] = []
        for name in part.locks:
            path = self._lock(name)
            if (lock := file_locks.take(path)) is None:
                return Hindrance(f"{part.name} is held by {file_locks.describe(path)}")
            mine.callback(file_locks.release, lock)
            locks.append(lock)
        up: list[int] = []
        for name in part.locks:
            fence = file_locks.open_fence(self.folder / f"{name}.fence")
            mine.callback(os.close, fence)
            if not file_locks.put_up(fence):
                return _cleared(part, fence)
            up.append(fence)
        if hindrance := _computing(part):
            return hindrance
        for lock in locks:
            file_locks.note(lock)
        return Slot(part.name, part.gpus, tuple(up))

    def _holders(self) -> str:
        """Who has which, as far as they say so."""
        return "; ".join(
            f"{part.name} is held by {file_locks.describe(self._lock(part.locks[0]))}" for part in self.parts
        )

    def _lock(self, name: str) -> Path:
        return self.folder / f"{name}.lock"

    @property
    def _queue(self) -> Path:
        """The lock of whoever is next: a campaign that gives a slot back does not get it again at once."""
        names = sorted(name for part in self.parts for name in part.locks)
        return self._lock(f"turn-{hashlib.sha256(' '.join(names).encode()).hexdigest()[:16]}")


def cpu_prefix(home: Path) -> str:
    """What the names of a home's CPU locks begin with."""
    return f"cpu-{hashlib.sha256(os.fsencode(home.resolve())).hexdigest()[:16]}-"


class _Once:
    """Tells the first thing that it is given."""

    def __init__(self, tell: Callable[[str], None] | None) -> None:
        self._tell = tell

    def __call__(self, words: str) -> None:
        tell, self._tell = self._tell, None
        if tell:
            tell(words)


def _of_gpus(group: Sequence[Gpu]) -> Part:
    uuids = tuple(gpu.uuid for gpu in group)
    locks = sorted("gpu-" + re.sub(r"[^\w-]", "_", uuid) for uuid in uuids)
    return Part(f"gpu-{'-'.join(str(gpu.index) for gpu in group)}", tuple(locks), uuids)


def _cleared(part: Part, fence: int) -> Hindrance:
    """End what an engine that is gone has left behind a fence; what that was, or who else is there."""
    left = orphans.having_open(fence)
    strangers = [process for process in left if not orphans.is_ours(process)]
    if strangers:
        return _foreign(part, strangers[0].pid)
    if not left:
        return _foreign(part, None)
    # Its lock is ours, so whoever they belonged to has given the slot back, or is dead.
    orphans.end_left(left)
    named = ", ".join(f"{process.pid} ({command_of(process.pid)})" for process in left)
    return Hindrance(
        f"{part.name} is still held by processes of an earlier life, which do not end when they are killed: {named}",
        is_foreign=True,
    )


def _computing(part: Part) -> Hindrance | None:
    """Who computes on a part's GPUs, though nobody is behind its fences. What is left of an earlier life is ended."""
    if not part.gpus:
        return None
    try:
        holders, _ = gpus.ask_holders()
    except (Unanswered, OSError) as silent:
        return Hindrance(f"{part.name} cannot be looked at: {silent}", is_foreign=True)
    for holder in holders:
        if holder.gpu not in part.gpus:
            continue
        try:
            process = psutil.Process(holder.pid) if holder.pid else None
        except psutil.NoSuchProcess:  # it has just ended, or is a container's
            process = None
        if process is None or not orphans.is_ours(process):
            return _foreign(part, holder.pid, holder.command)
        if orphans.is_kept(process):  # such as the first seconds of an edited program, which needs no slot
            return Hindrance(f"{part.name} is used by process {process.pid} ({command_of(process.pid)})")
        orphans.end_left([process])
        words = f"{part.name} is still used by process {process.pid} of an earlier life"
        return Hindrance(words, is_foreign=True)
    return None


def _foreign(part: Part, pid: int | None, command: str = "") -> Hindrance:
    if pid is None:
        who = "a process that cannot be seen from here, which may be another user's or a container's"
    else:
        who = f"process {pid} ({command_of(pid) or command or 'a program'}), which is none of ours"
    remedy = ", or leave its GPUs out of the Machine block" if part.gpus else ""
    return Hindrance(f"{part.name} is used by {who}: end it{remedy}", is_foreign=True)

"""The slots of this machine, each for one training at a time.

A slot is a group of GPUs, or a part of the CPU, shared by all campaigns and commands. Processes that a killed engine
left in it are ended before the next training begins; processes that are not Nightshift's are never touched. The locks
are in tasks/machine/slot_locks.py.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import psutil

from tasks.machine import gpus, slot_locks
from tasks.machine.gpus import Gpu
from tasks.system import interrupt, orphans
from tasks.system.clock import clock
from tasks.system.commands import Unanswered, command_of
from tasks.system.slot import NOWHERE, Slot

__all__ = ["NOWHERE", "Slot", "SlotHeld", "Slots"]

POLL_SECONDS = 0.2
PATIENCE_SECONDS = 10.0
"""How long others may still use a slot whose lock we hold: a driver needs some seconds to forget a process."""
SILENT = 60
"""How many times as long a driver may say nothing."""


_held: list[Slot] = []
"""Those that threads of this process hold now."""


def several_are_held() -> bool:
    """Whether this process holds more than one slot, so that programs may train or be judged at the same time."""
    return len(_held) > 1


class SlotHeld(OSError):
    """A process that is not Nightshift's uses a slot; the message names it. A person has to end it."""


@dataclass(frozen=True)
class Part:
    """The locks, GPUs and cores of one slot."""

    name: str
    locks: tuple[str, ...]
    """Names of its locks, in the order in which every process takes them."""
    gpus: tuple[str, ...] = ()
    """UUIDs, in the order in which programs see them."""
    cores: tuple[int, ...] = ()
    """The processor cores that programs are kept on; empty: all that this process may use."""


@dataclass(frozen=True)
class Hindrance:
    """Why a slot is not free."""

    words: str
    is_foreign: bool = False
    """Whether waiting is of no use: no engine holds it, so none will give it back."""
    is_silent: bool = False
    """Whether the driver did not say so, which it may do after minutes."""


@dataclass(frozen=True)
class Slots:
    """The slots of this machine that a campaign may use: groups of GPUs, or without any, groups of cores."""

    home: Path
    """The home directory; each has CPU slots of its own."""
    groups: tuple[tuple[Gpu, ...], ...] = ()
    cpu_slots: int | None = None
    """How many cores are shared out, where there are no groups; None: the usable ones. Beyond these, several programs
    share a core, and none is kept on one."""
    cores: int = 1
    """Cores of a CPU slot."""
    folder: Path = field(default_factory=slot_locks.folder)
    """Folder of the locks, one for the whole machine."""
    patience: float = PATIENCE_SECONDS

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        if self.groups:
            return tuple(_of_gpus(group) for group in self.groups)
        numbers, each = self._numbers, self.cores
        whole = (numbers[at : at + each] for at in range(0, len(numbers) - each + 1, each))
        return tuple(self._of_cores(group) for group in whole)

    @property
    def locks(self) -> dict[str, tuple[str, ...]]:
        """The names of each slot's locks, by which others see who holds it."""
        return {part.name: part.locks for part in self.parts}

    @contextmanager
    def hold(self, waiting: Callable[[str], None] | None = None) -> Iterator[Slot]:
        """Hold one slot while the block runs; wait until one is free. `waiting` is told once who holds the slots.

        The first to wait gets the next slot; the order of those behind it is not kept.

        Raises:
            SlotHeld: processes that are not Nightshift's use every slot.
            KeyboardInterrupt: this process was asked to end.
        """
        slot_locks.prepare(self.folder)

        def tell(words: str) -> None:
            nonlocal waiting
            first, waiting = waiting, None
            if first:
                first(words)

        with ExitStack() as held:
            with ExitStack() as turn:
                while (queue := slot_locks.take(self._queue)) is None:
                    interrupt.wait(POLL_SECONDS)
                    if slot_locks.is_held(self._queue):  # else who was first had a slot at once
                        tell("; ".join(self._holder(part, self._held(part)) for part in self.parts))
                turn.callback(os.close, queue)
                slot = self._wait(held, tell)
            _held.append(slot)
            held.callback(_held.remove, slot)
            yield slot

    def _wait(self, held: ExitStack, tell: Callable[[str], None]) -> Slot:
        """The next free slot; its locks go to `held`."""
        foreign_since: float | None = None
        while isinstance(found := self._first_free(held), Hindrance):
            foreign_since = (foreign_since or clock()) if found.is_foreign else None
            patience = self.patience * (SILENT if found.is_silent else 1)
            if foreign_since and clock() - foreign_since >= patience:
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
        return Hindrance(
            "; ".join(dict.fromkeys(hindrance.words for hindrance in hindrances)),
            is_foreign=all(hindrance.is_foreign for hindrance in hindrances),
            is_silent=any(hindrance.is_silent for hindrance in hindrances),
        )

    def _look(self, part: Part, mine: ExitStack) -> Slot | Hindrance:
        """Take all locks of a part, or say why that is not possible; they go to `mine`."""
        locks, fences = [], []
        for name in part.locks:
            if (lock := slot_locks.take(self._lock(name))) is None:
                return Hindrance(self._holder(part, name))
            mine.callback(slot_locks.release, lock)
            locks.append(lock)
        for name in part.locks:
            fence = slot_locks.open_fence(self.folder / f"{name}.fence")
            mine.callback(os.close, fence)
            if not slot_locks.put_up(fence):
                return _cleared(part, fence)
            fences.append(fence)
        if hindrance := _computing(part):
            return hindrance
        for lock in locks:
            slot_locks.note(lock)
        return Slot(part.name, part.gpus, tuple(fences), part.cores)

    @cached_property
    def _numbers(self) -> tuple[int, ...]:
        """The cores that are shared out, by the kernel's numbers, and further numbers for shares beyond them."""
        usable = sorted(os.sched_getaffinity(0))
        count = self.cpu_slots or len(usable)
        return (*usable, *range(usable[-1] + 1, usable[-1] + 1 + count))[:count]

    def _of_cores(self, numbers: tuple[int, ...]) -> Part:
        shared = len(self._numbers) > len(os.sched_getaffinity(0))
        locks = tuple(f"{cpu_prefix(self.home)}{number}" for number in numbers)
        return Part(f"cpu-{'-'.join(map(str, numbers))}", locks, cores=() if shared else numbers)

    def _holder(self, part: Part, name: str) -> str:
        return f"{part.name} is held by {slot_locks.describe(self._lock(name))}"

    def _held(self, part: Part) -> str:
        """The name of the first of its locks that somebody says to hold; the first of all, if nobody does."""
        noted = ((name, slot_locks.noted(self._lock(name))) for name in part.locks)
        return next((name for name, holder in noted if holder and holder.is_alive), part.locks[0])

    def _lock(self, name: str) -> Path:
        return self.folder / f"{name}.lock"

    @property
    def _queue(self) -> Path:
        """The lock of the first to wait, so that a campaign that gives back a slot does not get it again at once."""
        cores = [] if self.groups else [f"{cpu_prefix(self.home)}{number}" for number in self._numbers]
        # All cores, also those that make no whole slot of this size: who wants one of these waits in the same queue.
        names = cores or sorted(name for part in self.parts for name in part.locks)
        return self._lock(f"turn-{hashlib.sha256(' '.join(names).encode()).hexdigest()[:16]}")


def cpu_prefix(home: Path) -> str:
    """Prefix of the names of a home's CPU locks."""
    return f"cpu-{hashlib.sha256(os.fsencode(home.resolve())).hexdigest()[:16]}-"


def _of_gpus(group: Sequence[Gpu]) -> Part:
    uuids = tuple(gpu.uuid for gpu in group)
    locks = sorted("gpu-" + re.sub(r"[^\w-]", "_", uuid) for uuid in uuids)
    return Part(f"gpu-{'-'.join(str(gpu.index) for gpu in group)}", tuple(locks), uuids)


def _cleared(part: Part, fence: int) -> Hindrance:
    """End the processes that a dead engine left behind a fence, unless others are there; says why it is not free."""
    left = orphans.having_open(fence)
    strangers = [process.pid for process in left if not orphans.is_ours(process)]
    if strangers or not left:
        return _foreign(part, strangers[0] if strangers else None)
    # We hold the lock, so their engine has given the slot back, or is dead.
    orphans.end_left(left)
    named = ", ".join(f"{process.pid} ({command_of(process.pid)})" for process in left)
    return Hindrance(
        f"{part.name} is still held by processes of an earlier life, which do not end when they are killed: {named}",
        is_foreign=True,
    )


def _computing(part: Part) -> Hindrance | None:
    """Whether a process computes on a part's GPUs without holding its fence. Those of an earlier life are ended."""
    if not part.gpus:
        return None
    try:
        holders, _ = gpus.ask_holders()
    except (Unanswered, OSError) as silent:
        words = f"the processes on {part.name} cannot be listed: {silent}"
        return Hindrance(words, is_foreign=True, is_silent=True)
    for holder in (holder for holder in holders if holder.gpu in part.gpus):
        process = None
        with suppress(psutil.NoSuchProcess):  # it has just ended, or is a container's
            process = psutil.Process(holder.pid) if holder.pid else None
        if process is None or not orphans.is_ours(process):
            return _foreign(part, holder.pid, holder.command)
        if orphans.is_supervised(process):  # such as the first seconds of an edited program, which needs no slot
            return Hindrance(f"{part.name} is used by process {process.pid} ({command_of(process.pid)})")
        orphans.end_left([process])
        return Hindrance(f"{part.name} is still used by process {process.pid} of an earlier life", is_foreign=True)
    return None


def _foreign(part: Part, pid: int | None, command: str = "") -> Hindrance:
    if pid is None:
        who = "a process that cannot be seen from here, which may be another user's or a container's"
    else:
        who = f"process {pid} ({command_of(pid) or command or 'a program'}), which is none of ours"
    remedy = ", or leave its GPUs out of the Machine block" if part.gpus else ""
    return Hindrance(f"{part.name} is used by {who}: end it{remedy}", is_foreign=True)

"""The slots of this machine, each for one training at a time.

A slot is a group of GPUs, or a part of the CPU, shared by all campaigns and commands. It has a lock for each of its
GPUs or cores, in one folder of the machine, which the engine holds and the kernel frees when the engine dies:

    NAME.lock      a file lock           NAME.holder    the engine that holds it

A holder's note beside a lock that is free is that of an engine that was killed. What it left is ended before the next
training begins. Processes that are not Nightshift's are never touched: a GPU that one uses is not free.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from filelock import FileLock, Timeout

from environments.plugins import Refused
from tasks.machine import gpus
from tasks.machine.gpus import Gpu
from tasks.system import interrupt, orphans
from tasks.system.commands import Unanswered, command_of
from tasks.system.slot import NOWHERE, Slot

__all__ = ["NOWHERE", "Slot", "Slots"]

POLL_SECONDS = 0.2

_held: list[Slot] = []
"""Those that threads of this process hold now."""


def several_are_held() -> bool:
    """Whether this process holds more than one slot, so that programs may train or be judged at the same time."""
    return len(_held) > 1


def locks_folder() -> Path:
    """The folder of this machine's locks."""
    return Path(tempfile.gettempdir()) / "nightshift-slots"


def holder(lock: str, folder: Path | None = None) -> str:
    """The engine that says to hold a lock; empty if none does, or it is dead."""
    engine = noted((folder or locks_folder()) / f"{lock}.holder")
    return engine if orphans.is_alive(engine) else ""


def describe(engine: str) -> str:
    """An engine in words, as far as it is known."""
    if not engine:
        return "a process that has not said which"
    pid = int(engine.partition(" ")[0])
    return f"process {pid} ({'this one' if pid == os.getpid() else command_of(pid) or 'a program'})"


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
    folder: Path = field(default_factory=locks_folder)
    """Folder of the locks, one for the whole machine."""

    @cached_property
    def parts(self) -> tuple[Slot, ...]:
        if self.groups:
            return tuple(map(_of_gpus, self.groups))
        usable = sorted(os.sched_getaffinity(0))
        count, each, prefix = self.cpu_slots or len(usable), self.cores, cpu_prefix(self.home)
        numbers = [*usable, *range(usable[-1] + 1, usable[-1] + 1 + count)][:count]
        groups = [tuple(numbers[at : at + each]) for at in range(0, count - each + 1, each)]
        names = ["-".join(map(str, group)) for group in groups]
        locks = [tuple(f"{prefix}{number}" for number in group) for group in groups]
        cores = groups if count <= len(usable) else [()] * len(groups)
        return tuple(Slot(f"cpu-{name}", (), *rest) for name, *rest in zip(names, cores, locks, strict=True))

    @property
    def locks(self) -> dict[str, tuple[str, ...]]:
        """The names of each slot's locks, by which others see who holds it."""
        return {part.name: part.locks for part in self.parts}

    @contextmanager
    def hold(self, waiting: Callable[[str], None] | None = None) -> Iterator[Slot]:
        """Hold one slot while the block runs; wait until one is free. `waiting` is told once who uses the slots.

        The first to wait gets the next slot; the order of those behind it is not kept. Raises KeyboardInterrupt when
        this process was asked to end, and PermissionError where another user's folder keeps it from the locks.
        """
        _make(self.folder)

        def tell(words: str) -> None:
            nonlocal waiting
            first, waiting = waiting, None
            if first:
                first(words)

        with ExitStack() as held:
            with ExitStack() as turn:  # else a campaign that gives back a slot would have it again at once
                while not self._take(self._turn, turn, POLL_SECONDS):
                    interrupt.check()
                    tell("; ".join(map(self._held_by, self.parts)))
                while isinstance(slot := self._first_free(held), str):
                    tell(slot)
                    interrupt.wait(POLL_SECONDS)
            _held.append(slot)
            held.callback(_held.remove, slot)
            yield slot

    def _first_free(self, held: ExitStack) -> Slot | str:
        """The first free slot, whose locks go to `held`; else who uses the slots."""
        hindrances = []
        for part in self.parts:
            with ExitStack() as mine:
                if not (hindrance := self._hindrance(part, mine)):
                    held.push(mine.pop_all())
                    return replace(part)
                hindrances.append(hindrance)
        return "; ".join(dict.fromkeys(hindrances))

    def _hindrance(self, part: Slot, mine: ExitStack) -> str:
        """Take all locks of a slot, which go to `mine`, or say why that is not possible."""
        if not all(self._take(name, mine) for name in part.locks):
            return self._held_by(part)
        notes = [self.folder / f"{name}.holder" for name in part.locks]
        for engine in map(noted, notes):
            if engine and not orphans.is_alive(engine) and (left := orphans.end_left_by(engine)):
                named = ", ".join(f"{process.pid} ({command_of(process.pid)})" for process in left)
                return f"{part.name} is still used by processes of an engine that was killed, which do not end: {named}"
        if words := _computing(part):
            return words
        for note in notes:
            note.unlink(missing_ok=True)  # it may be another user's
            note.write_text(orphans.this_engine())
            mine.callback(note.unlink, missing_ok=True)
        return ""

    def _take(self, name: str, held: ExitStack, seconds: float = 0.0) -> bool:
        """Take a lock, which goes to `held`; False if another thread or process holds it for so long."""
        with suppress(Timeout):
            held.enter_context(FileLock(self.folder / f"{name}.lock", mode=0o666).acquire(seconds))
            return True
        return False

    def _held_by(self, part: Slot) -> str:
        holders = filter(None, (holder(name, self.folder) for name in part.locks))
        return f"{part.name} is held by {describe(next(holders, ''))}"

    @property
    def _turn(self) -> str:
        """The lock of the first to wait for these slots; of CPU slots of all sizes, the same one."""
        names = sorted(name for part in self.parts for name in part.locks) if self.groups else [cpu_prefix(self.home)]
        return f"turn-{hashlib.sha256(' '.join(names).encode()).hexdigest()[:16]}"


def cpu_prefix(home: Path) -> str:
    """Prefix of the names of a home's CPU locks."""
    return f"cpu-{hashlib.sha256(os.fsencode(home.resolve())).hexdigest()[:16]}-"


def _make(folder: Path) -> None:
    """Make the folder of the locks, for every user of this machine. Refused when something else is there."""
    with suppress(FileExistsError):
        folder.mkdir()
    if not stat.S_ISDIR(folder.lstat().st_mode):
        raise Refused(f"{folder} must be a folder for the locks of slots, and is not: remove it")
    with suppress(PermissionError):  # another user has made it
        folder.chmod(0o777)  # whatever the umask; in a sticky folder filelock takes no lock of another user


def _of_gpus(group: Sequence[Gpu]) -> Slot:
    uuids = tuple(gpu.uuid for gpu in group)
    locks = sorted("gpu-" + re.sub(r"[^\w-]", "_", uuid) for uuid in uuids)
    return Slot(f"gpu-{'-'.join(str(gpu.index) for gpu in group)}", uuids, locks=tuple(locks))


def noted(note: Path) -> str:
    """The engine that a holder's note names, alive or dead; empty without one."""
    with suppress(OSError, UnicodeDecodeError):  # anybody can write there
        return note.read_text()
    return ""


def _computing(part: Slot) -> str:
    """Who computes on a slot's GPUs, whose locks we hold; empty if nobody does."""
    if not part.gpus:
        return ""
    try:
        processes, _ = gpus.ask_holders()
    except (Unanswered, OSError) as silent:
        return f"the processes on {part.name} cannot be listed: {silent}"
    for process in (gpus.known(process) for process in processes if process.gpu in part.gpus):
        who = f"process {process.pid} ({process.command or 'a program'})" if process.pid else "a process out of sight"
        if process.trial:  # such as the first seconds of an edited program, which needs no slot
            return f"{part.name} is used by {who} of trial {process.trial}"
        remedy = "end it, or leave its GPUs out of the Machine block"
        return f"{part.name} is used by {who}, which is none of ours: {remedy}"
    return ""

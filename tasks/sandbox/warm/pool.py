"""The standbys of a campaign: prepared while a core is free, taken by the next program of their kind.

    with pool.opened(folder, marker, tell) as standbys:     # in a campaign
        standbys.expect(kind)                               # one is prepared
        ...                                                 # a Program takes it, and the next one is prepared

Whoever finds none starts cold, as does everything where no pool is open. A thread of the pool starts them: to the
kernel, its end would be the engine's, and it lives as long as the pool.
"""

from __future__ import annotations

import os
import secrets
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from tasks.sandbox.warm.kind import Kind
from tasks.sandbox.warm.standby import IMPORT_SECONDS, Standby, StandbyFailed, restore
from tasks.system import file_trees, interrupt
from tasks.system.clock import clock
from tasks.system.slot import Slot

POLL_SECONDS = 0.2
OLDEST_SECONDS = 1800.0
"""Age at which a standby is not used any more."""
MEMORY_RESERVE = 2 * 2**30
"""Bytes of the machine's memory that are free before another one is prepared."""
FAULTS = 3
"""Preparations of a kind that may fail, one after the other; then its programs start cold."""


class Pool:
    """Standbys by kind. One is prepared at a time, and one more of a kind for each that is taken."""

    def __init__(self, folder: Path, marker: str, tell: Callable[[str], None]) -> None:
        """`folder`: of the same file system as the trials; `marker`: of their processes; `tell` is told of every
        program that starts cold though it should not."""
        self.tell = tell
        self._folder, self._marker = folder, f"{marker}/standby"
        self._cores = frozenset(os.sched_getaffinity(0))
        self._change = threading.Condition()
        self._due: list[Kind] = []
        self._waiting: list[tuple[Standby, object]] = []
        self._prepared: Kind | None = None
        self._making: Standby | None = None
        self._granted: list[tuple[int, ...]] = []
        self._faults: list[Kind] = []
        self._is_over = False
        self._thread = threading.Thread(target=self._work, name="standby", daemon=True)
        restore(folder)  # left by an engine that was killed
        self._thread.start()

    def expect(self, kind: Kind) -> None:
        """Have one more standby of that kind."""
        with self._change:
            self._due.append(kind)
            self._change.notify_all()

    def take(self, kind: Kind) -> Standby | None:
        """A standby of that kind that waits, or will in a moment; None, and why is told, if there is none."""
        with self._change:
            while (found := self._first(kind)) is None and self._prepared == kind and self._thread.is_alive():
                self._change.wait(POLL_SECONDS)
                interrupt.check()
            if found:
                self._waiting.remove(found)
                self._due.append(kind)
            elif kind not in self._due:
                self._due.append(kind)
            self._change.notify_all()
        if found is None:
            failed = self._faults.count(kind) >= FAULTS
            why = "it could not be prepared" if failed else "no core was free for it, or too little memory"
            self.tell(f"no standby is ready: {why}")
            return None
        standby, world = found
        if why := self._unfit(standby, world):
            self._end(standby)
            self.tell(f"the standby was not used: {why}")
            return None
        return standby

    def begun(self, kind: Kind, line: Sequence[str], *, scratch: Path, **trial: Any) -> Standby | None:
        """A standby that has become the program (`Standby.begin`); None, and why is told, if it has to start cold."""
        if (standby := self.take(kind)) is None:
            return None
        try:
            standby.begin(line, scratch=scratch, **trial)
        except StandbyFailed as why:
            self._end(standby)
            file_trees.remove(scratch)
            self.tell(f"the standby was not used: {why}")
            return None
        except BaseException:
            standby.end()
            raise
        return standby

    @contextmanager
    def granted(self, cores: tuple[int, ...]) -> Iterator[None]:
        """See `granted` below."""
        with self._change:
            self._granted.append(cores)
        try:
            yield
        finally:
            with self._change:
                self._granted.remove(cores)
                self._change.notify_all()

    def close(self) -> None:
        """End every standby that was not taken."""
        with self._change:
            self._is_over = True
            if self._making:
                self._making.supervised.process.terminate()
            self._change.notify_all()
        self._thread.join()
        for standby, _ in self._waiting:
            self._end(standby)
        file_trees.remove(self._folder)

    def _first(self, kind: Kind) -> tuple[Standby, object] | None:
        return next((each for each in self._waiting if each[0].kind == kind), None)

    @staticmethod
    def _unfit(standby: Standby, world: object) -> str:
        if not standby.is_alive:
            return "it has ended"
        if clock() - standby.made > OLDEST_SECONDS:
            return f"it is older than {OLDEST_SECONDS / 60:g} minutes"
        return "" if world == _world() else "the interpreter or its packages have changed"

    def _free(self) -> tuple[int, ...]:
        """The cores on which a standby may import now."""
        named = {core for cores in self._granted for core in cores}
        free = sorted(self._cores - named)
        return tuple(free) if len(free) > sum(not cores for cores in self._granted) else ()

    def _next(self) -> tuple[Kind, tuple[int, ...]] | None:
        """The next kind to prepare, and the cores to do it on; None while there is none, or no room."""
        due = [kind for kind in self._due if self._faults.count(kind) < FAULTS]
        if not due or not (cores := self._free()) or psutil.virtual_memory().available < MEMORY_RESERVE:
            return None
        return due[0], cores

    def _work(self) -> None:
        while True:
            with self._change:
                while not self._is_over and (found := self._next()) is None:
                    self._change.wait()
                if self._is_over:
                    return
                assert found is not None
                kind, cores = found
                self._due.remove(kind)
                self._prepared = kind
            world, standby = _world(), self._made(kind, cores)
            with self._change:
                self._prepared = None
                if standby:
                    self._waiting.append((standby, world))
                    self._faults = [each for each in self._faults if each != kind]
                else:
                    self._faults.append(kind)
                    self._due.append(kind)
                self._change.notify_all()

    def _made(self, kind: Kind, cores: tuple[int, ...]) -> Standby | None:
        """A standby that waits. Nothing is raised: the end of this thread would be that of the programs, too."""
        standby = None
        try:
            standby = Standby(kind, self._folder / secrets.token_hex(4), self._marker, cores)
            with self._change:
                self._making = None if self._is_over else standby
            if self._making:
                standby.wait(IMPORT_SECONDS)
                return standby
        except Exception as why:  # noqa: BLE001 (as above)
            if not self._is_over:
                self._tell(f"a standby could not be prepared: {why}")
        finally:
            with self._change:
                self._making = None
        if standby:
            self._end(standby)
        return None

    def _end(self, standby: Standby) -> None:
        """End a standby that becomes no program; what is left of one that cannot be ended does no harm."""
        try:
            standby.end()
        except OSError as fault:
            self._tell(f"a standby could not be ended: {fault}")

    def _tell(self, words: str) -> None:
        with suppress(OSError):  # a full disk, which stops the campaign at its next event
            self.tell(words)


def _world() -> object:
    """What a standby has loaded and cannot notice to have changed: the interpreter, and which packages there are."""
    places = (sys.executable, sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    marks: list[int] = []
    for place in places:
        with suppress(OSError):
            marks.append(Path(place).stat().st_mtime_ns)
    return marks


_open: Pool | None = None


def current() -> Pool | None:
    """The pool of this process, if one is open."""
    return _open


@contextmanager
def granted(slot: Slot) -> Iterator[None]:
    """A training holds the slot's cores while the block runs; without any, one that is not known. No import begins on
    them meanwhile; one that has begun goes on."""
    if _open is None:
        yield
        return
    with _open.granted(slot.cores):
        yield


@contextmanager
def opened(folder: Path, marker: str, tell: Callable[[str], None]) -> Iterator[Pool]:
    """Have standbys while the block runs. One pool at a time: inside of another block, that one goes on."""
    global _open
    if _open is not None:
        yield _open
        return
    _open = Pool(folder, marker, tell)
    try:
        yield _open
    finally:
        ending, _open = _open, None
        ending.close()

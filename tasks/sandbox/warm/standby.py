"""A standby: a supervised, confined interpreter that has imported packages, and waits to become one trial's program.

It is confined exactly as a cold start is, before it imports anything, with folders of its own in the place of its
trial's. These are empty. When it is given a trial, the trial's files are moved into them and they take the places of
the trial's folders: bubblewrap's mounts and Landlock's rules belong to a folder, whatever its name. It is used once.
"""

from __future__ import annotations

import fcntl
import marshal
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tasks.sandbox import cgroup, confinement, usage
from tasks.sandbox.child_environment import child_environment
from tasks.sandbox.supervised import SUPERVISOR_SECONDS, Supervised
from tasks.sandbox.supervisor import FILTER_DESCRIPTOR
from tasks.sandbox.warm.kind import Kind
from tasks.system import file_trees
from tasks.system.clock import clock
from tasks.system.slot import Slot

SOURCE = Path(__file__).with_name("standby_process.py")
ROOM, ROOM_BYTES = "NIGHTSHIFT_ROOM", 2**14
"""A variable that leaves room for the trial's own, which replace all variables of the standby."""
SCRATCH = "tmp"
TRIAL = "trial"
"""The file that names the trial that it is given, while its folders take the places of the trial's."""
IMPORT_SECONDS = 300.0
BEGIN_SECONDS = 20.0


class StandbyFailed(Exception):
    """A standby that cannot become a program; the message says why."""


class Standby:
    """One standby, from its start until it has become a program or is ended.

    Raises:
        OSError: the machine has no process or memory left.
    """

    def __init__(self, kind: Kind, folder: Path, marker: str, cores: tuple[int, ...] = ()) -> None:
        """Start it with that marker in `folder`, which is made; it imports on these cores."""
        self.kind, self.folder, self.made = kind, folder, clock()
        self.began, self.cpu = self.made, 0.0
        """When it was given its trial, and the processor time that it had used by then."""
        self._said, self._is_started = b"", False
        for name, writable in (*kind.own, (SCRATCH, True)):
            (folder / name).mkdir(parents=True)
            if writable and name != SCRATCH:
                confinement.give(folder / name, kind.level)
        self.group: cgroup.Group | None = None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._orders, orders = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel = ours
        try:
            # The supervisor passes bubblewrap its filter at a fixed number, which must stay free.
            high = fcntl.fcntl(theirs.fileno(), fcntl.F_DUPFD_CLOEXEC, FILTER_DESCRIPTOR + 1)
            with theirs, orders, os.fdopen(high):
                if groups := cgroup.find():
                    self.group = groups.make(usage.allowed(kind.limits), kind.limits.processes)
                plan = self._plan(high, marker, cores)
                plan["orders"] = orders.fileno()
                passed = (high, orders.fileno())
                self.supervised = Supervised(plan, marker=marker, cwd=Path("/"), pipes=kind.pipes, passed=passed)
        except BaseException:
            self._clear()
            raise

    def _plan(self, channel: int, marker: str, cores: tuple[int, ...]) -> dict[str, Any]:
        kind, ahead = self.kind, self.kind.ahead
        told = {"modules": list(ahead.modules), "variables": ahead.variables, "channel": channel}
        argv = [sys.executable, *kind.flags, "-c", SOURCE.read_text("utf-8"), marshal.dumps(told).hex()]
        size = int(kind.limits.scratch_gb * 2**30)
        plan = confinement.plan(
            kind.level, kind.view(self.folder), argv, cwd=Path("/"), scratch=self.folder / SCRATCH, scratch_bytes=size,
            counted=kind.counted,
        )  # fmt: skip
        home = confinement.HOME if kind.level == "bwrap" else str(self.folder / SCRATCH)
        limits = usage.rlimits(kind.limits, kind.level, self.group is not None, kind.shared.gpu)
        limits.pop("RLIMIT_NPROC", None)  # it counts what the user runs when the program begins
        return plan | {
            "env": child_environment(home, marker) | {ROOM: "." * ROOM_BYTES},
            "cgroups": self.group.entrances if self.group else [],
            "rlimits": limits,
            "cores": cores,
        }

    def wait(self, seconds: float) -> None:
        """Wait until its packages are imported.

        Raises:
            StandbyFailed: it has ended, cannot import them, or takes longer than that.
        """
        if not self._is_started:
            told = self.supervised.hear()
            if "started" not in told:
                raise StandbyFailed(f"it could not be started: {told.get('why') or 'its supervisor failed'}")
            self._is_started = True
        if not self._said:
            self._said = self._answer(seconds)
        if self._said != b"ready":
            raise StandbyFailed(f"it could not import its packages: {self._said.decode(errors='replace')}")

    @property
    def is_alive(self) -> bool:
        """Whether it waits. What it says now is its end."""
        ends = [self._channel.fileno(), self.supervised.report]
        return self.supervised.process.poll() is None and not select.select(ends, [], [], 0)[0]

    def begin(
        self,
        line: Sequence[str],
        *,
        trial: Path,
        scratch: Path,
        env: Mapping[str, str],
        cwd: Path,
        rlimits: Callable[[bool], Mapping[str, int]],
        slot: Slot,
    ) -> None:
        """Become the program with this command line, in the folders of its trial. Its own folder, in which packages
        may have found their home, is to be removed after the program's end.

        Args:
            line: Without the interpreter.
            scratch: Its temporary folder, which must not exist.
            rlimits: Its resource limits now, by whether a control group bounds it.
            slot: Whose fences it inherits, under the same numbers, and whose cores it may use.

        Raises:
            StandbyFailed: it is to be ended; the trial's folders hold what they held.
        """
        self.began = clock()
        try:
            self.cpu = usage.measure(self.supervised.process.pid, self.folder.stat().st_dev).cpu
            (self.folder / SCRATCH).rename(scratch)
            if self.kind.level != "bwrap":  # there, what was imported knows it as its home
                (self.folder / SCRATCH).symlink_to(scratch)
            (self.folder / TRIAL).write_bytes(os.fsencode(trial))
            for name, _ in self.kind.own:
                take_place(self.folder / name, trial / name)
            moves = [(str(self.folder / name), str(trial / name)) for name, _ in self.kind.own]
            cores = slot.cores or tuple(os.sched_getaffinity(0))
            self._order(moves if self.kind.level == "bwrap" else [], cores, slot.fences)
            limits = dict(rlimits(self.group is not None))
            order = {"line": list(line), "env": dict(env), "cwd": str(cwd), "rlimits": limits}
            message = marshal.dumps(order | {"numbers": list(slot.fences)})
            socket.send_fds(self._channel, [message], list(slot.fences))
            said = self._answer(BEGIN_SECONDS)
            (self.folder / TRIAL).unlink()
        except OSError as fault:
            raise StandbyFailed(f"it could not be given its trial: {fault}") from fault
        if said != b"able":
            raise StandbyFailed(f"it could not take on its trial: {said.decode(errors='replace') or 'it ended'}")
        with suppress(ConnectionError):  # it is the program now, however soon that ends; nothing may fail from here on
            self._channel.send(b"go")
        self._close()

    def _order(self, moves: list[tuple[str, str]], cores: tuple[int, ...], fences: tuple[int, ...]) -> None:
        socket.send_fds(self._orders, [marshal.dumps({"moves": moves, "cores": cores})], list(fences))
        self.supervised.process.send_signal(signal.SIGUSR2)
        told = self.supervised.hear()
        if "admitted" not in told:
            raise StandbyFailed(f"its sandbox could not be given its trial: {told.get('why', 'it has ended')}")

    def _answer(self, seconds: float) -> bytes:
        """What it says next; empty when it has ended."""
        if not select.select([self._channel], [], [], seconds)[0]:
            return f"nothing within {seconds:g} s".encode()
        with suppress(ConnectionError):
            return self._channel.recv(2**12)
        return b""

    def end(self) -> None:
        """End it, and remove what it has. Safe to call again."""
        process = self.supervised.process
        if self._channel.fileno() < 0:
            return
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(SUPERVISOR_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self.supervised.close()
        self._clear()

    def _close(self) -> None:
        self._channel.close()
        self._orders.close()

    def _clear(self) -> None:
        self._close()
        if self.group:
            self.group.kill()
            self.group.remove()
        file_trees.remove(self.folder)


def take_place(empty: Path, folder: Path) -> None:
    """Have an empty folder take the place of another, with its content, mode, owner and times.

    Raises:
        OSError: the other one is as it was.
    """
    status = folder.stat()
    if os.geteuid() == 0:
        os.chown(empty, status.st_uid, status.st_gid)
    empty.chmod(status.st_mode & 0o7777)
    try:
        for path in list(folder.iterdir()):
            path.rename(empty / path.name)
        folder.rmdir()
    except OSError:
        give_back(empty, folder)
        raise
    empty.rename(folder)
    os.utime(folder, ns=(status.st_atime_ns, status.st_mtime_ns))


def give_back(empty: Path, folder: Path) -> None:
    """Undo what `take_place` has begun."""
    if not folder.exists():
        empty.rename(folder)
        return
    for path in list(empty.iterdir()):
        path.rename(folder / path.name)


def restore(folder: Path) -> None:
    """Give back to trials what was in standbys when their engine was killed, and remove those from `folder`."""
    for left in folder.iterdir() if folder.is_dir() else ():
        note = left / TRIAL
        trial = Path(os.fsdecode(note.read_bytes())) if note.is_file() else None
        for own in left.iterdir() if trial and trial.is_dir() else ():
            if trial and own.is_dir() and own.name != SCRATCH:
                give_back(own, trial / own.name)
    file_trees.remove(folder)

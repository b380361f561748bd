"""What a red team's program has around it: another process of the user, a terminal, shared memory, a queue.

with neighbours(ground) as around:
    attack(ground, program, "landlock", targets=around.targets())
    assert around.states() == around.before
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tasks.sandbox import cgroup
from tests.support.red_team import Ground

VICTIM = """
import ctypes, os, signal, sys
signal.signal(signal.SIGURG, lambda *_: os._exit(9))
held = ctypes.create_string_buffer(sys.argv[1].encode())
print(ctypes.addressof(held), flush=True)
for line in sys.stdin: print(held.value.decode(), flush=True)
"""
"""Holds the secret in its memory, and says it when it is asked."""

VARIABLE = "RED_TEAM_API_KEY"
"""Holds the secret too, in what surrounds the program."""
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p


class Message(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_long), ("text", ctypes.c_char * 60))


@dataclass
class Neighbours:
    """What else the user has on this machine: a process, a terminal, shared memory, a queue of messages."""

    ground: Ground
    victim: subprocess.Popen[str]
    file: int
    """The victim's descriptor of a file with the secret."""
    address: int
    before: dict[str, object]
    shm: int
    queue: int
    master: int
    pty: str
    signals: list[int]

    def targets(self) -> dict[str, object]:
        found = cgroup.find()
        groups = [str(folder / "cgroup.procs") for folder in (found.memory, found.pids)] if found else []
        return {
            "victim": self.victim.pid, "victim fd": self.file, "engine": os.getpid(), "address": self.address, "pty": self.pty, "shm": key(),
            "shm id": self.shm, "queue id": self.queue, "groups": groups,
        }  # fmt: skip

    def states(self) -> dict[str, object]:
        """How the system treats the victim and the engine."""
        return {str(pid): state(pid) for pid in (self.victim.pid, os.getpid())}

    def shared(self) -> bytes:
        """What stands in the shared memory."""
        place = libc.shmat(self.shm, None, 0)
        text = ctypes.string_at(place)
        libc.shmdt(ctypes.c_void_p(place))
        return text

    def typed(self) -> bytes:
        """What came in on the terminal."""
        return os.read(self.master, 100) if select.select([self.master], [], [], 0)[0] else b""

    def asked(self) -> str:
        """What the victim says; empty when it is not as it was."""
        assert self.victim.stdin is not None and self.victim.stdout is not None
        self.victim.stdin.write("well?\n")
        self.victim.stdin.flush()
        return self.victim.stdout.readline().strip()


def state(pid: int) -> tuple[object, ...]:
    process = psutil.Process(pid)
    files = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    oom = Path(f"/proc/{pid}/oom_score_adj").read_text()
    return process.nice(), process.ionice(), process.cpu_affinity(), os.sched_getscheduler(pid), files, oom


def key() -> int:
    """Of the shared memory: nobody else's."""
    return 0x52ED0000 + os.getpid() % 0xFFFF


@contextmanager
def neighbours(ground: Ground) -> Iterator[Neighbours]:
    command = [sys.executable, "-c", VICTIM, ground.secret]
    with (ground.user / ".netrc").open() as netrc:
        victim = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, cwd=ground.user,
            env={VARIABLE: ground.secret}, pass_fds=(file := netrc.fileno(),),
        )  # fmt: skip
    assert victim.stdout is not None
    address = int(victim.stdout.readline())
    shm, queue = libc.shmget(key(), 4096, 0o1666), libc.msgget(0, 0o1666)
    place = libc.shmat(shm, None, 0)
    ctypes.memmove(place, ground.secret.encode(), len(ground.secret))
    libc.shmdt(ctypes.c_void_p(place))
    libc.msgsnd(queue, ctypes.byref(Message(1, ground.secret.encode())), 60, 0)
    master, slave = os.openpty()
    signals: list[int] = []
    asleep = signal.signal(signal.SIGURG, lambda number, _: signals.append(number))
    around = Neighbours(ground, victim, file, address, {}, shm, queue, master, os.ttyname(slave), signals)
    around.before.update(around.states())
    try:
        yield around
    finally:
        signal.signal(signal.SIGURG, asleep)
        victim.kill()
        victim.communicate()
        for descriptor in (master, slave):
            os.close(descriptor)
        libc.shmctl(shm, 0, None)
        libc.msgctl(queue, 0, None)


def free(path: Path) -> bool:
    """Whether no process holds the lock on a file. (A lock is seen from any namespace, a process is not.)"""
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True

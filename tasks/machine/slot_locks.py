"""Machine-wide locks of a part of the machine, such as a GPU, that hold as long as any process uses it.

A part has two files in one folder, which every user of the machine may write:

    NAME.lock    flock, exclusive: held by the engine through a descriptor that no program inherits. Names the holder.
    NAME.fence   flock, shared: held by the engine and, through a descriptor that they inherit, by all of its programs.

The kernel frees the lock when the engine dies, whatever its programs do to their descriptor, and the fence when the
last of them is gone. The fence is a FIFO, so nothing that a program writes to it is kept.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from environments.plugins import Refused
from tasks.sandbox.supervisor import FILTER_DESCRIPTOR
from tasks.system.commands import command_of, identity

NOTE_BYTES = 512
SAFE = os.O_CLOEXEC | os.O_NOFOLLOW


@dataclass(frozen=True)
class LockHolder:
    """Who has noted that a part is its own."""

    pid: int
    started: str
    """Start of that process, as `identity` gives it: a later process may have the same pid."""

    @property
    def is_alive(self) -> bool:
        with contextlib.suppress(OSError):
            return identity(self.pid) == self.started
        return False

    def __str__(self) -> str:
        if self.pid == os.getpid():
            return f"process {self.pid} (this one)"
        return f"process {self.pid} ({command_of(self.pid) or 'a program'})"


def folder() -> Path:
    """The folder of this machine's locks."""
    return Path(tempfile.gettempdir()) / "nightshift-slots"


def prepare(folder: Path) -> None:
    """Create the folder, writable for every user of this machine. Refused when the path is something else."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir()
        folder.chmod(0o1777)  # whatever the umask
    if not stat.S_ISDIR(folder.lstat().st_mode):
        raise Refused(f"{folder} must be a folder for the locks of slots, and is not: remove it")


def take(lock: Path) -> int | None:
    """Take a lock: a descriptor to `release`, or None while another process holds it."""
    descriptor = _opened(lock)
    with contextlib.suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), lock.lstat()):  # the path still names it
            return descriptor
    os.close(descriptor)
    return None


def note(lock: int) -> None:
    """Write into the lock file that this process holds it."""
    holder = {"pid": os.getpid(), "started": identity(os.getpid())}
    os.pwrite(lock, f"{json.dumps(holder)}\n".encode(), 0)


def release(lock: int) -> None:
    os.ftruncate(lock, 0)
    os.close(lock)


def noted(lock: Path) -> LockHolder | None:
    """Who holds it by its own word, or held it when it was killed."""
    try:
        with os.fdopen(os.open(lock, os.O_RDONLY | SAFE)) as file:
            said = json.loads(file.read(NOTE_BYTES))
        return LockHolder(int(said["pid"]), str(said["started"]))
    except (OSError, ValueError, TypeError, KeyError):  # anybody can write there
        return None


def is_held(lock: Path) -> bool:
    with os.fdopen(os.open(lock, os.O_RDONLY | SAFE)) as file, contextlib.suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    return True


def describe(lock: Path) -> str:
    holder = noted(lock)
    return str(holder) if holder and holder.is_alive else "a process that has not said which"


def open_fence(path: Path) -> int:
    """Open a fence: a descriptor for programs to inherit. Refused when the path is not a FIFO."""
    with contextlib.suppress(FileExistsError):
        os.mkfifo(path)
        path.chmod(0o444)
    first = os.open(path, os.O_RDONLY | os.O_NONBLOCK | SAFE)
    try:
        if not stat.S_ISFIFO(os.fstat(first).st_mode):
            raise Refused(f"{path} is not a FIFO, so it is not a fence of Nightshift: remove it")
        # The supervisor passes bubblewrap its filter at a fixed number, which must stay free.
        return fcntl.fcntl(first, fcntl.F_DUPFD_CLOEXEC, FILTER_DESCRIPTOR + 1)
    finally:
        os.close(first)


def put_up(fence: int) -> bool:
    """Hold a fence, shared with its heirs; False while a process of an earlier holder is left. Needs its lock."""
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(fence, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(fence, fcntl.LOCK_SH)
        return True
    return False


def _opened(lock: Path) -> int:
    while True:
        # Not O_CREAT alone: in a sticky folder the kernel may refuse it for a file of another user.
        with contextlib.suppress(FileNotFoundError):
            return os.open(lock, os.O_RDWR | SAFE)
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_EXCL | SAFE, 0o666)
            os.fchmod(descriptor, 0o666)
            return descriptor

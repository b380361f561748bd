"""Safe opening of an untrusted program's files: no link is followed, no named pipe is waited for.

With the descriptor of a folder, `within`, and a single name the program cannot redirect it by changing folders above.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_BY_PROGRAM = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EACCES, errno.EPERM, errno.EINVAL)
_PLAINLY = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


class NotPlain(OSError):
    """The path can be opened, but is not a regular file."""


def open_file(path: str | Path, within: int | None = None) -> BinaryIO:
    """Open a regular file for reading. Raises NotPlain: it is none; OSError: it is missing, a link or a socket."""
    descriptor = os.open(path, _PLAINLY, dir_fd=within)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotPlain(errno.EINVAL, "Not a plain file", str(path))
    return os.fdopen(descriptor, "rb")


def open_folder(path: str | Path, within: int | None = None) -> int:
    """The descriptor of a folder, for the caller to close. Raises OSError for a link or anything but a folder."""
    return os.open(path, _PLAINLY | os.O_DIRECTORY, dir_fd=within)


def is_programs_doing(error: OSError) -> bool:
    """Whether the program caused it: the path is missing, replaced, not plain or unreadable. Else the machine did."""
    return error.errno in _BY_PROGRAM


@contextlib.contextmanager
def tolerating() -> Iterator[None]:
    """Leave the block at an error that the program caused."""
    try:
        yield
    except OSError as error:
        if not is_programs_doing(error):
            raise

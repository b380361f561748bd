"""Opening what an untrusted program left: no link is followed, no named pipe is waited for.

Both functions take a descriptor of the folder that the path starts in; with it, and a path of one name, nothing
that the program does meanwhile to the folders above can lead elsewhere.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

_BY_PROGRAM = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EACCES, errno.EPERM, errno.EINVAL)
_PLAINLY = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


class NotPlain(OSError):
    """It is there and can be opened, and is no regular file."""


def open_file(path: str | Path, within: int | None = None) -> BinaryIO:
    """Open a regular file for reading.

    Raises:
        NotPlain: a folder, a named pipe or a device.
        OSError: it is missing, a link, a socket, or may not be read.
    """
    descriptor = os.open(path, _PLAINLY, dir_fd=within)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotPlain(errno.EINVAL, "Not a plain file", str(path))
    return os.fdopen(descriptor, "rb")


def open_folder(path: str | Path, within: int | None = None) -> int:
    """The descriptor of a folder, for the caller to close.

    Raises:
        OSError: it is missing, a link, no folder, or may not be read.
    """
    return os.open(path, _PLAINLY | os.O_DIRECTORY, dir_fd=within)


def is_programs_doing(error: OSError) -> bool:
    """Whether it says that a path is missing, replaced, no plain file or closed to us; else the machine is at fault."""
    return error.errno in _BY_PROGRAM

"""Safe opening of an untrusted program's files: no link is followed, no named pipe is waited for.

With the descriptor of a folder, `within`, and a single name the program cannot redirect it by changing folders above.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from io import BufferedReader
from pathlib import Path, PurePath
from typing import ParamSpec, TypeVar

_BY_PROGRAM = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EACCES, errno.EPERM, errno.EINVAL)
_PLAINLY = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY

P = ParamSpec("P")
T = TypeVar("T")


def open_file(path: str | Path, within: int | None = None) -> BufferedReader:
    """Open a regular file for reading. Raises OSError: it is missing, a link, or none."""
    descriptor = os.open(path, _PLAINLY, dir_fd=within)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "Not a plain file", str(path))
    return os.fdopen(descriptor, "rb")


def open_folder(path: str | Path, within: int | None = None) -> int:
    """The descriptor of a folder, for the caller to close. Raises OSError for a link or anything but a folder."""
    return os.open(path, _PLAINLY | os.O_DIRECTORY, dir_fd=within)


def open_below(folder: Path, name: str) -> BufferedReader | None:
    """A regular file below a folder, reached through no link; None if there is none or it cannot be read."""
    *above, last = PurePath(name).parts
    with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
        within = open_folder(folder)
        stack.callback(os.close, within)
        for part in above:
            within = open_folder(part, within)
            stack.callback(os.close, within)
        return open_file(last, within)
    return None


def tolerantly(call: Callable[P, T], *values: P.args, **named: P.kwargs) -> T | None:
    """What a call returns; None at an error that the program caused: a path is missing, replaced or unreadable."""
    try:
        return call(*values, **named)
    except OSError as error:
        if error.errno not in _BY_PROGRAM:
            raise
        return None

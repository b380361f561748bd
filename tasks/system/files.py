"""Atomic file replacement, and files of lines."""

from __future__ import annotations

import os
import threading
from pathlib import Path


def write_atomic(path: Path, content: str | bytes) -> None:
    """Replace a file as a whole: a reader sees the old content or the new one, even after kill -9.

    Raises:
        OSError: such as a full disk, with the file's name; the old content stays, and nothing is left beside it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_native_id()}")
    try:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        temporary.replace(path)
    except OSError as fault:
        raise OSError(fault.errno, fault.strerror, str(path)) from fault
    finally:
        temporary.unlink(missing_ok=True)


def append_line(path: Path, line: str) -> None:
    """Append a line of text; a last line that a full disk or a kill cut short is ended first."""
    with path.open("ab+") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
        torn = file.read(1) not in (b"", b"\n")
        file.write((b"\n" if torn else b"") + line.encode() + b"\n")

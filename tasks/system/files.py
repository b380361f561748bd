"""Atomic file replacement, and files that grow by lines."""

import json
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any


def write_atomic(path: Path, content: str | bytes, lasting: bool = False, mode: int = 0o666) -> None:
    """Replace a file as a whole: a reader sees the old content or the new one, even after kill -9; with `lasting` also
    after a power cut. Raises OSError with the file's name, as on a full disk; the old content stays then.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_native_id()}")
    try:
        temporary.touch(mode)
        with temporary.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            if lasting:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as fault:
        raise OSError(fault.errno, fault.strerror, str(path)) from fault
    finally:
        with suppress(OSError):  # a read-only disk, of which the file above tells
            temporary.unlink(missing_ok=True)


def append_line(path: Path, line: str) -> None:
    """Append a line of text; a last line that a full disk or a kill cut short is ended first."""
    with path.open("ab+") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
        torn = file.read(1) not in (b"", b"\n")
        file.write((b"\n" if torn else b"") + line.encode() + b"\n")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of a file that grows by lines. A line that is none is left out, such as one cut by a kill."""
    objects = []
    for line in path.read_bytes().split(b"\n") if path.exists() else ():
        with suppress(ValueError):
            if isinstance(value := json.loads(line), dict):
                objects.append(value)
    return objects

"""Atomic file replacement, and files that grow by lines."""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any


def write_atomic(path: Path, content: str | bytes, lasting: bool = False) -> None:
    """Replace a file as a whole: a reader sees the old content or the new one, even after kill -9; with `lasting` also
    after a power cut. Raises OSError with the file's name, as on a full disk; the old content stays then.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_native_id()}")
    try:
        with temporary.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            if lasting:
                file.flush()
                os.fsync(file.fileno())
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


class GrowingFile:
    """The JSON objects of a file that grows by lines. Each reading looks only at what was added since the last one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._offset = 0
        """How far it was read."""
        self._objects: list[dict[str, Any]] = []

    def read(self) -> tuple[dict[str, Any], ...]:
        """All objects so far. A line that is none is left out, such as one cut short by a kill."""
        with self._lock:
            size = self._path.stat().st_size if self._path.exists() else 0
            if not size:
                return ()
            with self._path.open("rb") as file:
                file.seek(self._offset)
                added = file.read()
            whole = added[: added.rfind(b"\n") + 1]
            self._objects += _objects(whole)
            self._offset += len(whole)
            return (*self._objects, *_objects(added[len(whole) :]))


def _objects(lines: bytes) -> list[dict[str, Any]]:
    found = []
    for line in lines.split(b"\n"):
        with suppress(ValueError):
            if isinstance(value := json.loads(line), dict):
                found.append(value)
    return found

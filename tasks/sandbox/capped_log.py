"""A program's log: the beginning and the end of its output, without the engine's secrets."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from tasks.system.redact import capped, clean, known_secrets, scrub

SAID = "| "
"""Begins each line of a program's words where they stand among ours."""
LOG_KEPT_HEAD, LOG_KEPT_TAIL = 2**20, 2**16
LONGEST_LINE = 2**16
"""Bytes of a line that are waited for, so that a secret in it is seen whole."""
TRACEBACK = re.compile(r"(?:  \+ Exception Group )?Traceback \(most recent call last\):")
OTHERS = re.compile(r"Exception (?:in|ignored)")
"""The line above a traceback that ends no program."""
TRACEBACK_LINES = 500
LINE_CHARACTERS = 500
"""Longest line in the reason of a crash."""


class CappedLog:
    """A log file that keeps the beginning and the end of the output, and counts the bytes between."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._secrets = known_secrets()
        self._line = b""
        """The last line, which has not ended yet."""
        self._tail = b""
        self._passed = 0
        """Bytes after redaction."""
        self.written = 0
        """Bytes printed by the program."""

    def write(self, chunk: bytes) -> None:
        self.written += len(chunk)
        data = self._line + chunk
        end = len(data) if len(data) > LONGEST_LINE else max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        self._line = data[end:]
        self._keep(data[:end])

    def close(self) -> None:
        if not self._file.closed:
            self._keep(self._line)
            self._line = b""
            if (beyond := self._passed - LOG_KEPT_HEAD) > 0:
                kept = self._tail[-beyond:]
                self._file.write(f"\n[... {beyond - len(kept)} bytes left out ...]\n".encode() + kept)
            self._file.close()

    def tail(self, lines: int) -> str:
        """The last lines, safe to print (tasks/system/redact.py)."""
        last = clean((self._tail + self._line).decode(errors="replace"))[-lines:]
        return "\n".join(capped(line, LINE_CHARACTERS) for line in last)

    def has_traceback(self) -> bool:
        """Whether an exception of Python is in the last lines, other than one of a thread or one that was ignored."""
        lines = self._tail.decode(errors="replace").splitlines()[-TRACEBACK_LINES:]
        return any(
            TRACEBACK.match(line) and not OTHERS.match(above) for above, line in itertools.pairwise(["", *lines])
        )

    def _keep(self, data: bytes) -> None:
        passed = scrub(data, self._secrets)
        if (room := LOG_KEPT_HEAD - self._passed) > 0:
            self._file.write(passed[:room])
            self._file.flush()
        self._passed += len(passed)
        self._tail = (self._tail + passed)[-LOG_KEPT_TAIL:]

"""Consoles on pseudo-terminals and files, and what was written to them."""

from __future__ import annotations

import io
import os
import pty
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType


@contextmanager
def terminal(width: int, height: int = 20) -> Iterator[tuple[Console, list[bytes]]]:
    """A console on a real pseudo-terminal, and what was written to it."""
    reader, writer = pty.openpty()
    written: list[bytes] = []

    def drain() -> None:
        while True:
            try:
                written.append(os.read(reader, 65_536))
            except OSError:  # its other end is closed
                return

    thread = threading.Thread(target=drain)
    with os.fdopen(writer, "w") as file:
        thread.start()
        environment = {"TERM": "xterm-256color", "COLUMNS": str(width), "LINES": str(height)}
        yield Console(file=file, width=width, height=height, _environ=environment), written
    thread.join()
    os.close(reader)


def printed(
    what: RenderableType | Callable[[Console], None], width: int = 80, encoding: str = "utf-8"
) -> str:
    """What a file gets."""
    buffer = io.BytesIO()
    console = Console(
        file=io.TextIOWrapper(buffer, encoding, write_through=True), width=width, highlight=False
    )
    what(console) if callable(what) else console.print(what)
    return buffer.getvalue().decode(encoding)

"""Consoles on pseudo-terminals and on screens without colour, and what was written to them."""

from __future__ import annotations

import io
import os
import pty
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, RenderableType

from flows.views.terminal import put


@contextmanager
def terminal(width: int) -> Iterator[tuple[Console, list[bytes]]]:
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
        environment = {"TERM": "xterm-256color", "COLUMNS": str(width), "LINES": "20"}
        yield Console(file=file, width=width, height=20, _environ=environment), written
    thread.join()
    os.close(reader)


def printed(what: RenderableType | Callable[[Console], Any], width: int) -> str:
    """The text that a screen without colour gets."""
    file = io.StringIO()
    console = Console(file=file, width=width, color_system=None, force_terminal=True, _environ={"TERM": "xterm"})
    shown = what(console) if callable(what) else what
    if shown is not None:
        put(console, shown)
    return file.getvalue()

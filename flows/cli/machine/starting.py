"""Programs that are started side by side: a line for each as soon as it is ready, and what the others are at.

A terminal shows the others below the lines, second by second. A file gets a line when one begins, and one every half
minute while it goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from flows.views.terminal import duration, is_screen, put, short
from tasks.system import interrupt

LONG_SECONDS = 30.0
"""From then on the log is named; and how often a file is told."""


@dataclass
class Start:
    """One program that is not ready yet."""

    where: str = ""
    began: float | None = None
    """None while it waits for another."""
    told: float = 1.0
    """Seconds after its begin at which a file is told of it next."""


class StartBoard:
    """Shows the starts of programs while a `with` block runs; `draw` is called again and again by one thread.

    Args:
        titles: The programs by name, in their order.
        logs: The folder of their logs, which are called after their names.
    """

    def __init__(self, console: Console, titles: Mapping[str, str], logs: Path) -> None:
        self._console, self._titles, self._logs = console, titles, logs
        self._pending = {name: Start() for name in titles}
        self._ready: list[Text] = []
        """Lines to print."""
        self._lock = threading.Lock()
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> StartBoard:
        if is_screen(self._console):
            self._live.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.draw()
        self._live.stop()

    def begin(self, name: str) -> Callable[[str], None]:
        """Note that a program is being started; the function that is told its address while it starts.

        That function raises KeyboardInterrupt once the start is to be given up.
        """
        start = self._pending[name]
        start.began = time.monotonic()

        def still(where: str) -> None:
            interrupt.check()
            start.where = where.removesuffix("/api")

        return still

    def ready(self, name: str, where: str, since: str = "", note: str = "") -> None:
        """Note that a program is there; `since`: when it was started, if not now."""
        with self._lock:
            start = self._pending.pop(name)
            took = time.monotonic() - start.began if start.began else 0.0
            how = f"running since {since}" if since else f"started in {duration(took)}"
            self._ready.append(self._line(name, where, how + note))

    def draw(self) -> None:
        """Print what is new, and show what is still starting."""
        with self._lock:
            ready, self._ready = self._ready, []
            pending = dict(self._pending)
        for line in ready:
            put(self._console, line)
        if self._live.is_started:
            lines = [self._line(name, start.where, self._state(name, start)) for name, start in pending.items()]
            self._live.update(Group(*lines), refresh=True)
            return
        for name, start in pending.items():
            if start.began is not None and time.monotonic() - start.began >= start.told:
                start.told = LONG_SECONDS + time.monotonic() - start.began
                put(self._console, self._line(name, start.where, self._state(name, start)))

    def _state(self, name: str, start: Start) -> str:
        if start.began is None:
            return f"waits for {next(iter(self._titles.values()))}"
        took = time.monotonic() - start.began
        log = f"; its log: {short(self._logs / name)}.log" if took >= LONG_SECONDS else ""
        return f"starting, {took:.0f} s{log}"

    def _line(self, name: str, where: str, how: str) -> Text:
        line = Text(f"  {self._titles[name]:<8} {where:<28} ", no_wrap=True, overflow="ellipsis")
        return line.append(how, "dim")

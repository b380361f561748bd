"""What is kept up to date with a campaign while it runs: in a thread, so that a slow or dead server slows nothing."""

from __future__ import annotations

import contextlib
import contextvars
import threading
import time
from collections.abc import Callable

from tasks.store.ledger import Ledger
from tasks.system import interrupt

CLOSE_SECONDS = 300.0
"""How long a campaign waits at its end for a server that is slow."""
POLL_SECONDS = 0.1
NEWS = ("settled", "looked", "certified", "ablated")
"""Events after which there is more to show."""


class Background:
    """Acts at the beginning of a `with` block, after each trial and certificate, and at the end by `close`.

    Faults never end a campaign: each is an event and a warning, once until it works again.
    """

    def __init__(
        self, ledger: Ledger, kind: str, act: Callable[[], str], warn: Callable[[str], None], rest: float = 1.0
    ) -> None:
        """
        Args:
            kind: Of the events that tell of faults.
            act: Brings it up to date; says what is not, else nothing. What it raises is a fault too.
            rest: Seconds between two calls, and at most for the last one where `close` was not called.
        """
        self._ledger, self._kind, self._act, self._warn, self._rest = ledger, kind, act, warn, rest
        self._problem = ""
        self._over = threading.Event()
        # Prefect's settings, the server's address among them, are variables of the context.
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._work,), name=kind, daemon=True)

    def __enter__(self) -> Background:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(self._rest)  # of a campaign that was cut off: a last time

    def close(self, act: Callable[[], str]) -> None:
        """Act a last time, on the campaign's end, and wait for that, a bounded time."""
        self._act = act
        self._over.set()
        until = time.monotonic() + CLOSE_SECONDS
        while self._thread.is_alive() and time.monotonic() < until:
            interrupt.check()
            self._thread.join(POLL_SECONDS)
        if self._thread.is_alive():
            self._say(f"{self._kind}: not done within {CLOSE_SECONDS:g} s")

    def _work(self) -> None:
        known, is_over = -1, False
        while not is_over:
            is_over = self._over.is_set()
            try:
                news = sum(event["event"] in NEWS for event in self._ledger.events())
                if is_over or news != known:
                    known = news
                    self._say(self._act())
            except Exception as fault:  # noqa: BLE001 (a damaged file, a full disk, a server: no fault here ends a campaign)
                self._say(f"{type(fault).__name__}: {fault}")
            self._over.wait(self._rest)

    def _say(self, problem: str) -> None:
        """Tell of a problem, unless there was one already."""
        if problem and not self._problem:
            with contextlib.suppress(OSError):  # no room on the disk for that either
                self._ledger.event(self._kind, error=problem)
            self._warn(f"{problem}; the campaign goes on, and what is missing comes later")
        self._problem = problem

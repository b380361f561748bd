"""`sync` while a campaign runs: in one thread, so that a slow or dead server stops and slows nothing."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

from environments.plugins import Refused
from tasks.store.ledger import Ledger
from tasks.system import interrupt
from tasks.system.clock import clock
from tasks.tracking.connection import Store
from tasks.tracking.sync import sync

CLOSE_SECONDS = 300.0
"""How long a campaign waits at its end for a server that is slow."""
POLL_SECONDS = 0.1


class Background:
    """Calls `sync` at the beginning of a `with` block, whenever it is asked, and at the end by `close`."""

    def __init__(self, ledger: Ledger, store: Store | None, warn: Callable[[str], None]) -> None:
        """Args: store: None if tracking is off; warn: is told why records are not taken, once in an outage."""
        self._ledger, self._store, self._warn = ledger, store, warn
        self._states = SimpleQueue[str | None]()
        """States of the campaign that are to be recorded; None ends the thread."""
        self._problem = ""
        # Prefect's settings, which a log message needs, are variables of the context.
        context = contextvars.copy_context()
        self._thread = Thread(target=context.run, args=(self._work,), name="mlflow", daemon=True)

    def __enter__(self) -> Background:
        self._thread.start()
        self.ask()
        return self

    def __exit__(self, *_: object) -> None:
        self._states.put(None)

    def ask(self) -> None:
        """Have what is new recorded, soon."""
        self._states.put("running")

    def close(self, state: str) -> None:
        """Record the end of the campaign, and wait for that, a bounded time. What is missing then is left to `sync`."""
        self._states.put(state)
        self._states.put(None)
        until = clock() + CLOSE_SECONDS
        while self._thread.is_alive() and clock() < until:
            interrupt.check()
            self._thread.join(POLL_SECONDS)
        if self._thread.is_alive():
            self._say(f"MLflow at {self._store} took longer than {CLOSE_SECONDS:g} s")

    def _work(self) -> None:
        for state in iter(self._states.get, None):
            if state == "running" and not self._states.empty():
                continue  # what was asked for since says the same and more
            try:
                self._say(sync(self._ledger, self._store, state).problem)
            except (Refused, OSError) as fault:  # a damaged file, or a full disk: the campaign meets it too
                self._say(str(fault))

    def _say(self, problem: str) -> None:
        """Note a problem, unless there was one already."""
        if problem and not self._problem:
            self._ledger.event("tracking", error=problem)
            self._warn(f"{problem}; the campaign goes on, and what is missing is sent later")
        self._problem = problem

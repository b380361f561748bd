"""The sender: sends an outbox's trials to MLflow from a thread of its own, so that no slot waits for a server.

A trial is handed over once it is in the ledger. A kill before it is sent loses nothing: the outbox of the next process
finds what has no receipt.
"""

from __future__ import annotations

import contextvars
import queue
import threading
from types import TracebackType

from tasks.system import interrupt
from tasks.tracking.outbox import Outbox
from tasks.trial import Trial

LOOK_SECONDS = 0.1
"""Interval of checks whether the process was asked to end, while the last trials are sent."""


class Sender:
    """Sends trials in their order while a `with` block runs, which ends once all of them were tried.

    Until then the outbox belongs to the thread. A block that an exception ends, or a process that is asked to end
    meanwhile, leaves the rest to the next process.
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._trials: queue.SimpleQueue[Trial | None] = queue.SimpleQueue()
        self._fault: BaseException | None = None
        self._given_up = False

    def __enter__(self) -> Sender:
        # Prefect's settings, which a log message needs, are variables of the context.
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._send_all,), name="sender", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        self._trials.put(None)
        try:
            while kind is None and self._thread.is_alive():
                interrupt.check()  # a slow server may have many trials to take
                self._thread.join(LOOK_SECONDS)
        finally:
            self._given_up = True
            self._thread.join()
        if kind is None:
            self._raise_fault()

    def send(self, trial: Trial) -> None:
        """Hand over a trial. Raises what an earlier one met that is no fault of the server, such as a full disk."""
        self._raise_fault()
        self._trials.put(trial)

    def _send_all(self) -> None:
        while (trial := self._trials.get()) is not None and not self._given_up:
            try:
                self._outbox.add(trial)
                self._outbox.drain()
            except BaseException as fault:  # noqa: BLE001 (raised again in the campaign's thread)
                self._fault = fault
                return

    def _raise_fault(self) -> None:
        if self._fault is not None:
            raise self._fault

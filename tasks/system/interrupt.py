"""Ctrl-C, SIGTERM and SIGHUP, raised at safe points.

Python raises KeyboardInterrupt between any two instructions of the main thread. In a callback, as just after a fork,
the exception is printed and lost, and the campaign goes on although it was told to stop. So while a campaign runs, a
signal is only recorded, and `check` raises KeyboardInterrupt where the caller can clean up.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

SETTLE_SECONDS = 0.3
LOOK_SECONDS = 0.2
"""Interval of checks whether work that waits was asked to end."""

_signalled = False
"""No Event: a handler runs between any two instructions, also of a thread that holds the Event's lock."""
_asked = threading.Event()
"""Set while a block of `asked` runs."""
_own: contextvars.ContextVar[tuple[threading.Event, ...]] = contextvars.ContextVar("own", default=())
"""What else ends the work of a context."""


class StoppedForGood(KeyboardInterrupt):
    """A person has ended this process for good (`nightshift stop --now`): nothing is to resume it by itself."""


def check() -> None:
    """Raise KeyboardInterrupt if a signal has asked this process to end, or `also_by` says so of this work."""
    if _signalled or _asked.is_set() or any(event.is_set() for event in _own.get()):
        raise KeyboardInterrupt


def also_by(event: threading.Event) -> None:
    """Make `check` raise in this context, and in copies of it, also while an event is set."""
    _own.set((*_own.get(), event))


def wait(seconds: float) -> None:
    """Sleep, unless this process or this work is asked to end meanwhile; then raise KeyboardInterrupt."""
    until = time.monotonic() + seconds
    check()
    while (left := until - time.monotonic()) > 0:
        _asked.wait(min(left, LOOK_SECONDS))
        check()


def settle() -> None:
    """Wait for a signal that may have reached a program before this process. Raises KeyboardInterrupt if one has.

    Slurm signals every process of a job that it ends, so a program's end may be Slurm's doing. It would count as a
    crash, or as a training that ended by itself.
    """
    if "SLURM_JOB_ID" in os.environ:
        wait(SETTLE_SECONDS)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Record signals instead of raising them while the block runs, in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _note) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _forget()


def ask() -> None:
    """Make `check` raise from now on, as after a signal, until the block of `deferred` ends."""
    global _signalled
    _signalled = True


@contextlib.contextmanager
def asked() -> Iterator[None]:
    """Make every `check` raise while the block runs, as after a signal, so that other threads stop."""
    before = _asked.is_set()
    _asked.set()
    try:
        yield
    finally:
        if not before:
            _asked.clear()


def _forget() -> None:
    global _signalled
    _signalled = False


def _note(number: int, frame: FrameType | None) -> None:
    ask()

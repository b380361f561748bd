"""Ctrl-C, SIGTERM and SIGHUP, raised at safe points.

Python raises KeyboardInterrupt between any two instructions of the main thread. In a callback, as just after a fork,
the exception is printed and lost, and the campaign goes on although it was told to stop. So while a campaign runs, a
signal is only recorded, and `check` raises KeyboardInterrupt where the caller can clean up, in any thread.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SETTLE_SECONDS = 0.3
POLL_SECONDS = 0.2

_signalled = False
"""No Event: a handler runs between any two instructions, also of a thread that holds the Event's lock."""
_asked = threading.Event()


class StoppedForGood(KeyboardInterrupt):
    """A person has ended this process for good (`nightshift stop --now`): nothing is to resume it by itself."""


def check() -> None:
    """Raise KeyboardInterrupt if this process was asked to end."""
    if _signalled or _asked.is_set():
        raise KeyboardInterrupt


def wait(seconds: float) -> None:
    """Sleep, unless this process is asked to end meanwhile; then raise KeyboardInterrupt."""
    until = time.monotonic() + seconds
    check()
    while (left := until - time.monotonic()) > 0:
        _asked.wait(min(left, POLL_SECONDS))
        check()


def settle() -> None:
    """Wait for a signal that may have reached a program first: Slurm signals every process of a job that it ends."""
    if "SLURM_JOB_ID" in os.environ:
        wait(SETTLE_SECONDS)


def heard(*numbers: signal.Signals) -> list[signal.Signals]:
    """Those signals that this process is not to ignore, as nohup has it ignore SIGHUP."""
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Record signals instead of raising them while the block runs, in the main thread only."""
    global _signalled
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _note) for number in heard(*SIGNALS)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _signalled = False


@contextlib.contextmanager
def asked() -> Iterator[None]:
    """Make every `check` raise while the block runs, as after a signal, so that other threads stop."""
    _asked.set()
    try:
        yield
    finally:
        _asked.clear()


def _note(number: int, frame: FrameType | None) -> None:
    global _signalled
    _signalled = True

"""Signals that are noted while a campaign runs, and threads that are asked to stop."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from tasks.system import interrupt


def test_a_signal_is_raised_where_somebody_looks_and_forgotten_after_the_block() -> None:
    with interrupt.deferred():
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            interrupt.check()
    interrupt.check()


def test_a_signal_ends_a_wait_of_another_thread() -> None:
    ended = list[float]()

    def wait() -> None:
        with pytest.raises(KeyboardInterrupt):
            interrupt.wait(60)
        ended.append(time.monotonic())

    with interrupt.deferred():
        thread = threading.Thread(target=wait)
        thread.start()
        os.kill(os.getpid(), signal.SIGTERM)
        thread.join(30)
    assert ended

"""A keeper starts its program again, and ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tasks.system import interrupt
from tests.support.processes import wait_for


@contextmanager
def kept(log: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    keeper = [sys.executable, "-m", "tasks.system.keeper", *command]
    with log.open("ab") as output, subprocess.Popen(keeper, stdout=output, stderr=output) as process:
        yield process
        process.kill()


def lives(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().splitlines() if line.isdigit()]


def test_one_that_dies_is_started_again_and_ends_with_its_keeper(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with kept(log, "sh", "-c", "echo $$; sleep 300 & wait") as process:
        wait_for(lambda: lives(log))
        os.kill(lives(log)[0], signal.SIGKILL)
        wait_for(lambda: len(lives(log)) == 2)
        family = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        process.wait(timeout=30)
        assert psutil.wait_procs(family, timeout=5)[1] == []


def test_a_killed_keeper_takes_its_program_along(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with kept(log, sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(300)") as process:
        wait_for(lambda: lives(log))
        process.kill()
        wait_for(lambda: not psutil.pid_exists(lives(log)[0]))


# Signals that are noted while a campaign runs, and threads that are asked to stop.


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

"""Logs of programs that run on: moved aside at a start, and cut under a program that writes."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from tasks.system import log_rotation
from tasks.system.daemon import Daemon
from tests.support.processes import wait_for

COUNTS = "n=0; while :; do n=$((n+1)); echo line $n of this program; done"


def test_each_start_has_a_log_of_its_own_and_three_earlier_ones_stay(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, "worker")
    for number in range(6):
        daemon.launch(["sh", "-c", f"echo start {number}"], os.environ, "").wait()
    texts = {path.name: path.read_text() for path in tmp_path.glob("*.log*")}
    assert texts == {
        "worker.log": "start 5\n", "worker.log.1": "start 4\n", "worker.log.2": "start 3\n", "worker.log.3": "start 2\n"
    }  # fmt: skip


def test_a_program_that_writes_without_end_keeps_its_log_short_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_rotation, "LOG_BYTES", 20_000)
    daemon, over = Daemon(tmp_path, "worker"), threading.Event()

    def cut() -> None:
        while not over.wait(0.02):
            log_rotation.cut(daemon.log)

    cutting = threading.Thread(target=cut)
    # A child has the same open file.
    process = daemon.launch(["sh", "-c", f"({COUNTS}) & {COUNTS}"], os.environ, "")
    cutting.start()
    oldest = tmp_path / "worker.log.3"
    try:
        wait_for(oldest.exists)
        first = oldest.stat().st_ino, oldest.read_bytes()[:40]
        wait_for(lambda: (oldest.stat().st_ino, oldest.read_bytes()[:40]) != first)
    finally:
        daemon.end()
        process.wait(timeout=30)
        over.set()
        cutting.join()
    logs = [daemon.log, *(tmp_path / f"worker.log.{number}" for number in (1, 2, 3))]
    assert sorted(tmp_path.glob("*.log*")) == logs
    for log in logs:
        content = log.read_bytes()
        assert b"\0" not in content, "it writes at the end, not where it was before the cut"
        assert all(line.startswith("line ") for line in content.decode().splitlines()[1:])


def test_on_a_full_disk_a_long_log_is_emptied_without_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: Any, target: Path) -> None:
        target.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(shutil, "copyfile", full)
    monkeypatch.setattr(log_rotation, "LOG_BYTES", 10)
    log = tmp_path / "server.log"
    log.write_bytes(b"x" * 11)
    log_rotation.cut(log)
    assert [path.name for path in tmp_path.iterdir()] == ["server.log"] and not log.read_bytes()


def test_a_short_log_and_none_are_left_alone(tmp_path: Path) -> None:
    log_rotation.begin(tmp_path / "server.log")
    log_rotation.cut(tmp_path / "server.log")
    (tmp_path / "server.log").write_text("short\n")
    log_rotation.cut(tmp_path / "server.log")
    assert [path.name for path in tmp_path.iterdir()] == ["server.log"]

"""Foreign text is read in a process of its own: with limits, confined, and without a trace for the next one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tasks.sandbox import confinement, seccomp
from tasks.sandbox.program import CannotStart
from tasks.sandbox.reading.reader import Unreadable, read
from tasks.system import interrupt
from tests.support import readings

CONFINED = pytest.mark.skipif(
    not (confinement.landlock_version() and seccomp.is_known()), reason="this kernel has no Landlock"
)


def readers(of: int) -> list[psutil.Process]:
    """The processes below an engine that read."""
    found = []
    for each in psutil.Process(of).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # ended meanwhile
            if "reader_process" in " ".join(each.cmdline()):
                found.append(each)
    return found


def within(seconds: float, done: Callable[[], object]) -> bool:
    deadline = time.monotonic() + seconds
    while not done() and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(done())


def test_a_value_comes_back_as_it_was_given() -> None:
    value = {"a": [1, 2.5, None, True, "\u00e9\ud800\n"], "b": {}}
    assert read(readings.echo, value) == value
    assert len(read(readings.echo, "x" * 2**22)) == 2**22


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (readings.recurs, "nested too deeply"),
        (readings.hoards, "512 MiB of memory"),
        (readings.crashes, "crashes its parser (SIGSEGV)"),
        (readings.says_much, "makes a result of more than"),
        pytest.param(readings.spins, "3 s of processor time", marks=pytest.mark.slow),
    ],
)
def test_a_limit_that_is_met_is_the_reason(function: Callable[[], object], why: str) -> None:
    with pytest.raises(Unreadable) as met:
        read(function)
    assert why in met.value.about("the text") and not met.value.stated
    assert read(readings.echo, 1) == 1, "the next one is read"


def test_a_refusal_of_the_function_is_told_as_it_is_and_any_other_exception_with_its_kind() -> None:
    with pytest.raises(Unreadable) as refused:
        read(readings.refuses, "x")
    assert refused.value.stated and refused.value.about("the text") == "'x' is refused"
    with pytest.raises(Unreadable, match="KeyError: 'x'"):
        read(readings.breaks, "x")


def test_values_without_bound_are_refused_before_they_are_sent() -> None:
    with pytest.raises(Unreadable, match="16 MiB"):
        read(readings.echo, "x" * 2**25)


def test_no_reading_leaves_anything_for_the_next() -> None:
    assert [read(readings.remembers, text) for text in "ab"] == [["a"], ["b"]]


@CONFINED
def test_a_reader_reaches_nothing_of_its_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("")
    monkeypatch.setenv("SOME_API_KEY", "a-secret")
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = read(readings.surroundings, str(tmp_path / "secret"), server.getsockname()[1])
    assert found["reached"] == []
    assert not {"SOME_API_KEY", "HOME"} & set(found["variables"])
    assert found["descriptors"] <= 6 and found["heavy"] == []
    assert not Path(found["folder"]).exists(), "its folder goes with it"


def test_a_fault_of_the_machine_is_no_verdict_about_the_text() -> None:
    with pytest.raises(CannotStart, match="killed"):
        read(readings.is_killed)
    read_to_its_end = threading.Event()

    def kill_all() -> None:
        while not read_to_its_end.wait(0.05):
            for each in readers(os.getpid()):
                with suppress(psutil.NoSuchProcess):
                    each.kill()

    thread = threading.Thread(target=kill_all)
    thread.start()
    with pytest.raises(CannotStart, match="killed"):
        read(readings.sleeps)
    read_to_its_end.set()
    thread.join()


def test_many_threads_read_at_once() -> None:
    found: dict[int, int] = {}

    def one(number: int) -> None:
        found[number] = read(readings.echo, number)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: number for number in range(8)}


def test_a_signal_ends_the_wait_and_the_reader() -> None:
    read(readings.echo, 1)
    with interrupt.deferred():
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            read(readings.sleeps)
        timer.join()
    assert within(60, lambda: not readers(os.getpid()))


def test_a_killed_engine_leaves_no_reader(tmp_path: Path) -> None:
    program = (
        "from tasks.sandbox.reading.reader import read\nfrom tests.support import readings\nread(readings.sleeps)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program]) as engine:
        assert within(60, lambda: readers(engine.pid))
        all_of_them = psutil.Process(engine.pid).children(recursive=True)
        engine.kill()
    assert within(60, lambda: not any(each.is_running() for each in all_of_them))

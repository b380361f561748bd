"""Run one program that is not trusted: allow-listed environment, bounded output, and nothing of it left afterwards.

Isolation is `none` so far: a program runs as the engine's user and can read what that user can read. What holds
already: it sees none of the engine's environment variables, it cannot outlive its trial (children that detached
themselves included) or its engine, and its output cannot fill the disk.

    with Program(["python", "train.py"], cwd=workspace, log=trial / "log.txt", marker="night-1/0007") as program:
        while program.poll(0.05) is None:
            ...
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

import psutil

from tasks import interrupt

ISOLATION = "none"
"""The isolation level that programs run at, recorded with every campaign."""

LOG_LIMIT = 64 * 2**20
"""Bytes a program may print before it is stopped; what is kept of it is far less."""
LOG_KEPT_HEAD = 2**20
LOG_KEPT_TAIL = 2**16
TAIL_LINES = 12
MEMORY_SAMPLE_SECONDS = 0.5
"""Looking for all of its processes costs a few milliseconds of the core that it may be training on."""

MARKER = "NIGHTSHIFT_TRIAL"
"""An environment variable that every descendant of a program inherits: what it is found by when it detached."""
PASSED_ON = ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ")
"""Variables of the engine that a program may see. Everything else, keys above all, stays here."""
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


class OutputTooLong(Exception):
    """The program printed more than LOG_LIMIT bytes."""


class NotAProgram(Exception):
    """What the command line names is not there, or cannot be executed: the fault of whoever wrote the line."""


class CannotStart(Exception):
    """The machine could not start a process at all: a fault of infrastructure, not of the trial."""


def clock() -> float:
    """Seconds on a clock that no program can set and that runs on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def child_environment(home: Path, marker: str) -> dict[str, str]:
    """All that a program sees of the environment: an allow-list, with this interpreter first on PATH."""
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return passed | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"]),
        "HOME": str(home),
        "TMPDIR": str(home),
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        MARKER: marker,
    }


def find_program(name: str, cwd: Path, path: str) -> str:
    """The file to start: `python` is this interpreter, whatever else is on PATH; a file in `cwd` may go without ./.

    Raises:
        NotAProgram: there is none of that name.
    """
    if name in ("python", "python3"):
        return sys.executable
    found = shutil.which(name, path=path) or (str(cwd / name) if (cwd / name).is_file() else None)
    if found is None:
        raise NotAProgram(f"no program {name!r} in {cwd} or on {path}")
    return found


class Program:
    """One program, from its start to the end of the last of its processes.

    Its standard error, and its standard output unless `pipes` asks for a conversation, go to `log` (capped).

    Raises:
        NotAProgram: there is no such program, or it cannot be executed.
        CannotStart: the machine has no process, memory or file left for it.
    """

    def __init__(
        self, command: Sequence[str], *, cwd: Path, log: Path, marker: str, pipes: bool = False
    ) -> None:
        self.marker = marker
        self.peak_memory: int | None = None
        """Largest resident set of all of its processes together, in bytes, as sampled; None if it ended before."""
        self.started = clock()
        self._sampled = -math.inf
        self._scratch = log.with_name(log.name + ".tmp")
        environment = child_environment(self._scratch, marker)
        program = find_program(command[0], cwd, environment["PATH"])
        self._scratch.mkdir(parents=True, exist_ok=True)
        self._log = CappedLog(log)
        try:
            self.process = subprocess.Popen(
                [program, *command[1:]],
                cwd=cwd,
                env=environment,
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if pipes else subprocess.STDOUT,
                bufsize=0,
                start_new_session=True,
                preexec_fn=_die_with_the_engine if _libc else None,
            )
        except OSError as fault:
            self._log.close()
            if fault.errno in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE):
                raise CannotStart(f"cannot start {command[0]!r}: {fault.strerror}") from fault
            raise NotAProgram(f"cannot execute {command[0]!r}: {fault.strerror}") from fault
        noise = self.process.stderr if pipes else self.process.stdout
        assert noise is not None
        os.set_blocking(noise.fileno(), False)
        self._noise: IO[bytes] | None = noise
        self._selector = selectors.DefaultSelector()
        self._selector.register(noise, selectors.EVENT_READ)

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.kill()

    def poll(self, seconds: float) -> int | None:
        """Take in what it prints for at most `seconds`; its exit status once it has ended, else None.

        Raises:
            OutputTooLong: it printed more than LOG_LIMIT bytes.
            KeyboardInterrupt: somebody asked the engine to end.
        """
        interrupt.check()
        status = self._reap()
        if status is None:
            self._sample_memory()
            self._take_in(seconds)
            status = self._reap()
        if status is not None:
            self._take_in(0)
        return status

    def terminate(self, grace: float) -> bool:
        """Ask it to end (SIGTERM to its whole group); whether it did so within `grace` seconds."""
        self._signal_group(signal.SIGTERM)
        deadline = clock() + grace
        while clock() < deadline:
            if self.poll(0.02) is not None:
                return True
        return False

    def left_over(self, patience: float = 1.0) -> list[str]:
        """Command lines of processes that still run `patience` seconds after the program itself has ended.

        The patience is for helpers that notice the end by themselves, as multiprocessing's resource tracker does.
        """
        deadline = clock() + patience
        while others := [p for p in marked(self.marker) if p.pid != self.process.pid]:
            if clock() > deadline:
                return [_name(process) for process in others]
            time.sleep(0.02)
        return []

    def kill(self) -> None:
        """End everything of it: its group, its descendants, and whatever carries its marker. Safe to call again."""
        self._signal_group(signal.SIGKILL)
        end(self.marker)
        while self.process.returncode is None and self._reap() is None:
            time.sleep(0.005)
        self._take_in(0, limited=False)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
        self._noise = None
        self._selector.close()
        self._log.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def note(self, chunk: bytes) -> None:
        """Add to its log what it printed on a pipe that somebody else reads."""
        self._log.write(chunk)
        if self._log.written > LOG_LIMIT:
            raise OutputTooLong(f"printed more than {LOG_LIMIT // 2**20} MiB")

    def tail(self) -> str:
        """The last lines of what it printed, for the reason of a crash."""
        return self._log.tail(TAIL_LINES)

    def _reap(self) -> int | None:
        """Collect its exit status, if it has ended."""
        return self.process.poll()

    def _sample_memory(self) -> None:
        # Not ru_maxrss: that begins with what the engine itself held at the fork.
        if clock() - self._sampled < MEMORY_SAMPLE_SECONDS:
            return
        self._sampled = clock()
        try:
            program = psutil.Process(self.process.pid)
            held = sum(p.memory_info().rss for p in [program, *program.children(recursive=True)])
        except psutil.Error:  # one of them ended just now
            return
        self.peak_memory = max(self.peak_memory or 0, held)

    def _take_in(self, seconds: float, limited: bool = True) -> None:
        """Move output from the pipe to the log until `seconds` have passed, it is empty, or it is closed."""
        deadline = clock() + seconds
        while self._noise is not None and self._selector.select(max(deadline - clock(), 0)):
            chunk = self._noise.read(2**20)
            if not chunk:
                self._selector.unregister(self._noise)
                self._noise.close()
                self._noise = None
                break
            if limited:
                self.note(chunk)
            else:
                self._log.write(chunk)
            if clock() >= deadline:
                return
        if self._noise is None and seconds:
            time.sleep(min(0.005, max(deadline - clock(), 0)))

    def _signal_group(self, number: signal.Signals) -> None:
        if self._reap() is None:
            os.killpg(self.process.pid, number)


class CappedLog:
    """A log file that keeps the beginning and the end of what was printed, and counts the rest."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._tail = b""
        self.written = 0

    def write(self, chunk: bytes) -> None:
        room = max(LOG_KEPT_HEAD - self.written, 0)
        if room:
            self._file.write(chunk[:room])
            self._file.flush()
        self.written += len(chunk)
        self._tail = (self._tail + chunk)[-LOG_KEPT_TAIL:]

    def close(self) -> None:
        if self._file.closed:
            return
        beyond = self.written - LOG_KEPT_HEAD
        if beyond > 0:
            kept = self._tail[-beyond:]
            self._file.write(f"\n[... {beyond - len(kept)} bytes left out ...]\n".encode() + kept)
        self._file.close()

    def tail(self, lines: int) -> str:
        text = self._tail.decode(errors="replace")
        return "\n".join(line[:500] for line in text.splitlines()[-lines:])


def marked(marker: str) -> list[psutil.Process]:
    """Every live process whose marker is `marker`, or begins with it and a slash."""
    own = (marker, marker + "/")
    found = []
    for process in psutil.process_iter():
        try:
            value = process.environ().get(MARKER, "")
            if (value == own[0] or value.startswith(own[1])) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue  # ended meanwhile, or another user's: not one of ours
    return found


def end(marker: str, patience: float = 10.0) -> list[str]:
    """Kill every process that carries the marker; their command lines. New ones that they start are killed too.

    Raises:
        TimeoutError: some survive SIGKILL for `patience` seconds (they hang in the kernel).
    """
    killed: dict[int, str] = {}
    deadline = clock() + patience
    while survivors := marked(marker):
        if clock() > deadline:
            raise TimeoutError(f"processes {[p.pid for p in survivors]} of {marker} survive SIGKILL")
        for process in survivors:
            try:
                killed[process.pid] = _name(process)
                process.kill()
            except psutil.NoSuchProcess:
                continue
        time.sleep(0.005)
    return list(killed.values())


def _name(process: psutil.Process) -> str:
    """A process's command line, short enough for a reason."""
    try:
        return " ".join(process.cmdline())[:80] or process.name()
    except psutil.Error:
        return f"process {process.pid}"


def _die_with_the_engine() -> None:
    """Between fork and exec: have the kernel kill this process when the thread that started it is gone."""
    assert _libc is not None
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

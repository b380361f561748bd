"""A program that outlives the command that started it, such as a server: recorded in a file, ended by its pid.

After a reboot another process may have that pid, so its identity is recorded too. One that is not alive counts as
absent. Each runs under a keeper (tasks/system/keeper.py).
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from environments.plugins import Refused
from tasks.system import interrupt
from tasks.system.commands import identity
from tasks.system.files import write_atomic
from tasks.system.orphans import is_live

HOST = "127.0.0.1"
POLL_SECONDS = 0.2
START_SECONDS = 600.0
"""How long a server may take to answer; a busy machine needs minutes."""
END_SECONDS = 15.0
LAST_LINES = 8
TAKEN = re.compile(r"address already in use|port \d+ is already in use", re.IGNORECASE)
"""What a server says that found its port taken."""


class PortTaken(Refused):
    """Another program took the port before the server did."""


@dataclass(frozen=True)
class Note:
    """The record of a program that was started."""

    url: str
    """Address of a server; of a worker, that of its server."""
    pid: int
    """Of its keeper."""
    identity: str = ""
    """Tells its process from every other that ever had its pid."""
    stays: bool = False
    """Whether it runs on when its last user has left: `nightshift up` started it."""

    @property
    def is_alive(self) -> bool:
        with contextlib.suppress(psutil.NoSuchProcess, OSError):
            return identity(self.pid) == self.identity and is_live(psutil.Process(self.pid))
        return False


class Daemon:
    """One such program: its record, its log, its start and its end."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self._note = directory / f"{name}.json"
        self._ports = directory / "ports.json"

    def living(self) -> Note | None:
        """The record, if its process runs."""
        note = self.noted()
        return note if note and note.is_alive else None

    def noted(self) -> Note | None:
        """The record, whether its process runs or not."""
        stored = _read(self._note)  # an earlier version noted more
        return Note(**{name: stored[name] for name in Note.__annotations__ if name in stored}) if stored else None

    def launch(
        self, command: list[str], environment: Mapping[str, str], url: str, *, stays: bool = False
    ) -> subprocess.Popen[bytes]:
        """Start it in a new session with a new log, and record it at once; the log before that becomes NAME.log.1."""
        if self.log.exists():
            self.log.replace(f"{self.log}.1")
        with self.log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tasks.system.keeper", *command], cwd=self.log.parent.parent,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=dict(environment), start_new_session=True,
            )  # fmt: skip
        self.write(Note(url, process.pid, identity(process.pid), stays))
        return process

    def wait_until(self, is_up: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
        """Return once it is up; one that does not come up is ended, as it is when this is interrupted.

        Raises PortTaken if its log says so, and Refused if it ended, with the last lines of its log, or took too long.
        """
        deadline = time.monotonic() + START_SECONDS
        try:
            while not is_up():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise self._refused(process.poll())
                interrupt.wait(POLL_SECONDS)
        except BaseException:
            self.end()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS)
            raise
        process.send_signal(signal.SIGUSR1)  # from now on its keeper starts it again
        process.returncode = 0  # it is ended by its pid; this object need not wait for it

    def start(
        self, command: list[str], environment: Mapping[str, str], port: int, url: str, *, stays: bool = False
    ) -> Note:
        """Start a server, and wait until it listens on its port and is healthy. Raises as `wait_until`."""
        process = self.launch(command, environment, url, stays=stays)
        self.wait_until(lambda: serves(process.pid, port, url), process)
        note = self.living()
        assert note is not None, "it has just answered"
        return note

    def _refused(self, status: int | None) -> Refused:
        if status is None:
            return Refused(f"{self.name} did not answer within {START_SECONDS:.0f} s; see {self.log}")
        log = self.log.read_text(errors="replace")
        lines = "\n".join(log.splitlines()[-LAST_LINES:])
        kind = PortTaken if TAKEN.search(log) else Refused
        return kind(f"{self.name} ended with status {status} while starting: {self.log}, which ends:\n{lines}")

    def write(self, note: Note) -> None:
        write_atomic(self._note, json.dumps(asdict(note)) + "\n")

    def keep(self, stays: bool = True) -> None:
        """Let it run on when its last user has left, or no longer."""
        if note := self.noted():
            self.write(replace(note, stays=stays))

    def end(self) -> bool:
        """End it and its child processes, first by SIGTERM; whether it was running."""
        note = self.living()
        if note:
            family: list[psutil.Process] = []
            with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
                family = [psutil.Process(note.pid)]
                family += family[0].children(recursive=True)
                family[0].terminate()
            deadline = time.monotonic() + END_SECONDS
            while any(map(is_live, family)) and time.monotonic() < deadline:
                time.sleep(0.05)
            for process in filter(is_live, family):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        self._note.unlink(missing_ok=True)
        return note is not None

    def port(self, first: int, stays: bool) -> int:
        """The port to listen on: the one that it had before, else the first free one from `first` on. One that stays
        keeps its port for good, since bookmarks name it: Refused if another program has it, or none is free.
        """
        before = _read(self._ports).get(self.name)
        if before and _is_free(before):
            return int(before)
        if before and stays:
            raise Refused(
                f"port {before}, where {self.name} is to be found, is held by another program: end that, or remove "
                f"{self._ports} to have another port chosen"
            )
        return free_port(first)

    def remember(self, port: int) -> None:
        write_atomic(self._ports, json.dumps({**_read(self._ports), self.name: port}) + "\n")

    def is_own(self, url: str) -> bool:
        """Whether an address is where this program is, or was when it last ran."""
        note, parts = self.noted(), urlsplit(url)
        ports = {_read(self._ports).get(self.name), urlsplit(note.url).port if note else None}
        return parts.hostname in (HOST, "localhost") and parts.port in ports - {None}


def _read(file: Path) -> dict[str, Any]:
    """The JSON object in a file; empty without one."""
    with contextlib.suppress(FileNotFoundError, ValueError, TypeError):
        return dict(json.loads(file.read_text()))
    return {}


def page_of(home: Path, name: str) -> str | None:
    """Address of one of a home's programs, if it runs."""
    note = Daemon(home / ".prefect", name).living()
    return note.url if note else None


def running_at(url: str, home: Path, name: str) -> Note | None:
    """The record of one of a home's programs, if it runs at this address."""
    note = Daemon(home / ".prefect", name).living()
    return note if note and url.replace("//localhost:", f"//{HOST}:") == note.url else None


def address(port: int, path: str = "") -> str:
    return f"http://{HOST}:{port}{path}"


def answers(url: str, seconds: float = 5.0) -> bool:
    """Whether a server's health check succeeds within `seconds`."""
    import httpx

    try:
        return httpx.get(f"{url}/health", timeout=seconds).status_code == 200
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError):
        return False


def serves(pid: int, port: int, url: str) -> bool:
    """Whether a process or one of its children listens on a port and is healthy there."""
    with contextlib.suppress(psutil.Error):  # one of them ended just now
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        connections = [connection for process in family for connection in process.net_connections("tcp")]
        is_ours = any(each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in connections)
        return is_ours and answers(url, 1.0)
    return False


def free_port(first: int) -> int:
    """The first free port of the hundred from `first` on."""
    for port in filter(_is_free, range(first, first + 100)):
        return port
    raise Refused(f"no free port in {first}..{first + 99} on {HOST}: end the programs that listen there")


def _is_free(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((HOST, port))
        return True
    return False

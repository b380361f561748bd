"""A program that outlives the command that started it, such as a server: recorded in a file, ended by its pid.

The record holds the pid and the process's identity, since after a reboot another process may have the same pid. A
recorded program that is not alive counts as absent.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import psutil

from environments.plugins import Refused
from tasks.system import log_rotation
from tasks.system.commands import identity
from tasks.system.files import write_atomic
from tasks.system.login import split_login

HOST = "127.0.0.1"
POLL_SECONDS = 0.2
START_SECONDS = 600.0
"""How long a server may take to answer where nobody looks on; a busy machine needs minutes."""
START_ATTEMPTS = 3
END_SECONDS = 15.0
LAST_LINES = 8
TAKEN = re.compile(r"address already in use", re.IGNORECASE)
"""What a server says that found its port taken."""


@dataclass(frozen=True)
class Note:
    """The record of a program that was started."""

    url: str
    """Address of a server; of a worker, that of its server."""
    pid: int
    started: float
    """Unix time, in seconds; for display."""
    identity: str = ""
    """Tells its process from every other that ever had its pid."""
    auth: bool = False
    """Whether it asks for a login."""
    stays: bool = False
    """Whether it runs on when its last user has left: `nightshift up` started it."""
    database: str = ""
    """Kind of its database, where that is not a file of its own; never the address."""

    @property
    def is_alive(self) -> bool:
        with contextlib.suppress(psutil.NoSuchProcess, OSError):
            return identity(self.pid) == self.identity and _runs(psutil.Process(self.pid))
        return False


class Daemon:
    """One such program: its record, its log, its start and its end."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self._note = directory / f"{name}.json"

    def living(self) -> Note | None:
        """The record, if its process runs."""
        note = self.noted()
        return note if note and note.is_alive else None

    def died(self) -> Note | None:
        """The record, if its process died without being ended here: killed, or the machine went down."""
        note = self.noted()
        return note if note and not note.is_alive else None

    def launch(
        self,
        command: list[str],
        environment: Mapping[str, str],
        url: str,
        *,
        auth: bool = False,
        stays: bool = False,
        database: str = "",
    ) -> subprocess.Popen[bytes]:
        """Start it in a new session with a new log, and record it at once."""
        log_rotation.begin(self.log)
        with self.log.open("ab") as output:
            process = subprocess.Popen(
                command,
                cwd=self.log.parent.parent,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(environment),
                start_new_session=True,
            )
        self.write(Note(url, process.pid, time.time(), identity(process.pid), auth, stays, database))
        return process

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
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):  # it has just ended
                family = [psutil.Process(note.pid)]
                family += family[0].children(recursive=True)
                os.killpg(note.pid, signal.SIGTERM)
            deadline = time.monotonic() + END_SECONDS
            while any(map(_runs, family)) and time.monotonic() < deadline:
                time.sleep(0.05)
            for process in filter(_runs, family):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        self._note.unlink(missing_ok=True)
        return note is not None

    def give_up(self, process: subprocess.Popen[bytes]) -> int | None:
        """End a start that came to nothing; the exit status where the process had ended by itself."""
        status = process.poll()
        self.end()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)
        return status

    def last_words(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LAST_LINES:])

    def came_to_nothing(self, status: int | None) -> Refused:
        """That it ended while starting, with the last lines of its log."""
        lines = self.last_words()
        said = f", which ends:\n{lines}" if lines else ", which is empty"
        return Refused(f"{self.name} ended with status {status} while starting; its log is {self.log}{said}")

    def noted(self) -> Note | None:
        """The record, whether its process runs or not."""
        try:
            noted = json.loads(self._note.read_text())
            return Note(**{field.name: noted[field.name] for field in fields(Note) if field.name in noted})
        except (FileNotFoundError, ValueError, TypeError):
            return None


def _runs(process: psutil.Process) -> bool:
    """Whether a process has not ended; a zombie has."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def page_of(home: Path, name: str) -> str | None:
    """Address of one of a home's programs, if it runs."""
    note = Daemon(home / ".prefect", name).living()
    return note.url if note else None


def running_at(url: str, home: Path, name: str) -> Note | None:
    """The record of one of a home's programs, if it runs at this address."""
    note = Daemon(home / ".prefect", name).living()
    return note if note and url.replace("//localhost:", f"//{HOST}:") == note.url else None


def serve(
    daemon: Daemon, first_port: int, launch: Callable[[int], subprocess.Popen[bytes]], path: str = "",
    login: str | None = None, still: Callable[[str], None] | None = None,
) -> str:  # fmt: skip
    """Start a server on the first free port and wait until it answers; its address. Refused when it does not come up.

    If another program takes the port meanwhile, the next port is tried; that program does not see the login.

    Args:
        still: Told the address at each look while the server starts, and as long as its process lives; what it raises
            ends the server. None: nobody looks on, and it gets START_SECONDS.
    """
    for _ in range(START_ATTEMPTS):
        port = free_port(first_port)
        url = address(port, path)
        process = launch(port)
        try:
            comes_up = _comes_up(process, port, url, login, still)
        except BaseException:  # interrupted: nothing would end it later
            daemon.give_up(process)
            raise
        if comes_up:
            process.returncode = 0  # it is ended by its pid; this object need not wait for it
            return url
        status = daemon.give_up(process)
        if status is None:
            raise Refused(f"{daemon.name} did not answer within {START_SECONDS:.0f} s; see {daemon.log}")
        # Whoever took the port may have left it again; then only the log tells.
        if _is_free(port) and not TAKEN.search(daemon.last_words()):
            raise daemon.came_to_nothing(status)
    raise Refused(f"other programs took every port while {daemon.name} was starting: try again")


def address(port: int, path: str = "") -> str:
    return f"http://{HOST}:{port}{path}"


def is_encrypted(url: str) -> bool:
    """Whether there are certificates to verify; to load the authorities that are trusted costs each client 25 ms."""
    return not url.startswith("http://")


def answers(url: str, seconds: float = 5.0, login: str | None = None) -> bool:
    """Whether a server's health check succeeds within `seconds`."""
    import httpx

    try:
        answer = httpx.get(f"{url}/health", auth=split_login(login), timeout=seconds, verify=is_encrypted(url))
        return answer.status_code == 200
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError):
        return False


def free_port(first: int) -> int:
    """The first free port of the hundred from `first` on."""
    for port in range(first, first + 100):
        if _is_free(port):
            return port
    raise Refused(f"no free port in {first}..{first + 99} on {HOST}: end the programs that listen there")


def _comes_up(
    process: subprocess.Popen[bytes], port: int, url: str, login: str | None, still: Callable[[str], None] | None
) -> bool:
    """Wait for the server's own answer; False if it ended, or took too long where nobody looks on."""
    deadline = math.inf if still else time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        # Cheapest first: whose port it is takes a look at every descriptor of the family.
        if _is_answered(port) and _listens(process.pid, port) and answers(url, 1.0, login):
            return True
        if still:
            still(url)
        time.sleep(POLL_SECONDS)
    return False


def _is_answered(port: int) -> bool:
    """Whether anybody listens on a port."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def _listens(pid: int, port: int) -> bool:
    """Whether a process or one of its children listens on a port."""
    with contextlib.suppress(psutil.Error):  # one of them ended just now
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        connections = [connection for process in family for connection in process.net_connections("tcp")]
        return any(each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in connections)
    return False


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return True
    return False

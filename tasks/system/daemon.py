"""A program that outlives the command that started it, such as a server: noted in a file, ended by its number.

The note holds the process's number and when it began, since after a reboot the same number is somebody else's.
What is noted and not alive counts as not there.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import httpx
import psutil

from environments.plugins import Refused

HOST = "127.0.0.1"
START_SECONDS = 120.0
START_ATTEMPTS = 3
END_SECONDS = 15.0
BOOT = Path("/proc/sys/kernel/random/boot_id")
START_TICK = 19
"""Where /proc/PID/stat says when a process began, counted after its name."""
PORTS = 100
"""How many are tried from the first on."""
LOG_BYTES = 10 * 2**20
"""Beyond this a log is set aside as <name>.log.1, over the one before."""


@dataclass(frozen=True)
class Note:
    """What is noted of a program that was started."""

    url: str
    """Where it answers; of a worker, whom it asks."""
    pid: int
    started: float
    """Unix time, in seconds: for people."""
    identity: str = ""
    """What tells its process from every other one that ever had its number."""
    auth: bool = False
    """Whether it asks who we are."""
    stays: bool = False
    """Whether it goes on when the last that used it has left: `nightshift up` started it."""
    database: str = ""
    """What it keeps its data in, where that is not a file of its own: the kind alone, never the address."""

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs."""
        try:
            process = psutil.Process(self.pid)
            return identity(self.pid) == self.identity and _runs(process)
        except (psutil.NoSuchProcess, OSError):
            return False


def identity(pid: int) -> str:
    """The boot that a process lives in, and the tick at which it began: both stay when somebody sets the clock.

    Raises:
        OSError, psutil.NoSuchProcess: there is no such process.
    """
    if not BOOT.exists():  # not Linux: the clock will have to do
        return f"{psutil.Process(pid).create_time():.1f}"
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return f"{BOOT.read_text().strip()} {after_name[START_TICK]}"


class Daemon:
    """One such program: its note, its log, and how to start and to end it."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self._note = directory / f"{name}.json"

    def living(self) -> Note | None:
        """The note, if its process runs."""
        note = self._read()
        return note if note and note.is_alive else None

    def died(self) -> Note | None:
        """The note, if its process is gone without having been ended: killed, or the machine went down."""
        note = self._read()
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
        user: str | None = None,
        groups: tuple[int, ...] = (),
    ) -> subprocess.Popen[bytes]:
        """Start it in a session of its own, and note it before it does anything.

        Args:
            user: Whom it runs as, if that is somebody else; with further `groups` that it belongs to.
        """
        self.trim()
        with self.log.open("ab") as output:
            process = subprocess.Popen(
                command,
                cwd=self.log.parent.parent,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(environment),
                start_new_session=True,
                user=user,
                group=None if user is None else pwd.getpwnam(user).pw_gid,
                extra_groups=None if user is None else groups,
            )
        self.write(Note(url, process.pid, time.time(), identity(process.pid), auth, stays, database))
        return process

    def trim(self) -> None:
        """Set its log aside once it is long. It may be running: it appends, so what is cut off is not missed."""
        if self.log.exists() and self.log.stat().st_size > LOG_BYTES:
            shutil.copyfile(self.log, self.log.with_name(f"{self.log.name}.1"))
            os.truncate(self.log, 0)

    def write(self, note: Note) -> None:
        temporary = self._note.with_name(f"{self._note.name}.{secrets.token_hex(4)}")
        temporary.write_text(json.dumps(asdict(note)) + "\n")
        temporary.replace(self._note)

    def keep(self, stays: bool = True) -> None:
        """Have it go on when its last user has left, or no longer."""
        if note := self._read():
            self.write(replace(note, stays=stays))

    def end(self, number: signal.Signals = signal.SIGTERM) -> bool:
        """End it with all of its processes, asked by that signal first; whether it was running."""
        note = self.living()
        if note:
            family: list[psutil.Process] = []
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):  # it ends just now
                family = [psutil.Process(note.pid)]
                family += family[0].children(recursive=True)
                os.killpg(note.pid, number)
            deadline = time.monotonic() + END_SECONDS
            while any(map(_runs, family)) and time.monotonic() < deadline:
                time.sleep(0.05)
            for process in filter(_runs, family):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        self._note.unlink(missing_ok=True)
        return note is not None

    def last_words(self, lines: int = 5) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _read(self) -> Note | None:
        try:
            noted = json.loads(self._note.read_text())
            return Note(**{field.name: noted[field.name] for field in fields(Note) if field.name in noted})
        except (FileNotFoundError, ValueError, TypeError):
            return None


def _runs(process: psutil.Process) -> bool:
    """Whether a process has not ended; one that nobody has asked for its status yet has."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def page_of(home: Path, name: str) -> str | None:
    """Where one of the programs of a home answers, if it runs."""
    note = Daemon(home / ".prefect", name).living()
    return note.url if note else None


def serve(
    daemon: Daemon,
    first_port: int,
    launch: Callable[[int], subprocess.Popen[bytes]],
    path: str = "",
) -> str:
    """Start a server on the first free port and wait until it answers; its address.

    Another may take the port while ours is starting, and would answer in its place: then on the next.

    Raises:
        Refused: it did not come up.
    """
    for _ in range(START_ATTEMPTS):
        port = free_port(first_port)
        url = address(port, path)
        process = launch(port)
        try:
            comes_up = _comes_up(process, port, url)
        except BaseException:  # interrupted: nobody would end it later
            daemon.end()
            raise
        if comes_up:
            process.returncode = 0  # whoever ends it does so by its number; this object need not wait for it
            return url
        status = process.poll()
        daemon.end()
        if status is None:
            raise Refused(f"{daemon.name} did not answer within {START_SECONDS:.0f} s; see {daemon.log}")
        if _is_free(port):
            raise Refused(f"{daemon.name} ended with status {status} while starting; see {daemon.log}")
    raise Refused(f"others took every port while {daemon.name} was starting: try again")


def address(port: int, path: str = "") -> str:
    return f"http://{HOST}:{port}{path}"


def answers(url: str, seconds: float = 5.0) -> bool:
    """Whether a server says within `seconds` that it is well."""
    try:
        return httpx.get(f"{url}/health", timeout=seconds).status_code == 200
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError):
        return False


def free_port(first: int) -> int:
    """The first port from `first` on that nobody listens on."""
    for port in range(first, first + PORTS):
        if _is_free(port):
            return port
    raise Refused(f"no free port in {first}..{first + PORTS - 1} on {HOST}: end what listens there")


def _comes_up(process: subprocess.Popen[bytes], port: int, url: str) -> bool:
    """Wait until the server itself answers; whether it did, before it ended or START_SECONDS had passed."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if answers(url, seconds=1.0) and _listens(process.pid, port):
            return True
        time.sleep(0.2)
    return False


def _listens(pid: int, port: int) -> bool:
    """Whether a process, or one below it, is who listens on a port."""
    try:
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        sockets = [one for process in family for one in process.net_connections("tcp")]
    except psutil.Error:  # one of them ended just now
        return False
    return any(one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in sockets)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True

"""A program that outlives the command that started it, such as a server: recorded in a file, ended by its pid.

After a reboot another process may have that pid, so its identity is recorded too. The record stays when the program has
ended, since it says where the program is to be found again. Each runs under a keeper (tasks/system/keeper.py).
"""

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from pydantic import BaseModel

from environments.plugins import Refused
from tasks.system import interrupt, keeper
from tasks.system.files import write_atomic
from tasks.system.home import login_file
from tasks.system.orphans import identity, is_alive, is_live

HOST = "127.0.0.1"
POLL_SECONDS = 0.2
START_SECONDS = 600.0
"""How long a server may take to answer; a busy machine needs minutes."""
END_SECONDS = 15.0
PATIENCE_SECONDS = 20.0
"""How long a server may be silent, as it is when busy, before it counts as stuck."""
LAST_LINES = 8


class Note(BaseModel, frozen=True):
    """The record of a program that was started."""

    url: str
    """Address of a server; of a worker, that of its server."""
    pid: int
    """Of its keeper."""
    identity: str
    """Tells its process from every other that ever had its pid."""


class Daemon:
    """One such program: its record, its log, its start and its end."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self._file = directory / f"{name}.json"

    def noted(self) -> Note | None:
        """The record, whether its process runs or not."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            return Note.model_validate_json(self._file.read_bytes())
        return None

    def living(self) -> Note | None:
        """The record, if its process runs."""
        note = self.noted()
        return note if note and is_alive(f"{note.pid} {note.identity}") else None

    def write(self, note: Note) -> None:
        write_atomic(self._file, note.model_dump_json())

    def serve(self, first: int, path: str, launch: Callable[[int], tuple[list[str], Mapping[str, str]]]) -> str:
        """Address of this server: of the one that runs and answers, else of one that is started. Refused as in `start`.

        Args:
            first: The port that it listens on unless it had one before; the next free one where that is taken.
            path: Of its API.
            launch: Its command and its variables, by the port.
        """
        note = self.living()
        if note and answers(note.url, PATIENCE_SECONDS):
            return note.url
        self.end()
        port = self.port(first)
        url = f"http://{HOST}:{port}{path}"
        try:
            self.start(*launch(port), url)
        except Refused:
            if is_free(port):
                raise
            return self.serve(first, path, launch)  # another home that started at the same moment was faster
        return url

    def start(self, command: list[str], environment: Mapping[str, str], url: str, is_server: bool = True) -> None:
        """Start it in a new session with a new log, and wait until it is up; the log before becomes NAME.log.1.

        Args:
            is_server: Whether it is up once it listens on the port of its address, and is healthy there.

        Raises:
            Refused: it ended, with the last lines of its log, or took too long. It is ended then.
        """
        if self.log.exists():
            self.log.replace(f"{self.log}.1")
        with self.log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", keeper.__name__, *command], cwd=self.log.parent.parent,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=dict(environment), start_new_session=True,
            )  # fmt: skip
        self.write(Note(url=url, pid=process.pid, identity=identity(process.pid)))
        deadline = time.monotonic() + START_SECONDS
        try:
            while not _is_up(process.pid, url if is_server else ""):
                is_gone = process.poll() is not None  # the keeper itself, as when memory is short
                said, ended, _ = self.log.read_text(errors="replace").partition(keeper.ENDED)
                if ended or is_gone or time.monotonic() > deadline:
                    late = f"did not answer within {START_SECONDS:.0f} s"
                    how = "ended while starting" if ended or is_gone else late
                    lines = "\n".join(said.splitlines()[-LAST_LINES:])
                    raise Refused(f"{self.name} {how}: {self.log}, which ends:\n{lines}")
                interrupt.wait(POLL_SECONDS)
        except BaseException:
            self.end()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS)
            raise
        process.returncode = 0  # it is ended by its pid; this object need not wait for it

    def end(self) -> bool:
        """End it and its child processes, first by SIGTERM; whether it was running."""
        note = self.living()
        if note is None:
            return False
        family: list[psutil.Process] = []
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
            family = [psutil.Process(note.pid)]
            family += family[0].children(recursive=True)
            family[0].terminate()
        deadline = time.monotonic() + END_SECONDS
        while any(map(is_live, family)) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        for survivor in filter(is_live, family):  # a zombie that nobody collects is over
            with contextlib.suppress(psutil.NoSuchProcess):
                survivor.kill()
        return True

    def port(self, first: int) -> int:
        """The port to listen on: the one that it had before, which bookmarks name, else the first free of a hundred."""
        note = self.noted()
        before = urlsplit(note.url).port if note else None
        ports: list[int] = [before or first, *range(first, first + 100)]
        for port in filter(is_free, ports):
            return port
        raise Refused(f"no free port in {first}..{first + 99} on {HOST}: end the programs that listen there")

    def is_own(self, url: str) -> bool:
        """Whether an address is where this program is, or was when it last ran."""
        note = self.noted()
        here = urlsplit(url).netloc.replace("localhost", HOST)
        return note is not None and here == urlsplit(note.url).netloc


def own_servers(home: Path) -> list[dict[str, str]]:
    """Our own servers that run now: {name, url, login}. `url` is that of the API, in MLflow's case of its pages too;
    `login` is the private file with their `user:password`.
    """
    named = {"prefect": "server", "mlflow": "mlflow"}
    notes = {name: Daemon(home / ".prefect", program).living() for name, program in named.items()}
    return [{"name": name, "url": note.url, "login": str(login_file(home))} for name, note in notes.items() if note]


def answers(url: str, seconds: float) -> bool:
    """Whether a server's health check succeeds within `seconds`."""
    import httpx

    try:
        return httpx.get(f"{url}/health", timeout=seconds).status_code == 200
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError):
        return False


def _is_up(pid: int, url: str) -> bool:
    """Whether a keeper has started its program; of a server at `url`, whether that listens there, and is healthy."""
    with contextlib.suppress(psutil.Error):  # one of them ended just now
        children = psutil.Process(pid).children(recursive=True)
        connections = [connection for process in children for connection in process.net_connections("tcp")]
        ports = [each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN]
        return bool(children) and (not url or (urlsplit(url).port in ports and answers(url, 1.0)))
    return False


def is_free(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((HOST, port))
        return True
    return False

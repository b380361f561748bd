"""Which Prefect server a command talks to, and the one of our own when there is none.

In order: the address stated on the command line; PREFECT_API_URL; the live one that runs/.prefect/server.json names;
one of our own on the first free port, for as long as somebody here uses it. A profile in the user's home is never
read: `settle_in` gives Prefect a home of ours, and has to be called before Prefect is imported.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import httpx
import psutil

from environments.plugins import Refused

FIRST_PORT = 4200
START_SECONDS = 120.0
START_ATTEMPTS = 3
ROWS_SECONDS = 60.0
QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
}


def settle_in(home: Path) -> None:
    """Give Prefect its home inside ours, without analytics and without a profile."""
    if "prefect" in sys.modules:
        raise RuntimeError("settle_in() comes before the first import of prefect: it reads its settings then")
    directory = home / ".prefect"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.environ.update(QUIET, PREFECT_HOME=str(directory))
    os.environ.pop("PREFECT_PROFILE", None)
    # The terminal has lines of its own, and the server has every log.
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")


def stated_server(stated: str | None) -> str | None:
    """The API that the command line or PREFECT_API_URL names, if one does.

    Raises:
        Refused: nothing answers there.
    """
    where = "--server" if stated else "PREFECT_API_URL"
    url = stated or os.environ.get("PREFECT_API_URL")
    if not url:
        return None
    if not answers(url.rstrip("/")):
        raise Refused(
            f"{where} = {url}: no Prefect server answers there. Start it, or leave it out to use our own"
        )
    return url.rstrip("/")


@contextlib.contextmanager
def prefect_server(stated: str | None, home: Path) -> Iterator[str]:
    """Have Prefect in this process talk to the stated API, or else to one of our own; its address.

    Raises:
        Refused: our own server did not start.
    """
    with contextlib.ExitStack() as stack:
        url = stated or stack.enter_context(_shared(home / ".prefect"))
        stack.enter_context(_used(url))
        yield url


@contextlib.contextmanager
def _used(url: str) -> Iterator[None]:
    """Have Prefect in this process talk to `url`."""
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with temporary_settings({PREFECT_API_URL: url}):
        yield


def answers(url: str, seconds: float = 5.0) -> bool:
    """Whether a Prefect API answers at `url` within `seconds`."""
    try:
        return httpx.get(f"{url}/health", timeout=seconds).status_code == 200
    except httpx.HTTPError:
        return False


def drain() -> None:
    """Send what this process still has to tell the server: logs, and the events that task runs are stored from."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    EventsWorker.drain_all(timeout=30)
    APILogWorker.drain_all(timeout=10)


def wait_for_rows(url: str, flow_run_id: str) -> bool:
    """Wait until the server has stored every task run of a flow run; whether it did within ROWS_SECONDS.

    Task runs arrive as events, some time after they have happened; a server that is stopped before loses them. They
    are all there when none is under way and no more have come for a moment.
    """
    deadline, before, since = time.monotonic() + ROWS_SECONDS, -1, time.monotonic()
    chosen = {"flow_runs": {"id": {"any_": [flow_run_id]}}}
    open_states = {"task_runs": {"state": {"type": {"any_": ["PENDING", "RUNNING", "SCHEDULED"]}}}}
    while time.monotonic() < deadline:
        try:
            count = httpx.post(f"{url}/task_runs/count", json=chosen, timeout=10).json()
            under_way = httpx.post(f"{url}/task_runs/count", json=chosen | open_states, timeout=10).json()
        except httpx.HTTPError:
            count, under_way = -1, -1
        if count != before or under_way:
            before, since = count, time.monotonic()
        elif time.monotonic() - since > 1.0:
            return True
        time.sleep(0.2)
    return False


@contextlib.contextmanager
def _shared(directory: Path) -> Iterator[str]:
    """Our own server: started by the first that needs it, stopped by the last that leaves."""
    with (directory / "users.lock").open("a") as users:
        with _exclusively(directory / "start.lock"):
            url = _living(directory) or _start(directory)
            fcntl.flock(users, fcntl.LOCK_SH)
        try:
            yield url
        finally:
            # BlockingIOError: somebody else still uses it
            with _exclusively(directory / "start.lock"), contextlib.suppress(BlockingIOError):
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _stop(directory)


@contextlib.contextmanager
def _exclusively(path: Path) -> Iterator[IO[str]]:
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


def _living(directory: Path) -> str | None:
    """The address in server.json if its process lives and answers; one that lives but is mute is ended."""
    try:
        noted = json.loads((directory / "server.json").read_text())
    except (FileNotFoundError, ValueError):
        return None
    if not _is_ours(noted):
        return None
    if answers(noted["url"]):
        return str(noted["url"])
    _stop(directory)
    return None


def _is_ours(noted: dict[str, object]) -> bool:
    """Whether the noted process still runs: the same number may meanwhile be somebody else's."""
    try:
        return abs(psutil.Process(int(str(noted["pid"]))).create_time() - float(str(noted["started"]))) < 1.0
    except (psutil.NoSuchProcess, KeyError, ValueError):
        return False


def _start(directory: Path) -> str:
    """Start a server on the first free port and wait until it answers.

    Another may take the port while ours is starting, and would answer in its place: then on the next.
    """
    log = directory / "server.log"
    for _ in range(START_ATTEMPTS):
        port = free_port()
        server = _launch(directory, log, port)
        if _comes_up(server, port):
            server.returncode = 0  # whoever is last ends it by its number; this object need not wait for it
            return _address(port)
        status = server.poll()
        _stop(directory)
        if status is None:
            raise Refused(f"the Prefect server did not answer within {START_SECONDS:.0f} s; see {log}")
        if _is_free(port):
            raise Refused(f"the Prefect server ended with status {status} while starting; see {log}")
    raise Refused("others took every port while the Prefect server was starting: state one with --server")


def _launch(directory: Path, log: Path, port: int) -> subprocess.Popen[bytes]:
    """Start a server, and note it in server.json before it does anything."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_API")}
    # Left out, its pages ask port 4200, whatever port they come from.
    environment["PREFECT_SERVER_UI_API_URL"] = _address(port)
    with log.open("ab") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )
    noted = {"url": _address(port), "pid": server.pid, "started": psutil.Process(server.pid).create_time()}
    temporary = directory / f"server.json.{secrets.token_hex(4)}"
    temporary.write_text(json.dumps(noted) + "\n")
    temporary.replace(directory / "server.json")
    return server


def _comes_up(server: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until the server itself answers; whether it did, before it ended or START_SECONDS had passed."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        if answers(_address(port), seconds=1.0) and _listens(server.pid, port):
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


def _address(port: int) -> str:
    return f"http://127.0.0.1:{port}/api"


def _stop(directory: Path) -> None:
    """End the noted server with all of its processes."""
    try:
        noted = json.loads((directory / "server.json").read_text())
    except (FileNotFoundError, ValueError):
        return
    if _is_ours(noted):
        server = psutil.Process(noted["pid"])
        family = [server, *server.children(recursive=True)]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)
        _, alive = psutil.wait_procs(family, timeout=15)
        for process in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
    (directory / "server.json").unlink(missing_ok=True)


def free_port() -> int:
    """The first port from 4200 on that nobody listens on."""
    for port in range(FIRST_PORT, FIRST_PORT + 100):
        if _is_free(port):
            return port
    raise Refused(
        f"no free port in {FIRST_PORT}..{FIRST_PORT + 99} for the Prefect server: state one with --server"
    )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True

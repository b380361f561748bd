"""The Prefect server that a command uses: found, or started for as long as it is needed.

In order: --server; PREFECT_API_URL; the running server of this home, started by `nightshift up` or by another
campaign; a new one, stopped when its last user leaves. That is `prefect server start`, with Prefect's home inside ours
and its settings in a profile there: `PREFECT_HOME=runs/.prefect prefect ...` uses the same server.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import tomlkit
from filelock import FileLock

from environments.plugins import Refused
from flows.server.api import Api
from tasks.system.daemon import HOST, Daemon, Note, PortTaken, address, answers, running_at
from tasks.system.login import make_login, split_login, stored_login, write_private

FIRST_PORT = 4200
PATIENCE_SECONDS = 20.0
"""How long a server may be silent, as it is when busy, before it counts as stuck."""
ROWS_SECONDS = 60.0
"""How long stored task runs are waited for."""
QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
    # In seconds; the periods of automations.yaml assume it.
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
}
DATABASE = ("PREFECT_SERVER_DATABASE_CONNECTION_URL", "PREFECT_API_DATABASE_CONNECTION_URL")
"""Prefect's variables for the database of a server; the profile keeps it, for the next start."""
PROFILE = "nightshift"


def settle_in(home: Path) -> None:
    """Give Prefect a home inside ours, without analytics; before its first import.

    A profile that the user has made active elsewhere is not read, and of the one in our home only by Prefect's own
    commands: it names our server whether that runs or not.
    """
    if "prefect" in sys.modules:
        raise RuntimeError("prefect is imported already: call settle_in() before its first import")
    directory = home / ".prefect"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.environ.update(QUIET, PREFECT_HOME=str(directory), PREFECT_PROFILE="ephemeral")
    # The terminal shows our own lines; the server stores every log.
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    os.environ.setdefault("PREFECT_LOGGING_INTERNAL_LEVEL", "CRITICAL")  # else every lost event is printed


def stated_server(option: str | None, home: Path) -> str | None:
    """The API named by --server or PREFECT_API_URL; None where neither is given, or our own is named and does not run.

    Raises Refused: it cannot be used.
    """
    source = "--server" if option else "PREFECT_API_URL"
    url = (option or os.environ.get("PREFECT_API_URL") or "").rstrip("/")
    own = daemon(home / ".prefect")
    if not url or (own.is_own(url) and own.living() is None):  # a shell still has what `up` said
        return None
    if not answers(url, PATIENCE_SECONDS):
        raise Refused(f"{source} = {url}: no Prefect server answers there. Start it, or leave it out to use our own")
    try:
        with Api(url, credentials(url, home), patience=PATIENCE_SECONDS) as api:
            api.ask("GET", "/admin/version")
    except (httpx.HTTPError, ValueError) as failure:
        remedy = "its address ends in /api, and PREFECT_API_AUTH_STRING holds its user:password if it asks for a login"
        raise Refused(f"{source} = {url}: {failure}: {remedy}") from failure
    return url


@contextlib.contextmanager
def prefect_server(stated: str | None, home: Path) -> Iterator[str]:
    """Connect Prefect in this process to the stated API, or to our own server; its address."""
    with contextlib.ExitStack() as stack:
        # Our own server is shared even when it was named, so that it does not end while this command uses it.
        ours = stated is None or running_at(stated, home, "server") is not None
        url = stack.enter_context(_shared(home / ".prefect")) if ours else str(stated)
        stack.enter_context(used(url, home))
        yield url


@contextlib.contextmanager
def used(url: str, home: Path) -> Iterator[None]:
    """Connect Prefect in this process to `url`, with the login for it."""
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

    settings: dict[Any, Any] = {PREFECT_API_URL: url}
    if login := auth_string(url, home):
        settings[PREFECT_API_AUTH_STRING] = login
    with temporary_settings(settings):
        yield


def auth_string(url: str, home: Path) -> str | None:
    """The `user:password` for a server: of our own from its file, else PREFECT_API_AUTH_STRING."""
    return stored_login(home) if running_at(url, home, "server") else os.environ.get("PREFECT_API_AUTH_STRING")


def credentials(url: str, home: Path) -> tuple[str, str] | None:
    """User and password for a server; None without."""
    return split_login(auth_string(url, home))


def drain(url: str) -> None:
    """Send the logs and task-run events that this process still holds; drop them where no server answers.

    Otherwise each event would be retried for seconds, one after another, before the interpreter exits.
    """
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    if not answers(url, PATIENCE_SECONDS):
        services: tuple[Any, ...] = (EventsWorker, APILogWorker)
        for instance in [one for service in services for one in service._instances.values()]:
            with instance._queue.mutex:
                instance._queue.queue.clear()
    EventsWorker.drain_all(timeout=30)
    APILogWorker.drain_all(timeout=10)


def wait_for_rows(
    url: str, flow_run_id: str, auth: tuple[str, str] | None = None, seconds: float = ROWS_SECONDS
) -> bool:
    """Wait until the server has stored every task run of a flow run; whether it did within so many seconds.

    Task runs arrive as events, with a delay; a server that is stopped earlier loses them. They are complete when
    none is under way and their number has not changed for a second.
    """
    deadline, before = time.monotonic() + seconds, -1
    of_run = {"flow_runs": {"id": {"any_": [flow_run_id]}}}
    unfinished = {"task_runs": {"state": {"type": {"any_": ["PENDING", "RUNNING", "SCHEDULED"]}}}}
    with Api(url, auth, patience=0) as api:
        while time.monotonic() < deadline:
            try:
                count = api.ask("POST", "/task_runs/count", of_run)
                if count == before and not api.ask("POST", "/task_runs/count", of_run | unfinished):
                    return True
            except (httpx.HTTPError, ValueError):  # the server is away, or something else has its port
                count = -1
            before = count
            time.sleep(1.0)
    return False


def daemon(directory: Path) -> Daemon:
    """Our own server; `directory` is Prefect's home."""
    return Daemon(directory, "server")


@contextlib.contextmanager
def _shared(directory: Path) -> Iterator[str]:
    """Our own server: started by its first user, stopped by its last, unless it stays."""
    with (directory / "users.lock").open("a") as users:
        with FileLock(directory / "start.lock"):
            before = daemon(directory).noted()
            note = running(directory, stays=before is not None and before.stays)
            fcntl.flock(users, fcntl.LOCK_SH)
        try:
            yield note.url
        finally:
            fcntl.flock(users, fcntl.LOCK_UN)
            with FileLock(directory / "start.lock"):
                stop_unused(directory)


def stop_unused(directory: Path) -> bool:
    """End our own server if it is unused and not to stay; whether it was ended. The caller holds start.lock."""
    note = daemon(directory).living()
    return not in_use(directory) and not (note and note.stays) and daemon(directory).end()


def in_use(directory: Path) -> bool:
    """Whether a command of this home uses our own server."""
    with (directory / "users.lock").open("a") as users:
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def running(directory: Path, stays: bool) -> Note:
    """Our own server: the one that answers, which stays from now on where it is to, else a new one. The caller holds
    start.lock.

    Raises Refused: it does not start, or its port is taken and it is to stay.
    """
    server = daemon(directory)
    note = server.living()
    if note and answers(note.url, PATIENCE_SECONDS):
        if stays:
            server.keep()
        return note
    server.end()
    return start(directory, stays)


def start(directory: Path, stays: bool) -> Note:
    """Start our own server and wait until it answers. Raises as `running`."""
    server = daemon(directory)
    port = server.port(FIRST_PORT, stays)
    _write_profile(directory, port)
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", HOST, "--port", str(port)]
    try:
        note = server.start(command, environment(directory), port, address(port, "/api"), stays=stays)
    except PortTaken:  # by whoever started at the same moment; the next call of `port` sees that
        return start(directory, stays)
    if stays:
        server.remember(port)
    return note


def environment(directory: Path) -> dict[str, str]:
    """The variables of a program that uses our own server by the profile: without those about another one."""
    servers = ("PREFECT_API_", "PREFECT_SERVER_API_", "PREFECT_SERVER_CORS_", "PREFECT_SERVER_UI_API_")
    dropped = (*servers, *DATABASE, "PREFECT_PROFILE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return {**kept, "PREFECT_HOME": str(directory), "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "INFO"}


def _write_profile(directory: Path, port: int) -> None:
    """Set what our own server and its clients need in a profile that only this user can read; the rest of it stays."""
    path, login = directory / "profiles.toml", make_login(directory.parent)
    profiles: dict[str, dict[str, Any]] = {}
    with contextlib.suppress(FileNotFoundError, tomllib.TOMLDecodeError):
        profiles = tomllib.loads(path.read_text()).get("profiles", {})
    database = next((os.environ[name] for name in DATABASE if name in os.environ), None)
    profiles[PROFILE] = {
        **profiles.get(PROFILE, {}),
        "PREFECT_API_URL": address(port, "/api"),
        "PREFECT_API_AUTH_STRING": login,
        "PREFECT_SERVER_API_HOST": HOST,
        "PREFECT_SERVER_API_PORT": str(port),
        "PREFECT_SERVER_API_AUTH_STRING": login,
        "PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS": ",".join(f"http://{host}:{port}" for host in (HOST, "localhost")),
        "PREFECT_SERVER_UI_API_URL": address(port, "/api"),  # by default its pages ask port 4200
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        # Leases in memory are lost with the server, and their slots stay taken.
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
        **({DATABASE[0]: database} if database else {}),
    }
    write_private(path, tomlkit.dumps({"active": PROFILE, "profiles": profiles}))

"""The Prefect server that a command uses: found, or started for as long as it is needed.

In order: --server; PREFECT_API_URL; the running server of this home, started by `nightshift up` or by another
campaign; a new one on the first free port, stopped when its last user leaves. A Prefect profile is never read:
`settle_in` gives Prefect its home inside ours, and must be called before Prefect is imported.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import httpx

from environments.plugins import Refused
from flows.server.api import Api
from flows.server.request_check import HOSTS
from tasks.system.daemon import Daemon, Note, address, answers, running_at, serve
from tasks.system.login import make_login, split_login, stored_login

FIRST_PORT = 4200
PATIENCE_SECONDS = 20.0
"""How long a server may be silent, as it is when busy, before it counts as stuck."""
ROWS_SECONDS = 60.0
"""How long stored task runs are waited for."""
QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
    # In seconds; the periods of automations.yaml assume it.
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
}
PRODUCTION = {
    # Remove events after a week, which is the default, and flow runs after 90 days.
    "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
    # Seconds: a page over many campaigns takes longer than the default of ten.
    "PREFECT_SERVER_DATABASE_TIMEOUT": "30",
    "PREFECT_SERVER_DATABASE_CONNECTION_TIMEOUT": "15",
}
"""Settings of a server on PostgreSQL."""
LOOK_SECONDS = 1.0
"""Between two checks that the server is alive."""
IN_POSTGRES = "its data are in PostgreSQL: run `nightshift up --database URL`"
REVIVALS = 5
"""How often one command restarts a server that died."""


def settle_in(home: Path) -> None:
    """Give Prefect a home inside ours, without analytics and without a profile; before its first import."""
    if "prefect" in sys.modules:
        raise RuntimeError("prefect is imported already: call settle_in() before its first import")
    directory = home / ".prefect"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.environ.update(QUIET, PREFECT_HOME=str(directory))
    os.environ.pop("PREFECT_PROFILE", None)
    # The terminal shows our own lines; the server stores every log.
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    os.environ.setdefault("PREFECT_LOGGING_INTERNAL_LEVEL", "CRITICAL")  # else every lost event is printed


def stated_server(option: str | None, home: Path) -> str | None:
    """The API named by --server or PREFECT_API_URL; None where neither is given. Refused if it cannot be used."""
    source = "--server" if option else "PREFECT_API_URL"
    url = (option or os.environ.get("PREFECT_API_URL") or "").rstrip("/")
    if not url:
        return None
    where = f"{source} = {url}"
    if not answers(url, PATIENCE_SECONDS):
        raise Refused(f"{where}: no Prefect server answers there. Start it, or leave it out to use our own")
    try:
        with Api(url, credentials(url, home), patience=PATIENCE_SECONDS) as api:
            api.ask("GET", "/admin/version")
    except (httpx.HTTPError, ValueError) as failure:
        problem = f"it stopped answering: {failure}"
        if isinstance(failure, (httpx.HTTPStatusError, ValueError)):
            problem = "this is no Prefect API (a Prefect server's address ends in /api)"
        if isinstance(failure, httpx.HTTPStatusError) and failure.response.status_code == 401:
            problem = "it asks for a login: set PREFECT_API_AUTH_STRING to its user:password"
        raise Refused(f"{where}: {problem}") from failure
    return url


@contextlib.contextmanager
def prefect_server(stated: str | None, home: Path) -> Iterator[str]:
    """Connect Prefect in this process to the stated API, or to our own server; its address."""
    with contextlib.ExitStack() as stack:
        # Our own server is shared even when it was named, so that it does not end while this command uses it.
        ours = stated is None or _own(stated, home) is not None
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


def _own(url: str, home: Path) -> Note | None:
    """The note of our own running server, if `url` is its address."""
    return running_at(url, home, "server")


def auth_string(url: str, home: Path) -> str | None:
    """The `user:password` for a server: of our own from its file, else PREFECT_API_AUTH_STRING."""
    if note := _own(url, home):
        return stored_login(home) if note.auth else None
    return os.environ.get("PREFECT_API_AUTH_STRING")


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
        services: list[Any] = [EventsWorker, APILogWorker]
        for service in services:
            for instance in tuple(service._instances.values()):
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
    deadline, before, since = time.monotonic() + seconds, -1, time.monotonic()
    of_run = {"flow_runs": {"id": {"any_": [flow_run_id]}}}
    unfinished = {"task_runs": {"state": {"type": {"any_": ["PENDING", "RUNNING", "SCHEDULED"]}}}}
    with Api(url, auth, patience=0) as api:
        while time.monotonic() < deadline:
            try:
                count = api.ask("POST", "/task_runs/count", of_run)
                under_way = api.ask("POST", "/task_runs/count", of_run | unfinished)
            except (httpx.HTTPError, ValueError):  # the server is away, or something else has its port
                count, under_way = -1, -1
            if count != before or under_way:
                before, since = count, time.monotonic()
            elif time.monotonic() - since > 1.0:
                return True
            time.sleep(0.2)
    return False


def was_started_anew(url: str, home: Path, since: float) -> bool:
    """Whether our own server was restarted at this address after that moment (Unix time)."""
    note = _own(url, home)
    return note is not None and note.started > since


def daemon(directory: Path) -> Daemon:
    """Our own server; `directory` is Prefect's home."""
    return Daemon(directory, "server")


@contextlib.contextmanager
def _shared(directory: Path) -> Iterator[str]:
    """Our own server: started by its first user, stopped by its last, unless it stays."""
    with (directory / "users.lock").open("a") as users:
        with exclusively(directory / "start.lock"):
            before = daemon(directory).noted()
            note = healthy(directory)
            if note and not note.auth and stop_unused(directory):  # an earlier version left it
                before = note = None
            if note is None and before and before.database:  # its address is not stored
                raise Refused(f"our server does not run, and {IN_POSTGRES}, or go without it: `nightshift down`")
            url = note.url if note else _start_as(before, directory)
            fcntl.flock(users, fcntl.LOCK_SH)
        try:
            with _guarded(directory):
                yield url
        finally:
            fcntl.flock(users, fcntl.LOCK_UN)
            with exclusively(directory / "start.lock"):
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


@contextlib.contextmanager
def exclusively(path: Path) -> Iterator[IO[str]]:
    """Hold an exclusive lock between the processes of this machine."""
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


def healthy(directory: Path) -> Note | None:
    """Our own server, if it answers; one that runs without answering is ended."""
    note = daemon(directory).living()
    if note and not answers(note.url, PATIENCE_SECONDS):
        daemon(directory).end()
        return None
    return note


def start(
    directory: Path, *, auth: str | None, stays: bool = False, database: str | None = None,
    still: Callable[[str], None] | None = None,
) -> str:  # fmt: skip
    """Start our own server and wait until it answers; its address. Refused if it does not start.

    A server that died is started on its old port if that is free: its runs and open pages use that address.

    Args:
        auth: The `user:password` it asks for; None: no login.
        database: The address of a PostgreSQL database; None: SQLite.
        still: Told the address while it starts (tasks.system.daemon.serve).
    """
    server = daemon(directory)
    dead = server.died()

    def launch(port: int) -> subprocess.Popen[bytes]:
        url = address(port, "/api")
        command = [sys.executable, "-m", "flows.server.prefect_app", str(port)]
        stored_in = "postgresql" if database else ""
        environment = _environment(port, auth, database)
        return server.launch(command, environment, url, auth=auth is not None, stays=stays, database=stored_in)

    return serve(server, (dead and httpx.URL(dead.url).port) or FIRST_PORT, launch, "/api", still=still)


@contextlib.contextmanager
def _guarded(directory: Path) -> Iterator[None]:
    """Restart our own server if it dies within the block. Prefect may lose events sent meanwhile."""
    over, server = threading.Event(), daemon(directory)

    def watch() -> None:
        for _ in range(REVIVALS):
            while server.died() is None:
                if over.wait(LOOK_SECONDS):
                    return
            try:
                revive(directory)
            except (Refused, OSError) as why:  # the campaign goes on without it
                with server.log.open("a") as log:
                    log.write(f"nightshift: the server died and was not restarted: {why}\n")
                return

    thread = threading.Thread(target=watch, name="guardian", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _start_as(before: Note | None, directory: Path) -> str:
    """Start our own server; one of `nightshift up` that is gone as it was."""
    stays = before is not None and before.stays
    auth = None if before and stays and not before.auth else make_login(directory.parent)
    return start(directory, auth=auth, stays=stays)


def revive(directory: Path) -> None:
    """Start our own server as it was, if it is still dead."""
    with exclusively(directory / "start.lock"):
        note = daemon(directory).died()
        if note is None:
            return
        if note.database:  # its address is not stored
            raise Refused(IN_POSTGRES)
        start(directory, auth=make_login(directory.parent) if note.auth else None, stays=note.stays)


def _environment(port: int, auth: str | None, database: str | None) -> dict[str, str]:
    """The environment variables of our own server; variables about another server are left out."""
    login_and_origins = ("PREFECT_SERVER_API_AUTH", "PREFECT_SERVER_API_CORS", "PREFECT_SERVER_CORS")
    foreign = ("PREFECT_API", *login_and_origins, "PREFECT_SERVER_DATABASE_CONNECTION_URL")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    environment["PREFECT_SERVER_UI_API_URL"] = address(port, "/api")  # by default its pages ask port 4200
    environment["PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS"] = ",".join(f"http://{host}:{port}" for host in HOSTS)
    environment["PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"] = "WARNING"  # into its log
    if auth is not None:
        environment["PREFECT_SERVER_API_AUTH_STRING"] = auth
    if database is not None:
        environment |= {**PRODUCTION, "PREFECT_SERVER_DATABASE_CONNECTION_URL": database}
    return environment

"""Which Prefect server a command talks to, and the one of our own when there is none.

In order: the address stated on the command line; PREFECT_API_URL; the live one of this home, which `nightshift up`
started or another campaign; one of our own on the first free port, for as long as somebody here uses it. A profile
in the user's home is never read: `settle_in` gives Prefect a home of ours, and has to be called before Prefect is
imported.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import httpx

from environments.plugins import Refused
from tasks.system.daemon import HOST, Daemon, Note, address, answers, serve

FIRST_PORT = 4200
PATIENCE_SECONDS = 20.0
"""How long a server of ours may be silent, as it is when it is busy, before it counts as stuck."""
ROWS_SECONDS = 60.0
QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
    # How often a run says that it lives, in seconds; automations.yaml counts on it.
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
}
PRODUCTION = {
    # Left alone it forgets events after a week and keeps runs for ever; so runs go too, after 90 days.
    "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
    # Seconds: a page over many nights takes longer than the ten that it would be given.
    "PREFECT_SERVER_DATABASE_TIMEOUT": "30",
    "PREFECT_SERVER_DATABASE_CONNECTION_TIMEOUT": "15",
}
"""What a server on PostgreSQL is started with."""
LOOK_SECONDS = 1.0
"""Between two looks at whether the server still lives."""
REVIVALS = 5
"""How often one command starts a server anew that has died."""


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
    os.environ.setdefault("PREFECT_LOGGING_INTERNAL_LEVEL", "CRITICAL")  # each event that is lost, in full


def stated_server(stated: str | None, home: Path) -> str | None:
    """The API that the command line or PREFECT_API_URL names, if one does.

    Raises:
        Refused: nothing answers there, or it does not let us in.
    """
    where = "--server" if stated else "PREFECT_API_URL"
    url = (stated or os.environ.get("PREFECT_API_URL") or "").rstrip("/")
    if not url:
        return None
    if not answers(url):
        raise Refused(
            f"{where} = {url}: no Prefect server answers there. Start it, or leave it out to use our own"
        )
    try:
        status = httpx.get(
            f"{url}/admin/version", auth=credentials(url, home), timeout=PATIENCE_SECONDS
        ).status_code
    except httpx.HTTPError as silent:
        raise Refused(f"{where} = {url}: it answered, and then not any more: {silent}") from silent
    if status not in (200, 401):
        raise Refused(f"{where} = {url}: this is no Prefect API (a Prefect server's address ends in /api)")
    if status == 401:
        raise Refused(
            f"{where} = {url}: this Prefect server asks who you are: set PREFECT_API_AUTH_STRING to its user:password"
        )
    return url


@contextlib.contextmanager
def prefect_server(stated: str | None, home: Path) -> Iterator[str]:
    """Have Prefect in this process talk to the stated API, or else to one of our own; its address.

    Raises:
        Refused: our own server did not start.
    """
    with contextlib.ExitStack() as stack:
        note = daemon(home / ".prefect").living()
        # Our own is used as our own, however it was named: it does not end while somebody is counted as its user.
        ours = note is not None and stated is not None and _same(stated, note.url)
        url = stated if stated and not ours else stack.enter_context(_shared(home / ".prefect"))
        stack.enter_context(used(url, home))
        yield url


@contextlib.contextmanager
def used(url: str, home: Path) -> Iterator[None]:
    """Have Prefect in this process talk to `url`, as who we are there."""
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

    known: dict[Any, Any] = {PREFECT_API_URL: url}
    if secret := auth_string(url, home):
        known[PREFECT_API_AUTH_STRING] = secret
    with temporary_settings(known):
        yield


def _same(one: str, other: str) -> bool:
    """Whether two addresses of this machine mean the same."""
    return one.replace("//localhost:", f"//{HOST}:") == other


def auth_string(url: str, home: Path) -> str | None:
    """The `user:password` for a server: of ours the one in its file, else what PREFECT_API_AUTH_STRING says."""
    note = daemon(home / ".prefect").living()
    if note and _same(url, note.url):
        return auth_file(home).read_text().strip() if note.auth else None
    return os.environ.get("PREFECT_API_AUTH_STRING")


def auth_file(home: Path) -> Path:
    """Where the `user:password` of our own server is; the file is private, and made when first needed."""
    return home / ".prefect/auth"


def make_auth(home: Path) -> str:
    """The `user:password` of our own server, drawn once and then kept."""
    path = auth_file(home)
    if not path.exists() or not path.read_text().strip():
        temporary = path.with_name(f"auth.{secrets.token_hex(4)}")
        private = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(private, "w") as file:
            file.write(f"nightshift:{secrets.token_urlsafe(18)}\n")
        temporary.replace(path)  # whole or not at all: an empty password would let everybody in
    return path.read_text().strip()


def credentials(url: str, home: Path) -> tuple[str, str] | None:
    """User and password for a server, if it has any."""
    user, _, password = (auth_string(url, home) or "").partition(":")
    return (user, password) if user else None


def drain(url: str) -> None:
    """Send what this process still has to tell the server: logs, and the events that task runs are stored from.

    Where no server answers any more that is dropped: each event would be tried for seconds, one after another, and
    the interpreter waits for the last of them before it ends.
    """
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    if not answers(url, PATIENCE_SECONDS):
        services: list[Any] = [EventsWorker, APILogWorker]
        for waiting in [one._queue for service in services for one in tuple(service._instances.values())]:
            with waiting.mutex:
                waiting.queue.clear()
    EventsWorker.drain_all(timeout=30)
    APILogWorker.drain_all(timeout=10)


def wait_for_rows(
    url: str, flow_run_id: str, auth: tuple[str, str] | None = None, seconds: float = ROWS_SECONDS
) -> bool:
    """Wait until the server has stored every task run of a flow run; whether it did within so many seconds.

    Task runs arrive as events, some time after they have happened; a server that is stopped before loses them. They
    are all there when none is under way and no more have come for a moment.
    """
    deadline, before, since = time.monotonic() + seconds, -1, time.monotonic()
    chosen = {"flow_runs": {"id": {"any_": [flow_run_id]}}}
    open_states = {"task_runs": {"state": {"type": {"any_": ["PENDING", "RUNNING", "SCHEDULED"]}}}}
    with httpx.Client(auth=auth, timeout=10) as client:
        while time.monotonic() < deadline:
            try:
                count = client.post(f"{url}/task_runs/count", json=chosen).json()
                under_way = client.post(f"{url}/task_runs/count", json=chosen | open_states).json()
            except (httpx.HTTPError, ValueError):  # away, or something else answers in its place
                count, under_way = -1, -1
            if count != before or under_way:
                before, since = count, time.monotonic()
            elif time.monotonic() - since > 1.0:
                return True
            time.sleep(0.2)
    return False


def was_started_anew(url: str, home: Path, since: float) -> bool:
    """Whether a server is ours and began after that moment (Unix time), which another one had the address of."""
    note = daemon(home / ".prefect").living()
    return note is not None and _same(url, note.url) and note.started > since


def daemon(directory: Path) -> Daemon:
    """Our own server; `directory` is Prefect's home."""
    return Daemon(directory, "server")


@contextlib.contextmanager
def _shared(directory: Path) -> Iterator[str]:
    """Our own server: started by the first that needs it, stopped by the last that leaves, unless it stays."""
    with (directory / "users.lock").open("a") as users:
        with exclusively(directory / "start.lock"):
            note = healthy(directory)
            url = note.url if note else start(directory)
            fcntl.flock(users, fcntl.LOCK_SH)
        try:
            with Guardian(directory):
                yield url
        finally:
            fcntl.flock(users, fcntl.LOCK_UN)
            with exclusively(directory / "start.lock"):
                stop_unused(directory)


def stop_unused(directory: Path) -> bool:
    """End our own server if nobody uses it and it need not stay; whether it was ended.

    Whoever calls this holds start.lock.
    """
    note = daemon(directory).living()
    return not in_use(directory) and not (note and note.stays) and daemon(directory).end()


def in_use(directory: Path) -> bool:
    """Whether a command of this home uses our own server now."""
    with (directory / "users.lock").open("a") as users:
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@contextlib.contextmanager
def exclusively(path: Path) -> Iterator[IO[str]]:
    """Hold a lock that one process of this machine can hold at a time."""
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


def healthy(directory: Path) -> Note | None:
    """Our own server, if it lives and answers; one that lives but is mute is ended."""
    note = daemon(directory).living()
    if note and not answers(note.url, PATIENCE_SECONDS):
        daemon(directory).end()
        return None
    return note


def start(
    directory: Path, *, auth: str | None = None, stays: bool = False, database: str | None = None
) -> str:
    """Start our own server and wait until it answers; its address. With `auth` it lets in who says that.

    One that died is started where it was, if that is still free: its runs and pages know no other address.

    Args:
        database: The address of its PostgreSQL; None: a file of its own.

    Raises:
        Refused: it did not come up.
    """
    server = daemon(directory)
    died = server.died()

    def launch(port: int) -> subprocess.Popen[bytes]:
        url = address(port, "/api")
        command = [sys.executable, "-m", "prefect", "server", "start", "--host", HOST, "--port", str(port)]
        return server.launch(
            command,
            _environment(url, auth, database),
            url,
            auth=auth is not None,
            stays=stays,
            database="postgresql" if database else "",
        )

    return serve(server, (died and port_of(died.url)) or FIRST_PORT, launch, "/api")


def port_of(url: str) -> int | None:
    """The port in an address, if it names one."""
    found = re.search(r":(\d+)(?:/|$)", url)
    return int(found[1]) if found else None


class Guardian:
    """Start our own server anew where it died, if it dies while a `with` block uses it.

    What a run told it in the meantime may be lost; what a run does is not.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="guardian", daemon=True)

    def __enter__(self) -> Guardian:
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        for _ in range(REVIVALS):
            while daemon(self._directory).died() is None:
                if self._over.wait(LOOK_SECONDS):
                    return
            try:
                revive(self._directory)
            except (Refused, OSError) as why:  # its log says more; the campaign goes on without it
                with daemon(self._directory).log.open("a") as log:
                    log.write(f"nightshift: the server died and did not come up again: {why}\n")
                return


def revive(directory: Path) -> None:
    """Start our own server as it was, if it died and nobody has started it meanwhile.

    Raises:
        Refused: it did not come up, or is on PostgreSQL, which `nightshift up` starts along with it.
    """
    with exclusively(directory / "start.lock"):
        note = daemon(directory).died()
        if note is None:
            return
        if note.database:
            raise Refused("its database is a program too: `nightshift up --production` starts both")
        auth = auth_file(directory.parent).read_text().strip() if note.auth else None
        start(directory, auth=auth, stays=note.stays)


def _environment(url: str, auth: str | None, database: str | None) -> dict[str, str]:
    """What a server of ours is started with: nothing of what is said about another one."""
    said = ("PREFECT_API", "PREFECT_SERVER_API_AUTH", "PREFECT_SERVER_DATABASE_CONNECTION_URL")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(said)}
    # Left out, its pages ask port 4200, whatever port they come from.
    environment["PREFECT_SERVER_UI_API_URL"] = url
    environment["PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"] = "WARNING"  # into its log, which no terminal shows
    if auth is not None:
        environment["PREFECT_SERVER_API_AUTH_STRING"] = auth
    if database is not None:
        environment |= {**PRODUCTION, "PREFECT_SERVER_DATABASE_CONNECTION_URL": database}
    return environment

"""The Prefect server that a command uses: found, or started for as long as it is needed; and the MLflow server of `up`.

In order: --server; PREFECT_API_URL; the running server of this home, started by `nightshift up` or by another
campaign; a new one, stopped when its last user leaves. That is `prefect server start`, with Prefect's home inside ours.
MLflow's is `mlflow server` with its own login, on the home's database and artifacts.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.metadata
import os
import secrets
import sys
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import httpx
from filelock import FileLock

from environments.plugins import Refused
from tasks.system.daemon import HOST, PATIENCE_SECONDS, Daemon, answers
from tasks.system.home import login_file, make_login, stored_login
from tasks.system.redact import without_passwords
from tasks.tracking.connection import SETTINGS, make_database

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

FIRST_PORT, MLFLOW_PORT = 4200, 5000
ANSWER_SECONDS = 10.0
"""Time-out of a request to a Prefect server; a campaign goes on without its answer."""
BUSY_RETRIES = 5
"""How often a busy server is asked again, for a minute in all; on SQLite it is busy while it stores events."""
ROWS_SECONDS = 60.0
"""How long stored task runs are waited for."""
QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
    # In seconds; the periods of automations.yaml assume it.
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
}


def settle_in(home: Path) -> None:
    """Give Prefect a home inside ours, without analytics, and none of the user's profiles; before its first import."""
    os.environ.update(QUIET, PREFECT_HOME=str(home / ".prefect"), PREFECT_PROFILE="ephemeral")
    direct = os.environ.get("no_proxy") or os.environ.get("NO_PROXY", "")
    if direct.strip() != "*":
        os.environ["no_proxy"] = os.environ["NO_PROXY"] = f"{direct},127.0.0.1,localhost".strip(",")  # our own servers
    for name in ("ALL_PROXY", "all_proxy"):
        if os.environ.get(name, "").startswith("socks") and find_spec("socksio") is None:
            del os.environ[name]  # else no client of httpx can be made, not even for our own servers
    # The terminal shows our own lines; the server stores every log.
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    os.environ.setdefault("PREFECT_LOGGING_INTERNAL_LEVEL", "CRITICAL")  # else every lost event is printed


def stated_server(option: str | None, home: Path) -> str | None:
    """The API named by --server or PREFECT_API_URL; None for our own. Raises Refused: it cannot be used."""
    source = "--server" if option else "PREFECT_API_URL"
    url = (option or os.environ.get("PREFECT_API_URL") or "").rstrip("/")
    if not url or Daemon(home / ".prefect", "server").is_own(url):
        return None
    try:
        theirs, ours = version(url, home), importlib.metadata.version("prefect")
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as failure:
        remedy = "its address ends in /api, and PREFECT_API_AUTH_STRING holds its user:password if it asks for a login"
        raise Refused(
            without_passwords(f"{source} = {url}: no Prefect server answers there ({failure}): {remedy}")
        ) from failure
    if theirs.partition(".")[0] != ours.partition(".")[0]:
        shown = without_passwords(url)
        raise Refused(f"{source} = {shown} is a Prefect server of version {theirs}, and here is {ours}: update one")
    return url


def version(url: str, home: Path) -> str:
    """What a server says of itself to whoever may use it. Raises httpx.HTTPError."""
    user, _, password = auth_string(url, home).partition(":")
    auth = (user, password) if user else None
    return str(httpx.get(f"{url}/admin/version", auth=auth, timeout=PATIENCE_SECONDS).raise_for_status().json())


@contextlib.contextmanager
def prefect_server(stated: str | None, home: Path) -> Iterator[str]:
    """Connect Prefect in this process to the stated API, or to our own server, with the login for it; its address."""
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

    with (
        shared(home / ".prefect") if stated is None else contextlib.nullcontext(stated) as url,
        temporary_settings({PREFECT_API_URL: url, PREFECT_API_AUTH_STRING: auth_string(url, home)}),
    ):
        yield url


def auth_string(url: str, home: Path) -> str:
    """The `user:password` for a server: of our own from its file, else PREFECT_API_AUTH_STRING; empty without one."""
    own = Daemon(home / ".prefect", "server")
    is_ours = own.is_own(url) and own.living()  # else somebody else may listen there by now
    return stored_login(home) if is_ours else os.environ.get("PREFECT_API_AUTH_STRING", "")


@contextlib.contextmanager
def impatient_client(retries: int = 0) -> Iterator[SyncPrefectClient]:
    """Prefect's client, which asks again so many times only: its caller asks again, and sees a request to stop."""
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    with (
        temporary_settings({PREFECT_CLIENT_MAX_RETRIES: retries}),
        get_client(sync_client=True, httpx_settings={"timeout": ANSWER_SECONDS}) as client,
    ):
        yield client


def drain(url: str) -> None:
    """Send the logs and task-run events that this process still holds; where no server answers, `leave` drops them."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    if answers(url, PATIENCE_SECONDS):
        EventsWorker.drain_all(timeout=30)
        APILogWorker.drain_all(timeout=10)


def leave(code: int) -> NoReturn:
    """End this process at once: to a server that is gone Prefect would try for minutes to send each event."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def wait_for_rows(flow_run_id: str) -> bool:
    """Wait until the server has stored every task run of a flow run, which it gets as events; whether it did in time.

    They are complete when none is under way and their number has not changed for a second.
    """
    deadline, before = time.monotonic() + ROWS_SECONDS, -1
    of_run = {"flow_runs": {"id": {"any_": [flow_run_id]}}}
    unfinished = {"task_runs": {"state": {"type": {"any_": ["PENDING", "RUNNING", "SCHEDULED"]}}}}
    with impatient_client() as client:
        while time.monotonic() < deadline:
            count = -1
            with contextlib.suppress(httpx.HTTPError, ValueError):  # it is away, or something else has its port
                count = client.request("POST", "/task_runs/count", json=of_run).json()
                if count == before and not client.request("POST", "/task_runs/count", json=of_run | unfinished).json():
                    return True
            before = count
            time.sleep(1.0)
    return False


@contextlib.contextmanager
def shared(directory: Path) -> Iterator[str]:
    """Address of our own server: started by its first user, stopped by its last, which may be the worker of `up`.

    Raises Refused: it does not start. (directory: Prefect's home)
    """
    with (directory / "users.lock").open("a+") as users:  # NFS shares no lock of a file that is not read
        fcntl.flock(users, fcntl.LOCK_SH)
        with FileLock(directory / "start.lock"):
            url = Daemon(directory, "server").serve(FIRST_PORT, "/api", lambda port: _launch(directory, port))
        try:
            yield url
        finally:
            fcntl.flock(users, fcntl.LOCK_UN)
            stop_unused(directory)


def stop_unused(directory: Path) -> bool:
    """End our own server unless a command or the worker of this home uses it; whether it was ended."""
    with FileLock(directory / "start.lock"), (directory / "users.lock").open("a") as users:
        server, worker = Daemon(directory, "server"), Daemon(directory, "worker").living()
        if worker and server.is_own(worker.url):
            return False
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return server.end()


def _launch(directory: Path, port: int) -> tuple[list[str], Mapping[str, str]]:
    """The command and the variables of our own server: without those about another one."""
    servers = ("PREFECT_API_", "PREFECT_SERVER_API_", "PREFECT_SERVER_CORS_", "PREFECT_SERVER_UI_API_")
    login = make_login(directory.parent)
    return [sys.executable, "-m", "prefect", "server", "start", "--host", HOST, "--port", str(port)], {
        **{name: text for name, text in os.environ.items() if not name.startswith(servers)},
        "PREFECT_HOME": str(directory),
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "INFO",
        "PREFECT_API_AUTH_STRING": login,
        "PREFECT_SERVER_API_AUTH_STRING": login,
        "PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS": ",".join(f"http://{host}:{port}" for host in (HOST, "localhost")),
        "PREFECT_SERVER_UI_API_URL": f"http://{HOST}:{port}/api",  # by default its pages ask port 4200
        # Leases in memory are lost with the server, and their slots stay taken.
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
    }


def mlflow_server(home: Path) -> str:
    """Address of our own MLflow server, which is started unless it runs. Raises Refused: it does not start."""
    return Daemon(home / ".prefect", "mlflow").serve(MLFLOW_PORT, "", lambda port: _launch_mlflow(home, port))


def _launch_mlflow(home: Path, port: int) -> tuple[list[str], Mapping[str, str]]:
    """Its command and its variables: without those about another MLflow server."""
    os.environ.update({name: os.environ.get(name, value) for name, value in SETTINGS.items()})
    make_database(home / "mlflow.db")
    names = [f"{host}:{port}" for host in (HOST, "localhost")]
    users = home / "basic_auth.db"  # where MLflow has it by itself
    user, _, password = make_login(home).partition(":")
    if users.exists() and users.stat().st_mtime < login_file(home).stat().st_mtime:
        users.unlink()  # it has another password
    command = [
        sys.executable, "-m", "mlflow", "server", "--app-name", "basic-auth", "--host", HOST, "--port", str(port),
        "--workers", "1", "--backend-store-uri", f"sqlite:///{home / 'mlflow.db'}",
        "--artifacts-destination", str(home / "artifacts"), "--allowed-hosts", ",".join(names),
        "--cors-allowed-origins", ",".join(f"http://{name}" for name in names),
    ]  # fmt: skip
    return command, {
        **{name: text for name, text in os.environ.items() if not name.startswith(("MLFLOW_", "_MLFLOW_"))},
        **SETTINGS,
        # Its job runner is eight processes that we do not use; with litellm installed it can deadlock at the start.
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",  # into its log, for each file that is served
        "MLFLOW_AUTH_ADMIN_USERNAME": user,
        "MLFLOW_AUTH_ADMIN_PASSWORD": password,
        "MLFLOW_FLASK_SERVER_SECRET_KEY": secrets.token_hex(16),
    }  # fmt: skip

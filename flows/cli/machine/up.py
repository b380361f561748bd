"""`nightshift up` and `nightshift down`: the Prefect server, a worker and the MLflow UI on this machine.

They use the data of the home, listen on 127.0.0.1 and outlive the terminal. `up` starts what is not running, so
calling it again restarts what died. Each is noted in runs/.prefect/<name>.json and logs to runs/.prefect/<name>.log.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
from rich.console import Console

from environments.plugins import Refused
from flows.cli.running.stop import stop
from flows.server import automations, mlflow_process, postgres, server_process, zombies
from flows.server.api import Api
from flows.views.own_servers import NO_LOGIN, login_steps, own_servers
from flows.views.status import urls
from flows.views.terminal import binaries
from tasks.store import campaign_lock
from tasks.store.ledger import Ledger, campaigns
from tasks.system.daemon import START_SECONDS, Daemon, Note
from tasks.system.home import home
from tasks.system.login import make_login

POOL = "trainers"
"""The work pool of every deployment in prefect.yaml."""
CLEAR_SECONDS = 60.0
"""How long an interrupted command may take to leave the server."""
TITLES = {"server": "Prefect", "mlflow": "MLflow", "worker": "worker"}
"""The programs, in the order in which they are shown."""
POLL_SECONDS = "5"
"""How often the worker asks for runs."""


def up(auth: bool, database: str | None = None) -> int:
    """Start what is not running, wait until each answers, and print the addresses.

    Args:
        database: The address of a PostgreSQL database for the server; None: NIGHTSHIFT_DATABASE, else SQLite.

    Raises:
        Refused: something did not start, or the running server has another kind of login or database than asked for.
    """
    server_process.settle_in(home())
    directory, console = home() / ".prefect", Console(highlight=False, soft_wrap=True)
    database = postgres.stated(database)  # refused before anything starts
    with server_process.exclusively(directory / "up.lock"), console.status("starting ..."):
        before = _living(directory)
        if (server := before["server"]) and (server.stays or server_process.in_use(directory)):
            _check(server, auth, database)  # before MLflow is started anew with or without a login
        for name in TITLES:
            Daemon(directory, name).trim()
        with ThreadPoolExecutor() as side:  # each takes ten seconds and more, mostly for imports
            mlflow = side.submit(mlflow_process.start, home(), auth)
            server = _server(directory, auth, database)
            crashed, resumed = _recover(server)
            _start_worker(directory, server)
        mlflow.result()
        now = _living(directory)
    for name, title in TITLES.items():
        note, earlier = now[name], before[name]
        if note is None:
            raise Refused(f"{title} ended right after its start; see {directory / name}.log")
        where = f"of the pool {POOL}" if name == "worker" else _page(note)
        how = f"running since {_moment(note)}" if earlier and earlier.pid == note.pid else "started"
        how += "" if note.auth or name == "worker" else f", {NO_LOGIN}"
        how += ", on PostgreSQL" if note.database else ""
        console.print(f"  {title:<8} {where:<28} [dim]{how}[/]")
    for name in crashed:
        console.print(f"  {name}: its process was gone; marked Crashed, so that automations can resume it")
    for name in resumed:
        console.print(f"  {name}: had crashed without being resumed; resumed now")
    _print_next_steps(server, console)
    return 0


def down(now: bool) -> int:
    """End what `up` started; with `now` first interrupt the campaigns that run on it. They can be resumed.

    Raises:
        Refused: a campaign is running on it.
    """
    directory = home() / ".prefect"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with server_process.exclusively(directory / "up.lock"):
        server = server_process.daemon(directory).living()
        # A worker may still train for a server that has died.
        if in_use := server if server and server.stays else Daemon(directory, "worker").living():
            _clear(directory, in_use, now)
        ended = [name for name in ("worker", "mlflow") if Daemon(directory, name).end()]
        with server_process.exclusively(directory / "start.lock"):
            # A command that has come meanwhile keeps the server, and ends it when it leaves.
            server_process.daemon(directory).keep(False)
            ended += ["server"] * server_process.stop_unused(directory)
    print(f"ended: {', '.join(ended)}" if ended else "nothing of `nightshift up` is running")
    if "worker" in ended:
        print("scheduled campaigns do not start until `nightshift up` runs again")
    return 0


def _clear(directory: Path, server: Note, now: bool) -> None:
    """Return when nobody uses the server; with `now`, interrupt the campaigns on it first."""
    busy = [
        name
        for name in campaigns()
        if campaign_lock.is_running(ledger := Ledger.open(name))
        and urls(ledger).get("prefect", "").startswith(_page(server))
    ]
    if busy and not now:
        raise Refused(
            f"{', '.join(busy)} runs on the Prefect server at {_page(server)}: wait for its end, "
            f"`nightshift stop {busy[0]}`, or `nightshift down --now`, after which it can be resumed"
        )
    for name in busy:
        with contextlib.suppress(Refused):  # it has ended meanwhile
            stop(name, now=True)
    deadline = time.monotonic() + CLEAR_SECONDS * now
    while _is_used(directory):
        if time.monotonic() > deadline:
            raise Refused(f"a command still uses the Prefect server at {_page(server)}: wait for its end")
        time.sleep(0.2)


def _is_used(directory: Path) -> bool:
    with server_process.exclusively(directory / "start.lock"):
        return server_process.in_use(directory)


def _server(directory: Path, auth: bool, database: str | None) -> Note:
    """The server, which stays from now on: started, or taken over from the campaign that started it."""
    server = server_process.daemon(directory)
    with server_process.exclusively(directory / "start.lock"):
        if server.living():
            server_process.stop_unused(directory)
        alive = server_process.healthy(directory)
        if alive is None:
            login = make_login(directory.parent) if auth else None
            server_process.start(directory, auth=login, stays=True, database=database)
        else:
            _check(alive, auth, database)
            server.keep()
        note = server.living()
    assert note is not None, "it has just answered"
    return note


def _check(alive: Note, auth: bool, database: str | None) -> None:
    """Refuse a running server that has another kind of login or database than asked for."""
    if bool(alive.database) != bool(database):
        raise Refused(
            f"the Prefect server at {_page(alive)} {'uses' if alive.database else 'does not use'} PostgreSQL: "
            f"`nightshift down` ends it; runs are not moved from one database to the other"
        )
    if alive.auth and not auth:
        raise Refused(
            f"the Prefect server at {_page(alive)} asks for a login: `nightshift down` ends it, "
            f"and `nightshift up --no-auth` starts one that does not"
        )
    if auth and not alive.auth:
        raise Refused(
            f"the Prefect server at {_page(alive)} asks for no login (started with --no-auth, or by an earlier "
            f"version): `nightshift down`, then `nightshift up` replaces it; `nightshift up --no-auth` keeps it"
        )


def _recover(server: Note) -> tuple[list[str], list[str]]:
    """Install the automations; the names of dead runs now marked Crashed, and of crashed runs now resumed.

    Raises:
        Refused: the server did not take the automations.
    """
    login = server_process.credentials(server.url, home())
    try:
        automations.put(server.url, login)
        return zombies.sweep(server.url, login), zombies.resume_forgotten(server.url, login)
    except httpx.HTTPError as why:
        raise Refused(f"the Prefect server at {_page(server)} does not take automations.yaml: {why}") from why


def _start_worker(directory: Path, server: Note) -> None:
    """A worker of the pool, one campaign at a time; it makes the pool if there is none."""
    worker = Daemon(directory, "worker")
    note = worker.living()
    if note and (note.url, note.auth) == (server.url, server.auth):
        return
    worker.end()
    began = time.time()
    command = [
        sys.executable, "-m", "prefect", "worker", "start", "--pool", POOL, "--type", "process",
        "--name", platform.node(), "--limit", "1", "--install-policy", "never",
    ]  # fmt: skip
    login = server_process.auth_string(server.url, home())
    environment = {
        **{name: value for name, value in os.environ.items() if name != postgres.VARIABLE},
        "PREFECT_API_URL": server.url,
        **({"PREFECT_API_AUTH_STRING": login} if login else {}),
        "NIGHTSHIFT_HOME": str(directory.parent),
        "PREFECT_WORKER_QUERY_SECONDS": POLL_SECONDS,
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "INFO",
    }
    process = worker.launch(command, environment, server.url, auth=server.auth, stays=True)
    deadline = time.monotonic() + START_SECONDS
    while not _has_heartbeat(server, since=began):
        if process.poll() is not None or time.monotonic() > deadline:
            last_words = worker.last_words()
            worker.end()
            raise Refused(f"the worker did not start; see {worker.log}:\n{last_words}")
        time.sleep(0.2)
    process.returncode = 0  # it outlives this command, which must not wait for it


def _has_heartbeat(server: Note, since: float) -> bool:
    """Whether the server has heard from the worker of this machine since then (Unix time, in seconds)."""
    try:
        with Api(server.url, server_process.credentials(server.url, home()), patience=0) as api:
            workers = api.ask("POST", f"/work_pools/{POOL}/workers/filter", {})
    except httpx.HTTPError:  # the server is still busy, or there is no such pool yet
        return False
    heartbeats = [worker["last_heartbeat_time"] for worker in workers if worker["name"] == platform.node()]
    return any(datetime.datetime.fromisoformat(moment).timestamp() >= since for moment in heartbeats)


def _living(directory: Path) -> dict[str, Note | None]:
    return {name: Daemon(directory, name).living() for name in TITLES}


def _moment(note: Note) -> str:
    """When a program was started, with the day unless that is today."""
    started = time.localtime(note.started)
    return time.strftime("%H:%M" if started.tm_yday == time.localtime().tm_yday else "%d %b %H:%M", started)


def _page(server: Note) -> str:
    """The address for a browser."""
    return server.url.removesuffix("/api")


def _print_next_steps(server: Note, console: Console) -> None:
    here = binaries()
    steps = {
        **login_steps(own_servers(home())),
        "deploy": f"{here}prefect --no-prompt deploy --all",
        "open": f"{_page(server)}/v2/deployments",
        "end": f"{here}nightshift down",
    }
    console.print("\nwhat next")
    for label, text in steps.items():
        console.print(f"  {label:<12} {text}", markup=False)

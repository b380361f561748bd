"""`nightshift up` and `nightshift down`: the Prefect server, a worker and the MLflow UI on this machine.

They use the data of the home, listen on 127.0.0.1 and outlive the terminal. `up` starts what is not running, so
calling it again restarts what died. Each is noted in runs/.prefect/<name>.json and logs to runs/.prefect/<name>.log.
A start lasts as long as its process lives. If one fails, those that still start are ended and the others stay; an
interrupted call ends all that it has started.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.text import Text

from environments.plugins import Refused
from flows.cli.machine.starting import StartBoard
from flows.cli.running.stop import stop
from flows.server import automations, block_types, mlflow_process, postgres, resuming, server_process
from flows.server.api import Api
from flows.views import terminal
from flows.views.own_servers import NO_LOGIN, login_steps, own_servers
from flows.views.status import urls
from tasks.remote import jobs
from tasks.store import campaign_lock
from tasks.store.ledger import readable
from tasks.system import interrupt
from tasks.system.daemon import Daemon, Note
from tasks.system.home import home
from tasks.system.login import make_login
from tasks.tracking.pages import experiments_page

POOL = "trainers"
"""The work pool of every deployment in prefect.yaml."""
CATALOGUE, ENTRYPOINT = Path(server_process.__file__).with_name("prefect.yaml"), "flows.campaign.campaign"
"""The catalogue of deployments, a link in a checkout; what a catalogue of ours names."""
CLEAR_SECONDS = 60.0
"""How long an interrupted command may take to leave the server."""
TITLES = {"server": "Prefect", "mlflow": "MLflow", "worker": "worker"}
"""The programs, in the order in which they are shown."""
LOOK_SECONDS = 0.2
"""Between two looks at programs that start."""
POLL_SECONDS = "5"
"""How often the worker asks for runs."""


def up(auth: bool, database: str | None = None) -> int:
    """Start what is not running, wait until each answers, and print the addresses.

    Args:
        database: The address of a PostgreSQL database for the server; None: NIGHTSHIFT_DATABASE, else SQLite.

    Raises:
        Refused: something did not start, or the running server has another kind of login or database than asked for.
        KeyboardInterrupt: this process was asked to end; what it had started is ended.
    """
    server_process.settle_in(home())
    directory, console = home() / ".prefect", terminal.console()
    database = postgres.stated(database)  # refused before anything starts
    with interrupt.deferred(), server_process.exclusively(directory / "up.lock"):
        before = _living(directory)
        if (server := before["server"]) and (server.stays or server_process.in_use(directory)):
            _check(server, auth, database)  # before MLflow is started anew with or without a login
        try:
            with StartBoard(console, TITLES, directory) as board:
                server, recovered = _start(board, directory, before, auth, database)
            if gone := [title for name, title in TITLES.items() if _living(directory)[name] is None]:
                raise Refused(f"{', '.join(gone)} ended right after the start; the logs are in {directory}")
        except KeyboardInterrupt:
            _take_back(directory, before)
            left = _left_running(directory)
            print(f"nightshift: interrupted; what had been started is ended; {left}", file=sys.stderr)
            raise
        except Refused as why:
            raise Refused(f"{why}\n{_left_running(directory)}") from why
        except OSError:
            print(_left_running(directory), file=sys.stderr)
            raise
    for line in recovered:
        terminal.whole(console, Text(f"  {line}"))
    _print_next_steps(server, console)
    return 0


def _start(
    board: StartBoard, directory: Path, before: Mapping[str, Note | None], auth: bool, database: str | None
) -> tuple[Note, list[str]]:
    """Start what is missing, side by side; the server, and what was recovered there. The first failure ends it."""

    def ready(name: str, where: str = "") -> Note:
        note, earlier = Daemon(directory, name).living(), before[name]
        if note is None:
            raise Refused(f"{TITLES[name]} ended right after its start; see {directory / name}.log")
        extra = "" if note.auth or name == "worker" else f", {NO_LOGIN}"
        extra += ", on PostgreSQL" if note.database else ""
        since = _moment(note) if earlier and earlier.pid == note.pid else ""
        page = experiments_page(note.url) if name == "mlflow" else _page(note)
        board.ready(name, where or page, since, extra)
        return note

    def mlflow() -> None:
        mlflow_process.start(home(), auth, board.begin("mlflow"))
        ready("mlflow")

    def server_and_worker() -> tuple[Note, list[str]]:
        _server(directory, auth, database, board.begin("server"))
        server = ready("server")
        resumed = _recover(server)
        _start_worker(directory, server, board.begin("worker"))
        ready("worker", f"of the pool {POOL}")
        return server, [f"{name}: its process was gone; resumed now" for name in resumed]

    with ThreadPoolExecutor() as side:  # each takes ten seconds and more, mostly for imports
        chain, other = side.submit(server_and_worker), side.submit(mlflow)
        pending: set[Future[Any]] = {chain, other}
        try:
            while pending:
                interrupt.check()
                board.draw()
                done, pending = wait(pending, timeout=LOOK_SECONDS, return_when=FIRST_COMPLETED)
                for start in done:
                    start.result()
        except BaseException:
            with interrupt.asked():  # those that still start give up
                wait(pending)
            raise
    return chain.result()


def _take_back(directory: Path, before: Mapping[str, Note | None]) -> None:
    """End what has been started since. A server that a campaign uses ends with that."""
    for name in ("worker", "mlflow"):
        note, earlier = Daemon(directory, name).living(), before[name]
        if note and (earlier is None or earlier.pid != note.pid):
            Daemon(directory, name).end()
    if (earlier := before["server"]) is None or not earlier.stays:
        with server_process.exclusively(directory / "start.lock"):
            server_process.daemon(directory).keep(False)
            server_process.stop_unused(directory)


def _left_running(directory: Path) -> str:
    """The programs that run now, and what to do with them."""
    living = {name: note for name, note in _living(directory).items() if note}
    if not living:
        return "nothing of `nightshift up` is left running"
    where = [TITLES[name] + ("" if name == "worker" else f" at {_page(note)}") for name, note in living.items()]
    return f"left running: {', '.join(where)}; `nightshift up` starts what is missing, `nightshift down` ends them"


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
    for line in jobs.sweep(lambda job: True):
        print(line)
    print(f"ended: {', '.join(ended)}" if ended else "nothing of `nightshift up` is running")
    if "worker" in ended:
        print("scheduled campaigns do not start until `nightshift up` runs again")
    return 0


def _clear(directory: Path, server: Note, now: bool) -> None:
    """Return when nobody uses the server; with `now`, interrupt the campaigns on it first."""
    busy = [
        ledger.campaign.name
        for ledger in readable()
        if campaign_lock.is_running(ledger) and urls(ledger).get("prefect", "").startswith(_page(server))
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


def _server(directory: Path, auth: bool, database: str | None, still: Callable[[str], None] | None = None) -> Note:
    """The server, which stays from now on: started, or taken over from the campaign that started it."""
    server = server_process.daemon(directory)
    with server_process.exclusively(directory / "start.lock"):
        if server.living():
            server_process.stop_unused(directory)
        alive = server_process.healthy(directory)
        if alive is None:
            login = make_login(directory.parent) if auth else None
            server_process.start(directory, auth=login, stays=True, database=database, still=still)
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


def _recover(server: Note) -> list[str]:
    """Install the automations; the names of runs that were cut off, and are resumed now.

    Raises:
        Refused: the server did not take the automations.
    """
    login = server_process.credentials(server.url, home())
    try:
        automations.put(server.url, login)
        with server_process.used(server.url, home()):
            block_types.register()
        return resuming.resume_cut_off(server.url, login)
    except httpx.HTTPError as why:
        raise Refused(f"the Prefect server at {_page(server)} does not take automations.yaml: {why}") from why


def _start_worker(directory: Path, server: Note, still: Callable[[str], None]) -> None:
    """A worker of the pool, one campaign at a time; it makes the pool if there is none. `still`: as of `serve`."""
    worker = Daemon(directory, "worker")
    note = worker.living()
    if note and (note.url, note.auth) == (server.url, server.auth):
        return
    worker.end()
    began = time.time()
    command = [
        sys.executable, "-m", "flows.server.corrected_prefect", "worker", "start", "--pool", POOL, "--type", "process",
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
    try:
        while not _has_heartbeat(server, since=began):
            if (status := process.poll()) is not None:
                raise worker.came_to_nothing(status)
            still("")
            time.sleep(LOOK_SECONDS)
    except BaseException:  # interrupted: nothing would end it later
        worker.give_up(process)
        raise
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


def _catalogue() -> str:
    """The option that names the catalogue; nothing in a folder with one, such as the checkout or that of a copy."""
    local = Path("prefect.yaml")
    if local.is_file() and ENTRYPOINT in local.read_text(encoding="utf-8", errors="replace"):
        return ""
    return f" --prefect-file {shlex.quote(str(CATALOGUE.resolve()))}"


def _print_next_steps(server: Note, console: Console) -> None:
    here = terminal.binaries()
    steps = {
        **login_steps(own_servers(home())),
        "deploy": f"{here}prefect --no-prompt deploy --all{_catalogue()}",
        "open": f"{_page(server)}/v2/deployments",
        "end": f"{here}nightshift down",
    }
    console.print("\nwhat next")
    for label, text in steps.items():
        terminal.whole(console, Text(f"  {label:<12} {text}"))

"""`nightshift up` and `nightshift down`: what campaigns are deployed on, and looked at with, on this machine.

Three programs on the data of the home, bound to 127.0.0.1, that outlive the terminal: the Prefect server, a worker
for the pool that prefect.yaml names, and the MLflow UI. `up` starts what is not running and says what is, so calling
it again mends what died. Each is noted in runs/.prefect/<name>.json and prints into runs/.prefect/<name>.log.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
from rich.console import Console

from environments.plugins import Refused
from flows.server import automations, connect, postgres, zombies
from flows.views.status import urls
from flows.views.terminal import binaries, short
from tasks.store import life
from tasks.store.ledger import Ledger, campaigns
from tasks.system.daemon import HOST, START_SECONDS, Daemon, Note, address, answers, serve
from tasks.system.home import home

POOL = "trainers"
"""The work pool of every deployment in prefect.yaml."""
MLFLOW_PORT = 5000
LIGHT = {
    # Its job runner is eight processes for what we do not use, and with litellm beside it can lock up at the start.
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
}
CLEAR_SECONDS = 60.0
"""How long a command that was interrupted may take to leave."""
NAMES = (("postgres", "database"), ("server", "Prefect"), ("mlflow", "MLflow"), ("worker", "worker"))
"""What `up` starts, as it is told; the first only with --production."""
POLL_SECONDS = "5"
"""How often the worker asks for runs: whoever presses a button waits for it."""


def up(auth: bool, on_postgres: bool = False, database: str | None = None) -> int:
    """Start what is not running yet, wait until each answers, and say where it is.

    A server that runs already is taken as it is, unless it differs in whether it asks for a password, or in where
    its data are.

    Args:
        on_postgres: Whether the server keeps its data in PostgreSQL; so it does where an address is stated.
        database: That address; None: NIGHTSHIFT_DATABASE's, else that of a cluster of our own.

    Raises:
        Refused: something did not come up, or the server that runs differs from what is asked for.
    """
    connect.settle_in(home())
    directory, console = home() / ".prefect", Console(highlight=False, soft_wrap=True)
    on_postgres = postgres.stated(database) is not None or on_postgres  # refused before anything starts
    with connect.exclusively(directory / "up.lock"), console.status("starting ..."):
        before = {daemon.name: daemon.living() for daemon in _all(directory)}
        for daemon in _all(directory):
            daemon.trim()
        with ThreadPoolExecutor() as side:  # each takes ten seconds and more, most of them for its imports
            page = side.submit(_mlflow, directory)
            server = _server(directory, auth, on_postgres, database)
            dead, forgotten = _recover(server)
            _worker(directory, server)
        page.result()
        now = {daemon.name: daemon.living() for daemon in _all(directory)}
    for name, what in NAMES:
        note, was = now[name], before[name]
        if note is None and name == "postgres":
            continue
        if note is None:
            raise Refused(f"{what} ended right after its start; see {directory / name}.log")
        where = f"of the pool {POOL}" if name == "worker" else note.url.removesuffix("/api")
        how = _since(note) if was and was.pid == note.pid else "started"
        how += ", asks for no password" if name == "server" and not note.auth else ""
        how += ", on PostgreSQL" if note.database else ""
        console.print(f"  {what:<8} {where:<28} [dim]{how}[/]")
    for name in dead:
        console.print(f"  {name}: its process was gone; it is marked Crashed, and resumed if it is to be")
    for name in forgotten:
        console.print(f"  {name}: it had crashed and nobody heard; it is resumed")
    if not on_postgres and postgres.Cluster(directory).data.exists():
        console.print("  the runs of `nightshift up --production` are in its own database, not in this one")
    _what_next(server, console)
    return 0


def down(now: bool) -> int:
    """End what `up` started; with `now` also the campaigns that run on it, which can be resumed.

    Raises:
        Refused: a campaign is running on it.
    """
    directory = home() / ".prefect"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with connect.exclusively(directory / "up.lock"):
        server = connect.daemon(directory).living()
        # A worker may still train for a server that has died.
        if used := server if server and server.stays else _worker_of(directory).living():
            _clear(directory, used, now)
        ended = [daemon.name for daemon in (_worker_of(directory), _mlflow_of(directory)) if daemon.end()]
        with connect.exclusively(directory / "start.lock"):
            # Whoever has come meanwhile may go on using it, and ends it in the end.
            connect.daemon(directory).keep(False)
            ended += ["server"] * connect.stop_unused(directory)
        if connect.daemon(directory).living() is None:
            ended += ["postgres"] * postgres.Cluster(directory).end()
    print(f"ended: {', '.join(ended)}" if ended else "nothing of `nightshift up` is running")
    if "worker" in ended:
        print("scheduled campaigns do not start until `nightshift up` runs again")
    return 0


def _clear(directory: Path, server: Note, now: bool) -> None:
    """Return when nobody uses the server any more; with `now`, interrupt who does."""
    from flows.cli.running import foreground

    busy = running_on(server)
    if busy and not now:
        raise Refused(
            f"{', '.join(busy)} runs on the Prefect server at {_page(server)}: wait for its end, "
            f"`nightshift stop {busy[0]}`, or `nightshift down --now`, after which it can be resumed"
        )
    for name in busy:
        with contextlib.suppress(Refused):  # it has just ended by itself
            foreground.stop(name, now=True)
    deadline = time.monotonic() + CLEAR_SECONDS * now
    while _is_used(directory):
        if time.monotonic() > deadline:
            raise Refused(f"a command still uses the Prefect server at {_page(server)}: wait for its end")
        time.sleep(0.2)


def _is_used(directory: Path) -> bool:
    with connect.exclusively(directory / "start.lock"):
        return connect.in_use(directory)


def running_on(server: Note) -> list[str]:
    """The campaigns of this home that run on our own server now."""
    ledgers = [Ledger.open(name) for name in campaigns()]
    return [
        ledger.path.name
        for ledger in ledgers
        if life.is_running(ledger) and urls(ledger).get("prefect", "").startswith(_page(server))
    ]


def _server(directory: Path, auth: bool, on_postgres: bool, database: str | None) -> Note:
    """The server, which stays from now on: started, or taken over from a campaign that started one for itself."""
    with connect.exclusively(directory / "start.lock"):
        if connect.daemon(directory).living():
            connect.stop_unused(directory)
        alive = connect.healthy(directory)
        if alive and bool(alive.database) != on_postgres:
            raise Refused(
                f"the Prefect server at {_page(alive)} keeps its data {'in' if alive.database else 'outside'} "
                f"PostgreSQL: `nightshift down` ends it; nothing moves from one to the other by itself"
            )
        # A server that lives needs its database as much as one that is to be started.
        where = postgres.address(directory, database) if on_postgres else None
        if alive is None:
            secret = connect.make_auth(directory.parent) if auth else None
            connect.start(directory, auth=secret, stays=True, database=where)
        elif alive.auth and not auth:
            raise Refused(
                f"the Prefect server at {_page(alive)} asks for a password: `nightshift down` ends it, "
                f"and `nightshift up --no-auth` starts one that does not"
            )
        elif not alive.stays and auth:
            raise Refused(
                f"a campaign runs on a Prefect server of its own, without a password, at {_page(alive)}: wait "
                f"for its end (`nightshift list`), or keep that server with `nightshift up --no-auth`"
            )
        elif not alive.stays:
            connect.daemon(directory).keep()
        note = connect.daemon(directory).living()
    assert note is not None, "it has just answered"
    return note


def _recover(server: Note) -> tuple[list[str], list[str]]:
    """Have the server resume what crashes; the names of runs that died while nobody looked, and of those resumed now.

    Raises:
        Refused: the server did not take the automations.
    """
    who = connect.credentials(server.url, home())
    try:
        automations.put(server.url, who)
        return zombies.sweep(server.url, who), zombies.resume_forgotten(server.url, who)
    except httpx.HTTPError as why:
        raise Refused(f"the Prefect server at {_page(server)} does not take automations.yaml: {why}") from why


def _mlflow(directory: Path) -> None:
    """The MLflow UI on the home's own database, which is made first if it is missing."""
    mlflow, database = _mlflow_of(directory), directory.parent / "mlflow.db"
    note = mlflow.living()
    if note and answers(note.url, connect.PATIENCE_SECONDS):
        return
    mlflow.end()
    _make_database(database)
    from tasks.tracking.connection import SETTINGS

    # What is said about another server is not for this one.
    mine = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
    environment = {**mine, **SETTINGS, **LIGHT}
    artifacts = (directory.parent / "artifacts").as_uri()

    def launch(port: int) -> subprocess.Popen[bytes]:
        command = [
            sys.executable, "-m", "mlflow", "server", "--host", HOST, "--port", str(port), "--workers", "1",
            "--backend-store-uri", f"sqlite:///{database}", "--default-artifact-root", artifacts,
        ]  # fmt: skip
        return mlflow.launch(command, environment, address(port), stays=True)

    serve(mlflow, MLFLOW_PORT, launch)


def _make_database(database: Path) -> None:
    """Build a fresh MLflow database before any server opens it, alone and under its lock."""
    if database.exists() and database.stat().st_size:
        return
    from tasks.tracking.connection import Store, build_database, prepare_mlflow

    prepare_mlflow({})
    with Store(f"sqlite:///{database}", database.parent, {}).lock(seconds=60):
        build_database(database)


def _worker(directory: Path, server: Note) -> None:
    """A worker of the pool, one campaign at a time; it makes the pool if there is none."""
    worker = _worker_of(directory)
    note = worker.living()
    if note and (note.url, note.auth) == (server.url, server.auth):
        return
    worker.end()
    began = time.time()
    command = [
        sys.executable, "-m", "prefect", "worker", "start", "--pool", POOL, "--type", "process",
        "--name", platform.node(), "--limit", "1", "--install-policy", "never",
    ]  # fmt: skip
    environment = {
        **{name: value for name, value in os.environ.items() if name != postgres.VARIABLE},
        **client_environment(server),
        "NIGHTSHIFT_HOME": str(directory.parent),
        "PREFECT_WORKER_QUERY_SECONDS": POLL_SECONDS,
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "INFO",
    }
    process = worker.launch(command, environment, server.url, auth=server.auth, stays=True)
    deadline = time.monotonic() + START_SECONDS
    while not _has_beaten(server, since=began):
        if process.poll() is not None or time.monotonic() > deadline:
            words = worker.last_words()
            worker.end()
            raise Refused(f"the worker did not come up; see {worker.log}:\n{words}")
        time.sleep(0.2)
    process.returncode = 0  # whoever ends it does so by its number


def _has_beaten(server: Note, since: float) -> bool:
    """Whether the server has heard from the worker of this machine since then (Unix time, in seconds)."""
    try:
        answer = httpx.post(
            f"{server.url}/work_pools/{POOL}/workers/filter",
            json={},
            auth=connect.credentials(server.url, home()),
            timeout=10,
        )
    except httpx.TransportError:  # a server that has just started may be too busy to answer
        return False
    if not answer.is_success:  # there is no such pool yet
        return False
    heard = [one["last_heartbeat_time"] for one in answer.json() if one["name"] == platform.node()]
    return any(datetime.datetime.fromisoformat(moment).timestamp() >= since for moment in heard)


def client_environment(server: Note) -> dict[str, str]:
    """What a Prefect client needs to talk to our own server."""
    secret = connect.auth_string(server.url, home())
    return {"PREFECT_API_URL": server.url, **({"PREFECT_API_AUTH_STRING": secret} if secret else {})}


def _all(directory: Path) -> tuple[Daemon, ...]:
    database = postgres.Cluster(directory).daemon
    return database, connect.daemon(directory), _mlflow_of(directory), _worker_of(directory)


def _mlflow_of(directory: Path) -> Daemon:
    return Daemon(directory, "mlflow")


def _worker_of(directory: Path) -> Daemon:
    return Daemon(directory, "worker")


def _since(note: Note) -> str:
    same_day = time.strftime("%j", time.localtime(note.started)) == time.strftime("%j")
    return "running since " + time.strftime(
        "%H:%M" if same_day else "%d %b %H:%M", time.localtime(note.started)
    )


def _page(server: Note) -> str:
    """What a person opens."""
    return server.url.removesuffix("/api")


def _what_next(server: Note, console: Console) -> None:
    here = binaries()
    private = shlex.quote(short(connect.auth_file(home())))
    export = f"export PREFECT_API_URL={server.url}"
    steps = {"open": f"{_page(server)}/v2/deployments", "end": f"{here}nightshift down"}
    deploy = f"{here}prefect --no-prompt deploy --all"
    if server.auth:
        export += f' PREFECT_API_AUTH_STRING="$(cat {private})"'
        steps = {"password": f"cat {private}  (the page asks for that line, once)", **steps}
    console.print("\nwhat next")
    for label, text in {"deploy": export, "": deploy, **steps}.items():
        console.print(f"  {label:<8} {text}", markup=False)

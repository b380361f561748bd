"""The verbs up and down: the Prefect server, a worker and the MLflow server on this machine.

They use the data of the home, listen on 127.0.0.1 and outlive the terminal. Each is a plain command of Prefect's or
MLflow's, is started again where it dies, and is noted in runs/.prefect/<name>.json beside its log. Where
PREFECT_API_URL or MLFLOW_TRACKING_URI name a server of somebody else's, that one is used.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from filelock import FileLock

from environments.plugins import Refused
from flows.cli.options import Server
from flows.cli.running import stop
from flows.server import server_process
from flows.server.setup import POOL, resume_cut_off, set_up
from flows.views import terminal
from tasks.remote import jobs
from tasks.store import campaign_lock
from tasks.store.ledger import readable
from tasks.system import interrupt
from tasks.system.daemon import Daemon, own_servers
from tasks.system.home import home
from tasks.system.redact import without_passwords
from tasks.tracking.sync import WORKFLOW

CATALOGUE = Path(server_process.__file__).with_name("prefect.yaml").resolve()
"""The catalogue of deployments, in a checkout a link."""
EXPORTS = {
    "prefect": 'export PREFECT_API_URL={url} PREFECT_API_AUTH_STRING="$(cat {file})"',
    "mlflow": 'export MLFLOW_TRACKING_URI={url} MLFLOW_TRACKING_USERNAME="$(cut -d: -f1 {file})" '
    'MLFLOW_TRACKING_PASSWORD="$(cut -d: -f2- {file})"',
}
"""Lines for a shell, of a server at `url` whose login is in `file`."""


def up(*, server: Server = None) -> int:
    """Start a Prefect server, a worker and the MLflow UI on this machine. They keep running.

    With --server nothing is started: automations, block types and the work pool are put on that server.

    Example: nightshift up
    """
    if server and (theirs := server_process.stated_server(server, home())):
        with server_process.prefect_server(theirs, home()):
            set_up()
        print(f"automations, block types and the pool {POOL} are there")
        return 0
    directory = home() / ".prefect"
    directory.mkdir(mode=0o700, exist_ok=True)
    with FileLock(directory / "up.lock"), interrupt.deferred():
        stated = server_process.stated_server(None, home())
        with server_process.prefect_server(stated, home()) as url:
            whose = f", of PREFECT_API_URL; `nightshift up --server {stated}` makes it ready" if stated else ""
            print(f"  Prefect  {without_passwords(url.removesuffix('/api') + whose)}", flush=True)
            if not stated:
                set_up()
                for name in resume_cut_off():
                    print(f"  {name}: its process was gone; resumed now")
            _start_worker(directory, url)
        print(f"  worker   of the pool {POOL}", flush=True)
        theirs = os.environ.get("MLFLOW_TRACKING_URI", "").rstrip("/")
        if theirs and not Daemon(directory, "mlflow").is_own(theirs):
            print(f"  MLflow   {without_passwords(theirs)}, of MLFLOW_TRACKING_URI", flush=True)
        else:
            print(f"  MLflow   {server_process.mlflow_server(home())}/#/experiments?{WORKFLOW}", flush=True)
        interrupt.check()
    here = terminal.binaries()
    deploy = f"{here}prefect --no-prompt deploy --all --prefect-file {shlex.quote(str(CATALOGUE))}"
    print("\nwhat next")
    for label, text in {**login_steps(own_servers(home())), "deploy": deploy, "end": f"{here}nightshift down"}.items():
        print(f"  {label:<12} {text}")
    return 0


def down(*, now: bool = False) -> int:
    """Stop what up started. Refused while a campaign runs on it.

    Example: nightshift down --now

    Args:
        now: Interrupt campaigns that run on it.
    """
    directory = home() / ".prefect"
    directory.mkdir(mode=0o700, exist_ok=True)
    ended = []
    with FileLock(directory / "up.lock"):
        worker = Daemon(directory, "worker")
        if note := worker.living():
            _interrupt(note.url, now)
            ended += ["worker"] * worker.end()
        ended += ["mlflow"] * Daemon(directory, "mlflow").end()
        if server_process.stop_unused(directory):
            ended.append("server")
        elif Daemon(directory, "server").living():
            print("the Prefect server is still used, and ends with the command that uses it")
    for line in jobs.sweep(lambda job: True):
        print(line)
    print(f"ended: {', '.join(ended)}" if ended else "nothing of `nightshift up` is running")
    return 0


def _interrupt(api: str, now: bool) -> None:
    """Interrupt the campaigns that run on a server. Refused where that was not wanted."""
    running = [ledger for ledger in readable() if campaign_lock.is_running(ledger)]
    busy = [one.campaign.name for one in running if str(campaign_lock.holder(one).get("api")).startswith(api)]
    if busy and not now:
        raise Refused(
            f"{', '.join(busy)} runs on the Prefect server at {api.removesuffix('/api')}: wait for its end, "
            f"`nightshift stop {busy[0]}`, or `nightshift down --now`, after which it can be resumed"
        )
    for name in busy:
        with contextlib.suppress(Refused):  # it has ended meanwhile
            stop(name, now=True)


def _start_worker(directory: Path, url: str) -> None:
    """A worker of the pool, one campaign at a time, unless one runs for this server."""
    worker = Daemon(directory, "worker")
    if note := worker.living():
        if note.url == url:
            return
        _interrupt(note.url, now=False)
    worker.end()
    environment = {
        **os.environ,
        "PREFECT_API_URL": url,
        "PREFECT_API_AUTH_STRING": server_process.auth_string(url, home()),
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "INFO",
        "PREFECT_WORKER_QUERY_SECONDS": "5",  # how often it asks for runs
        "NIGHTSHIFT_HOME": str(directory.parent),
    }
    command = [
        sys.executable, "-m", "prefect", "worker", "start", "--pool", POOL, "--type", "process",
        "--name", platform.node(), "--limit", "1", "--install-policy", "never",
    ]  # fmt: skip
    worker.start(command, environment, url, is_server=False)


def login_steps(servers: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """How to log in at their pages, and the lines with which other programs, a notebook too, use them."""
    steps = {}
    for server in servers:
        file = shlex.quote(terminal.short(Path(server["login"])))
        steps["login"] = f"cat {file}  (user:password; a page asks once)"
        steps[f"for {server['name']}"] = EXPORTS[server["name"]].format(url=server["url"], file=file)
    return steps

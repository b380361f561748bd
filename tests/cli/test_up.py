"""`nightshift up` and `down`: three programs that outlive the terminal, and nothing of anybody else's is ever ended."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from environments.plugins import Refused
from flows.cli.services import login_steps
from flows.status import urls
from tasks.store.ledger import Ledger
from tasks.system.daemon import Daemon, Note, own_servers
from tasks.system.home import make_login
from tasks.system.orphans import identity
from tasks.tracking.sync import FILE
from tests.support import prefect_api
from tests.support.processes import wait_for
from tests.support.servers import free_port
from tests.support.toy import nightshift, quadratic, slow, start, status
from tests.support.workers import prefect

NAMES = ("server", "mlflow", "worker")
FOREIGN = "http://127.0.0.1:9"


@pytest.fixture
def directory(home: Path) -> Path:
    """Prefect's home, where notes and logs are."""
    path = home / ".prefect"
    path.mkdir(parents=True)
    return path


def test_a_program_is_noted_alive_until_it_is_ended_with_all_of_its_processes(directory: Path) -> None:
    daemon = Daemon(directory, "worker")
    daemon.start(["sh", "-c", "echo hello; sleep 60 & wait"], os.environ, FOREIGN, is_server=False)
    note = daemon.living()
    assert note is not None and note.url == FOREIGN
    wait_for(lambda: len(psutil.Process(note.pid).children(recursive=True)) == 2)
    children = psutil.Process(note.pid).children(recursive=True)
    assert os.getsid(note.pid) == note.pid, "a Ctrl-C in our terminal does not reach it"
    assert daemon.end() and psutil.wait_procs(children, 5)[1] == []
    assert daemon.living() is None and not daemon.end()
    assert daemon.log.read_text() == "hello\n"
    assert daemon.is_own(FOREIGN), "it is known where it was"


def test_after_a_reboot_the_same_number_is_somebody_elses_and_left_alone(
    directory: Path, foreign: subprocess.Popen[bytes], home: Path
) -> None:
    for name in NAMES:
        Daemon(directory, name).write(Note(url=FOREIGN, pid=foreign.pid, identity="of an earlier boot"))
    assert own_servers(home) == []
    done = nightshift("down")
    assert (done.returncode, done.stdout) == (0, "nothing of `nightshift up` is running\n"), done.stderr
    assert foreign.poll() is None


def test_mlflows_own_database_is_shown_by_up_and_where_it_is_served_by_its_address(
    ledger: Ledger, home: Path, directory: Path, foreign: subprocess.Popen[bytes]
) -> None:
    elsewhere = {"command": "mlflow ui --backend-store-uri sqlite:////srv/other.db", "path": "/#/a"}
    (ledger.path / FILE).write_text(json.dumps({"urls": elsewhere}))
    assert urls(ledger) == {"mlflow_command": elsewhere["command"], "mlflow_path": "/#/a"}
    own = {"command": "nightshift up", "path": "/#/b"}
    (ledger.path / FILE).write_text(json.dumps({"urls": own}))
    assert urls(ledger) == {"mlflow_command": "nightshift up", "mlflow_path": "/#/b"}
    note = Note(url="http://127.0.0.1:5000", pid=foreign.pid, identity=identity(foreign.pid))
    Daemon(directory, "mlflow").write(note)
    assert urls(ledger) == {"mlflow_url": "http://127.0.0.1:5000/#/b"}


def notes(directory: Path) -> dict[str, Note | None]:
    return {name: Daemon(directory, name).living() for name in NAMES}


def ask(note: Note, path: str, auth: tuple[str, str] | None, **body: Any) -> Any:
    return prefect_api.ask("POST", f"{note.url}{path}", body, auth)


@pytest.mark.parametrize(
    ("command", "seconds", "why"),
    [
        ("sleep 9", 0.3, r"did not answer within 0 s: .*server\.log"),
        ("echo no such table; exit 3", 60, r"(?s)server ended while starting: .*server\.log.*\nno such table"),
    ],
)
def test_a_server_that_does_not_answer_in_time_is_ended_and_one_that_dies_is_told_with_its_last_lines(
    directory: Path, monkeypatch: pytest.MonkeyPatch, command: str, seconds: float, why: str
) -> None:
    monkeypatch.setattr("tasks.system.daemon.START_SECONDS", seconds)
    daemon = Daemon(directory, "server")
    with pytest.raises(Refused, match=why):
        daemon.start(["sh", "-c", command], os.environ, f"http://127.0.0.1:{free_port()}")
    assert daemon.living() is None


@pytest.fixture
def running(home: Path, directory: Path) -> Iterator[tuple[str, str]]:
    """Everything of `nightshift up`, on ports that nobody else counts up to; who we are there."""
    for name in ("server", "mlflow"):
        Daemon(directory, name).write(Note(url=f"http://127.0.0.1:{free_port()}", pid=1, identity="gone"))
    done = nightshift("up")
    try:
        assert done.returncode == 0, done.stderr
        yield tuple((directory / "auth").read_text().strip().split(":", 1))  # type: ignore[misc]
    finally:
        nightshift("down", "--now")
        assert notes(directory) == dict.fromkeys(NAMES)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_up_stays_is_mended_is_used_and_goes_down(
    running: tuple[str, str], home: Path, directory: Path, tmp_path: Path
) -> None:
    """One story for all of it, since each start takes some ten seconds and more."""
    before = notes(directory)
    server, mlflow, worker = (before[name] for name in NAMES)
    assert server and mlflow and worker
    assert httpx.get(mlflow.url, auth=running).is_success and own_servers(home)[1]["url"] == mlflow.url
    assert httpx.get(mlflow.url).status_code == 401
    assert httpx.post(f"{server.url}/flow_runs/filter", json={}).status_code == 401
    assert [pool["name"] for pool in ask(server, "/work_pools/filter", running)] == ["trainers"]

    for child in psutil.Process(worker.pid).children():  # of its keeper
        child.kill()
    wait_for(lambda: [one.pid for one in psutil.Process(worker.pid).children()])
    again = nightshift("up")
    assert again.returncode == 0, again.stderr
    assert notes(directory) == before, "what runs is left alone"

    quick, long = str(quadratic(tmp_path / "quad")), str(quadratic(tmp_path / "long", fit=slow(60)))
    done = nightshift("run", quick, "--name", "one", "--trials", "1", "--proposer", "random_search")
    assert done.returncode == 0, done.stderr
    assert notes(directory)["server"] == server, "the last that leaves does not stop what stays"
    (run,) = ask(server, "/flow_runs/filter", running)
    assert run["name"] == "one"
    tasks = {task["name"] for task in ask(server, "/task_runs/filter", running)}
    assert {"train quad 0", "train quad 1"} <= tasks
    assert ask(server, "/logs/filter", running), "logs come with the password too"
    assert status("one")["urls"]["mlflow_url"].startswith(mlflow.url)

    more = ("--tracking", "off", "--set", "budget_seconds=90", "--proposer", "random_search")
    with start("run", long, "--name", "night", *more) as process:
        wait_for(lambda: (home / "night/trials/0000/log.txt").exists())
        refused = nightshift("down")
        assert refused.returncode == 2 and refused.stderr.startswith("nightshift: night runs on the Prefect")
        assert notes(directory)["server"] == server
        ended = nightshift("down", "--now")
        assert (ended.returncode, process.wait(timeout=60)) == (0, 130), ended.stderr
    assert "ended: worker, mlflow" in ended.stdout, "and the server with the command that used it"
    assert status("night")["state"] == "interrupted"
    assert notes(directory) == dict.fromkeys(NAMES)

    assert nightshift("up").returncode == 0
    urls = {name: note.url for name, note in notes(directory).items() if note}
    assert urls == {"server": server.url, "mlflow": mlflow.url, "worker": server.url}
    assert httpx.get(mlflow.url, auth=running).is_success, "bookmarks and passwords are as before"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_one_deployment_runs_any_environment_and_a_refusal_is_mended_by_retry(
    running: tuple[str, str], home: Path, directory: Path, tmp_path: Path
) -> None:
    server = Daemon(directory, "server").living()
    assert server is not None
    login = {"PREFECT_API_AUTH_STRING": ":".join(running)}
    prefect(server.url, "deploy", "--name", "campaign", **login)
    (deployment,) = ask(server, "/deployments/filter", running)
    made = f"{server.url}/deployments/{deployment['id']}/create_flow_run"
    answer = httpx.post(made, json={"parameters": {"environment": "cartpole", "trials": 0}}, auth=running, timeout=60)
    assert answer.status_code in (409, 422) and "trials" in answer.text, "the form refuses it"
    folder = tmp_path / "My Quad"

    def run() -> dict[str, Any]:
        (found,) = ask(server, "/flow_runs/filter", running)
        return dict(found)

    prefect(
        server.url, "deployment", "run", "campaign/campaign", f"--param=environment={json.dumps(str(folder))}", **login
    )
    wait_for(lambda: run()["state_type"] == "FAILED", 300, lambda: str(run()["state"]))
    assert run()["state"]["message"].startswith(f"{folder} has no environment.toml")
    told = ask(server, "/logs/filter", running, logs={"flow_run_id": {"any_": [run()["id"]]}})
    assert told and not any("Traceback" in line["message"] for line in told)
    name = run()["name"].partition(" ")[0]
    assert re.fullmatch(r"my-quad-\d{8}-\d{6}-[0-9a-f]{4}", name)

    quadratic(folder)  # mended, and Retry pressed
    prefect(server.url, "flow-run", "retry", run()["id"], **login)
    wait_for(lambda: run()["state_type"] == "COMPLETED", 300, lambda: str(run()["state"]))
    assert "nightshift" in run()["tags"]
    assert status(name)["shipped"] == "champion"


# What `up` says of our own servers.


PREFECT, MLFLOW = "http://127.0.0.1:4200/api", "http://127.0.0.1:5000"


def run_both(home: Path) -> None:
    """Have this process stand for both servers."""
    (home / ".prefect").mkdir(parents=True, exist_ok=True)
    for name, url in (("server", PREFECT), ("mlflow", MLFLOW)):
        note = Note(url=url, pid=os.getpid(), identity=identity(os.getpid()))
        Daemon(home / ".prefect", name).write(note)


def test_the_lines_set_what_prefect_and_mlflow_read_and_hold_no_password(tmp_path: Path) -> None:
    home = tmp_path / "a 'home'"
    run_both(home)
    user, _, password = make_login(home).partition(":")
    lines = [line for label, line in login_steps(own_servers(home)).items() if label != "login"]
    assert not any(password in line for line in lines)
    code = "; ".join(lines) + "; env"
    done = subprocess.run(
        ["sh", "-c", code], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=True
    )
    found = dict(line.split("=", 1) for line in done.stdout.splitlines() if line.startswith(("PREFECT", "MLFLOW")))
    assert found == {
        "PREFECT_API_URL": PREFECT, "PREFECT_API_AUTH_STRING": f"{user}:{password}",
        "MLFLOW_TRACKING_URI": MLFLOW, "MLFLOW_TRACKING_USERNAME": user, "MLFLOW_TRACKING_PASSWORD": password,
    }  # fmt: skip

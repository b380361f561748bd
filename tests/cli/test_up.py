"""`nightshift up` and `down`: three programs that outlive the terminal, and nothing of anybody else's is ever ended."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from environments.plugins import Refused
from flows.cli.machine import up
from flows.views.status import urls
from tasks.system.daemon import Daemon, Note, identity, page_of
from tests.support.ledgers import created
from tests.support.toy import nightshift, quadratic, slow, start, status

CHECKOUT = Path(__file__).parents[2]
NAMES = ("server", "mlflow", "worker")
FOREIGN = "http://127.0.0.1:9"


@pytest.fixture
def directory(home: Path) -> Path:
    """Prefect's home, where notes and logs are."""
    path = home / ".prefect"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def foreign() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has nothing to do with us."""
    with subprocess.Popen(["sleep", "300"], start_new_session=True) as process:
        yield process
        process.kill()


def test_a_program_is_noted_alive_until_it_is_ended_with_all_of_its_processes(directory: Path) -> None:
    daemon = Daemon(directory, "worker")
    process = daemon.launch(["sh", "-c", "echo hello; sleep 60 & wait"], os.environ, FOREIGN)
    note = daemon.living()
    assert note is not None and (note.pid, note.url, note.stays) == (process.pid, FOREIGN, False)
    assert os.getsid(process.pid) == process.pid, "a Ctrl-C in our terminal does not reach it"
    wait_until(lambda: psutil.Process(process.pid).children())
    (below,) = psutil.Process(process.pid).children()
    assert daemon.end()
    assert process.wait(timeout=5) == -signal.SIGTERM
    assert not psutil.pid_exists(below.pid) or below.status() == psutil.STATUS_ZOMBIE
    assert daemon.living() is None and not daemon.end()
    assert daemon.last_words() == "hello"


def test_what_was_killed_is_not_alive_even_before_anybody_has_asked_for_its_status(directory: Path) -> None:
    daemon = Daemon(directory, "worker")
    process = daemon.launch(["sleep", "60"], os.environ, FOREIGN)
    os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE)
    assert daemon.living() is None
    process.wait()


def test_a_clock_that_is_set_makes_nobody_a_stranger(directory: Path, foreign: subprocess.Popen[bytes]) -> None:
    daemon = Daemon(directory, "worker")
    daemon.write(Note(FOREIGN, foreign.pid, time.time() - 3600, identity(foreign.pid)))
    assert daemon.living() is not None
    daemon.write(Note(FOREIGN, foreign.pid, time.time(), identity(1)))
    assert daemon.living() is None


def test_what_ignores_the_request_to_end_is_killed(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.system.daemon.END_SECONDS", 0.3)
    daemon = Daemon(directory, "worker")
    process = daemon.launch(["sh", "-c", "trap '' TERM; echo deaf; sleep 60"], os.environ, FOREIGN)
    wait_until(lambda: daemon.last_words() == "deaf")
    assert daemon.end()
    assert process.wait(timeout=5) == -signal.SIGKILL


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}'])
def test_a_note_that_cannot_be_read_is_none(directory: Path, text: str) -> None:
    (directory / "server.json").write_text(text)
    assert Daemon(directory, "server").living() is None


def test_after_a_reboot_the_same_number_is_somebody_elses_and_left_alone(
    directory: Path, foreign: subprocess.Popen[bytes], home: Path
) -> None:
    for name in NAMES:
        Daemon(directory, name).write(Note(FOREIGN, foreign.pid, started=1.0, stays=True))
    assert page_of(home, "mlflow") is None
    done = nightshift("down")
    assert (done.returncode, done.stdout) == (0, "nothing of `nightshift up` is running\n"), done.stderr
    assert foreign.poll() is None
    assert not list(directory.glob("*.json"))


def test_mlflows_own_database_is_shown_by_up_and_where_it_is_served_by_its_address(
    tmp_path: Path, home: Path, directory: Path, foreign: subprocess.Popen[bytes]
) -> None:
    ledger = created(tmp_path)
    elsewhere = {"command": "mlflow ui --backend-store-uri sqlite:////srv/other.db", "path": "/#/a"}
    ledger.event("tracked", urls=elsewhere)
    assert urls(ledger) == {"mlflow_command": elsewhere["command"], "mlflow_path": "/#/a"}
    ledger.event("tracked", urls={"command": f"mlflow ui sqlite:///{home / 'mlflow.db'}", "path": "/#/b"})
    assert urls(ledger) == {"mlflow_command": "nightshift up", "mlflow_path": "/#/b"}
    note = Note("http://127.0.0.1:5000", foreign.pid, time.time(), identity(foreign.pid), stays=True)
    Daemon(directory, "mlflow").write(note)
    assert urls(ledger) == {"mlflow_url": "http://127.0.0.1:5000/#/b"}


def test_a_server_that_an_earlier_version_left_without_a_login_is_not_taken_over(
    server: str, directory: Path, foreign: subprocess.Popen[bytes]
) -> None:
    left = Note(server, foreign.pid, time.time(), identity(foreign.pid), stays=True)
    Daemon(directory, "server").write(left)
    with pytest.raises(Refused, match="`nightshift down`, then `nightshift up` replaces it"):
        up._server(directory, True, None)
    assert up._server(directory, False, None) == left and foreign.poll() is None


def notes(directory: Path) -> dict[str, Note | None]:
    return {name: Daemon(directory, name).living() for name in NAMES}


def ask(note: Note, path: str, auth: tuple[str, str] | None, **body: Any) -> Any:
    answer = httpx.post(f"{note.url}{path}", json=body, auth=auth, timeout=20)
    assert answer.is_success, answer.text
    return answer.json()


def wait_until(condition: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


@pytest.fixture
def running(home: Path, directory: Path) -> Iterator[tuple[str, str]]:
    """Everything of `nightshift up`; who we are there."""
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
    assert httpx.get(mlflow.url, auth=running).is_success and page_of(home, "mlflow") == mlflow.url
    assert httpx.get(mlflow.url).status_code == httpx.post(f"{server.url}/flow_runs/filter", json={}).status_code == 401
    assert [pool["name"] for pool in ask(server, "/work_pools/filter", running)] == ["trainers"]

    os.kill(worker.pid, signal.SIGKILL)
    again = nightshift("up")
    assert again.returncode == 0, again.stderr
    assert re.findall(r"^  (\w+) .*(started|running since)", again.stdout, re.MULTILINE) == [
        ("Prefect", "running since"), ("MLflow", "running since"), ("worker", "started"),
    ]  # fmt: skip
    assert notes(directory) == before | {"worker": Daemon(directory, "worker").living()}
    assert (other := nightshift("up", "--no-auth")).returncode == 2 and "asks for a login" in other.stderr

    quick, long = str(quadratic(tmp_path / "quad")), str(quadratic(tmp_path / "long", fit=slow(60)))
    done = nightshift("run", quick, "--name", "one", "--trials", "1", "--proposer", "random_search")
    assert done.returncode == 0, done.stderr
    assert notes(directory)["server"] == server, "the last that leaves does not stop what stays"
    (run,) = ask(server, "/flow_runs/filter", running)
    assert (run["name"], set(run["tags"])) == ("one (quad)", {"one", "quad"})
    tasks = {task["name"] for task in ask(server, "/task_runs/filter", running)}
    assert {"train quad 0", "train quad 1", "record quad 1"} <= tasks and len(tasks) == 10
    assert ask(server, "/logs/filter", running), "logs come with the password too"
    assert status("one")["urls"]["mlflow_url"].startswith(mlflow.url)

    more = ("--tracking", "off", "--set", "budget_seconds=90", "--proposer", "random_search")
    with start("run", long, "--name", "night", *more) as process:
        wait_until(lambda: (home / "night/trials/0000/log.txt").exists())
        refused = nightshift("down")
        assert refused.returncode == 2 and refused.stderr.startswith("nightshift: night runs on the Prefect")
        assert notes(directory)["server"] == server
        ended = nightshift("down", "--now")
        assert (ended.returncode, process.wait(timeout=60)) == (0, 130), ended.stderr
    assert "ended: worker, mlflow, server" in ended.stdout
    assert status("night")["state"] == "interrupted"
    assert not any(psutil.pid_exists(note.pid) and note.is_alive for note in (server, mlflow, worker))


def prefect(home: Path, server: Note, auth: tuple[str, str], *arguments: str) -> str:
    """Prefect's own command, as `up` says it is to be called."""
    done = subprocess.run(
        [sys.executable, "-m", "prefect", "--no-prompt", *arguments],
        cwd=CHECKOUT,
        env={**os.environ, "PREFECT_API_URL": server.url, "PREFECT_API_AUTH_STRING": ":".join(auth)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_catalogue_is_deployed_refuses_what_the_form_refuses_and_runs_when_it_is_time(
    running: tuple[str, str], home: Path, directory: Path, tmp_path: Path
) -> None:
    server = Daemon(directory, "server").living()
    assert server is not None
    prefect(home, server, running, "deploy", "--all")
    found = {one["name"]: one for one in ask(server, "/deployments/filter", running)}
    assert set(found) == {
        "lunar-lander-demo", "lunar-lander-nightly", "bipedal-walker-nightly", "cartpole-random", "gymnasium",
        "gsm8k-nightly", "certify", "rerun",
    }  # fmt: skip
    schedules = {name: one["schedules"] for name, one in found.items() if one["schedules"]}
    assert set(schedules) == {"lunar-lander-nightly", "bipedal-walker-nightly", "gsm8k-nightly"}
    assert not any(schedule["active"] for several in schedules.values() for schedule in several)

    made = f"{server.url}/deployments/{found['cartpole-random']['id']}/create_flow_run"
    for name, value in {
        "trials": 0, "hours": -1, "proposer": "guess", "until": "soon", "seed": -1, "name": "a b", "environment": "",
        "advanced": {"patience": 0},
    }.items():  # fmt: skip
        answer = httpx.post(made, json={"parameters": {name: value}}, auth=running)
        assert answer.status_code in (409, 422), (name, answer.text)
        said = json.dumps(answer.json())
        assert name in said, said
    assert ask(server, "/flow_runs/count", running) == 0

    parameters = {"environment": str(quadratic(tmp_path / "quad")), "trials": 1, "tracking": "off"}
    arguments = [f"--param={name}={json.dumps(value)}" for name, value in parameters.items()]
    prefect(
        home, server, running, "deployment", "run", "campaign/cartpole-random", "--start-in", "20 seconds", *arguments
    )
    assert not list(home.glob("cartpole-random-*"))
    wait_until(lambda: [one["state_type"] for one in ask(server, "/flow_runs/filter", running)] == ["COMPLETED"])
    (campaign,) = (path.name for path in home.glob("cartpole-random-*"))
    assert status(campaign)["state"] == "finished"

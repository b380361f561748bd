"""`nightshift up` and `down`: three programs that outlive the terminal, and nothing of anybody else's is ever ended."""

from __future__ import annotations

import fcntl
import io
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
from rich.cells import cell_len
from rich.console import Console

from environments.plugins import Refused
from flows.cli.machine import up
from flows.cli.machine.starting import StartBoard
from flows.views.status import urls
from tasks.system import log_rotation
from tasks.system.daemon import Daemon, Note, address, identity, page_of, serve
from tasks.tracking.sync import FILE
from tests.support import prefect_api
from tests.support.ledgers import created
from tests.support.receivers import Received, webhook
from tests.support.terminals import terminal
from tests.support.toy import QUADRATIC, nightshift, quadratic, slow, start, status

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
    (ledger.path / FILE).write_text(json.dumps({"urls": elsewhere}))
    assert urls(ledger) == {"mlflow_command": elsewhere["command"], "mlflow_path": "/#/a"}
    own = {"command": f"mlflow ui sqlite:///{home / 'mlflow.db'}", "path": "/#/b"}
    (ledger.path / FILE).write_text(json.dumps({"urls": own}))
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
    return prefect_api.ask("POST", f"{note.url}{path}", body, auth)


def wait_until(condition: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def serving(folder: Path, after: float) -> Callable[[int], list[str]]:
    """The command of a server that answers its health check after so many seconds."""
    (folder / "health").touch()
    serve = f'exec "{sys.executable}" -m http.server --bind 127.0.0.1 --directory "{folder}"'
    return lambda port: ["sh", "-c", f"sleep {after}; {serve} {port}"]


def served(daemon: Daemon, command: Callable[[int], list[str]], still: Callable[[str], None] | None = None) -> str:
    def launch(port: int) -> subprocess.Popen[bytes]:
        return daemon.launch(command(port), os.environ, address(port))

    return serve(daemon, 20_300 + os.getpid() % 5000, launch, still=still)


def test_a_start_lasts_as_long_as_its_process_where_somebody_looks_on(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.system.daemon.START_SECONDS", 0.3)
    slow, told = Daemon(directory, "server"), list[str]()
    assert served(slow, serving(tmp_path, 0.8), told.append) == told[-1]
    assert slow.living() and slow.end()
    with pytest.raises(Refused, match=r"did not answer within 0 s; see .*server\.log"):
        served(slow, serving(tmp_path, 5))
    assert slow.living() is None


def test_a_process_that_dies_while_it_starts_is_told_at_once_with_its_last_lines(directory: Path) -> None:
    with pytest.raises(Refused, match=r"(?s)server ended with status 3 .*server\.log, which ends:\nno such table"):
        served(Daemon(directory, "server"), lambda _: ["sh", "-c", "echo no such table; exit 3"], lambda _: None)
    assert Daemon(directory, "server").living() is None


def test_a_server_whose_port_was_taken_for_a_moment_tries_again(directory: Path, tmp_path: Path) -> None:
    daemon, serves = Daemon(directory, "server"), serving(tmp_path, 0)
    taken = ["sh", "-c", "echo 'Errno 98: Address already in use'; exit 3"]
    commands = iter([lambda _: taken, serves])
    assert served(daemon, lambda port: next(commands)(port))
    assert daemon.end()


def test_who_gives_up_a_start_ends_it(directory: Path, tmp_path: Path) -> None:
    daemon, seen = Daemon(directory, "server"), list[Note | None]()

    def give_up(_: str) -> None:
        seen.append(daemon.living())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        served(daemon, serving(tmp_path, 9), give_up)
    assert seen[0] is not None and not seen[0].is_alive


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A Prefect server that is started and never answers, in place of ours."""

    def start(directory: Path, auth: bool, database: str | None, still: Callable[[str], None]) -> Note:
        served(Daemon(directory, "server"), lambda _: ["sleep", "60"], still)
        raise AssertionError("it does not answer")

    monkeypatch.setattr(up, "_server", start)
    monkeypatch.setattr("flows.server.server_process.settle_in", lambda _: None)
    return start


def test_one_that_cannot_start_ends_the_starts_of_the_others_at_once_and_the_rest_is_named(
    directory: Path, endless: object, foreign: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        wait_until(lambda: Daemon(directory, "server").living())
        raise Refused("mlflow ended with status 1")

    monkeypatch.setattr(up.mlflow_process, "start", fail)
    Daemon(directory, "worker").write(Note(FOREIGN, foreign.pid, time.time(), identity(foreign.pid)))
    with pytest.raises(Refused, match=r"(?s)^mlflow ended with status 1\nleft running: worker; .*nightshift down"):
        up.up(auth=True)
    assert [name for name, note in notes(directory).items() if note] == ["worker"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_start_ends_what_it_had_started_and_nothing_else(
    directory: Path, endless: object, foreign: subprocess.Popen[bytes], number: signal.Signals,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def start(*_: object) -> None:
        Daemon(directory, "mlflow").launch(["sleep", "60"], os.environ, FOREIGN).returncode = 0
        wait_until(lambda: Daemon(directory, "server").living())
        os.kill(os.getpid(), number)

    monkeypatch.setattr(up.mlflow_process, "start", start)
    Daemon(directory, "worker").write(Note(FOREIGN, foreign.pid, time.time(), identity(foreign.pid)))
    with pytest.raises(KeyboardInterrupt):
        up.up(auth=True)
    assert [name for name, note in notes(directory).items() if note] == ["worker"] and foreign.poll() is None
    assert "interrupted" in (said := capsys.readouterr().err) and "left running: worker" in said


def test_a_server_that_a_campaign_had_started_is_its_own_again_after_an_interrupted_start(
    directory: Path, foreign: subprocess.Popen[bytes]
) -> None:
    server = Daemon(directory, "server")
    server.write(earlier := Note(FOREIGN, foreign.pid, time.time(), identity(foreign.pid)))
    server.keep()
    with (directory / "users.lock").open("a") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        up._take_back(directory, {"server": earlier, "mlflow": None, "worker": None})
    assert server.living() == earlier and foreign.poll() is None


def board(directory: Path, console: Console) -> StartBoard:
    return StartBoard(console, {"server": "Prefect", "mlflow": "MLflow", "worker": "worker"}, directory)


def test_a_file_gets_a_line_when_a_start_takes_long_and_one_when_it_is_done(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = io.StringIO()
    with board(directory, Console(file=output, width=80)) as shown:
        still = shown.begin("server")
        still("http://127.0.0.1:4217/api")
        shown.draw()
        assert output.getvalue() == "", "it may be ready in a moment"
        began = time.monotonic()
        for later in (2, 3, 40, 41, 80):
            monkeypatch.setattr("flows.cli.machine.starting.time.monotonic", lambda later=later: began + later)
            shown.draw()
        monkeypatch.undo()
        shown.ready("server", "http://127.0.0.1:4217")
        shown.begin("mlflow")
        shown.ready("mlflow", "http://127.0.0.1:5003", since="14:02", note=", asks for no login")
    lines = [line.split(maxsplit=2) for line in output.getvalue().splitlines()]
    assert [line[:2] for line in lines] == [["Prefect", "http://127.0.0.1:4217"]] * 4 + [
        ["MLflow", "http://127.0.0.1:5003"]
    ]
    whole = [line[2] for line in lines]
    assert whole[0] == "starting, 2 s" and whole[1].startswith("starting, 40 s; its log: ")
    assert whole[2].startswith("starting, 80 s") and re.fullmatch(r"started in [\d.]+ s", whole[3])
    assert whole[4] == "running since 14:02, asks for no login"


def test_a_terminal_shows_what_is_still_starting_within_its_width(directory: Path) -> None:
    with terminal(60) as (console, written), board(directory, console) as shown:
        shown.begin("server")("http://127.0.0.1:4217/api")
        shown.begin("mlflow")("")
        shown.draw()
        shown.ready("mlflow", "http://127.0.0.1:5000")
        shown.draw()
    text = b"".join(written).decode()
    assert "waits for Prefect" in text and "starting, 0 s" in text and "started in" in text
    assert all(cell_len(line) <= 60 for line in re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "\r", text).split("\r"))


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
    assert httpx.get(mlflow.url).status_code == 401
    assert prefect_api.refusal("POST", f"{server.url}/flow_runs/filter", {}).status_code == 401
    assert [pool["name"] for pool in ask(server, "/work_pools/filter", running)] == ["trainers"]

    os.kill(worker.pid, signal.SIGKILL)
    again = nightshift("up")
    assert again.returncode == 0, again.stderr
    assert sorted(re.findall(r"^  (\w+) .*(started|running since)", again.stdout, re.MULTILINE)) == [
        ("MLflow", "running since"), ("Prefect", "running since"), ("worker", "started"),
    ]  # fmt: skip
    with (directory / "worker.log").open("ab") as log:  # as if the worker had printed much
        log.write(b"x" * (log_rotation.LOG_BYTES + 1))
    wait_until(lambda: (directory / "worker.log").stat().st_size < log_rotation.LOG_BYTES)
    assert (directory / "worker.log.1").stat().st_size > log_rotation.LOG_BYTES
    assert notes(directory) == before | {"worker": Daemon(directory, "worker").living()}
    assert (other := nightshift("up", "--no-auth")).returncode == 2 and "asks for a login" in other.stderr

    quick, long = str(quadratic(tmp_path / "quad")), str(quadratic(tmp_path / "long", fit=slow(60)))
    done = nightshift("run", quick, "--name", "one", "--trials", "1", "--proposer", "random_search")
    assert done.returncode == 0, done.stderr
    assert notes(directory)["server"] == server, "the last that leaves does not stop what stays"
    (run,) = ask(server, "/flow_runs/filter", running)
    assert (run["name"], set(run["tags"])) == ("one (quad)", {"one", "quad"})
    tasks = {task["name"] for task in ask(server, "/task_runs/filter", running)}
    steps = {" ".join(name.split()[:3]) for name in tasks}  # without which of a trial's runs it was
    assert {"train quad 0", "train quad 1", "record quad 1"} <= tasks and len(steps) == 10
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
        "campaign", "lunar-lander-demo", "lunar-lander-nightly", "bipedal-walker-nightly", "cartpole-random", "gymnasium",
        "gsm8k-nightly", "certify", "rerun",
    }  # fmt: skip
    schedules = {name: one["schedules"] for name, one in found.items() if one["schedules"]}
    assert set(schedules) == {"lunar-lander-nightly", "bipedal-walker-nightly", "gsm8k-nightly"}
    assert not any(schedule["active"] for several in schedules.values() for schedule in several)

    types = {one["slug"] for one in ask(server, "/block_types/filter", running)}
    assert {"nightshift-llm", "nightshift-machine", "nightshift-tracking"} <= types

    made = f"{server.url}/deployments/{found['cartpole-random']['id']}/create_flow_run"
    for name, value in (
        ("trials", 0), ("hours", -1), ("proposer", "guess"), ("until", "soon"), ("name", "a b"), ("environment", ""),
        ("advanced", {"limits": {"patience": 0}}), ("advanced", {"search": {"seed": -1}}),
    ):  # fmt: skip
        answer = prefect_api.refusal("POST", made, {"parameters": {name: value}}, running)
        assert answer.status_code in (409, 422), (name, answer.text)
        said = json.dumps(answer.json())
        assert name in said, said
    assert ask(server, "/flow_runs/count", running) == 0

    parameters = {"environment": str(quadratic(tmp_path / "quad")), "trials": 1, "advanced": {"tracking": "off"}}
    arguments = [f"--param={name}={json.dumps(value)}" for name, value in parameters.items()]
    prefect(
        home, server, running, "deployment", "run", "campaign/cartpole-random", "--start-in", "20 seconds", *arguments
    )
    assert not list(home.glob("cartpole-random-*"))
    wait_until(lambda: [one["state_type"] for one in ask(server, "/flow_runs/filter", running)] == ["COMPLETED"])
    (campaign,) = (path.name for path in home.glob("cartpole-random-*"))
    assert status(campaign)["state"] == "finished"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_any_environment_is_run_by_one_deployment_and_its_end_is_told_once(
    running: tuple[str, str], home: Path, directory: Path, tmp_path: Path
) -> None:
    server = Daemon(directory, "server").living()
    assert server is not None
    prefect(home, server, running, "deploy", "--name", "campaign")
    folder = tmp_path / "My Quad"

    def begun(**parameters: object) -> str:
        arguments = [f"--param={name}={json.dumps(value)}" for name, value in parameters.items()]
        prefect(home, server, running, "deployment", "run", "campaign/campaign", *arguments)
        return str(ask(server, "/flow_runs/filter", running, sort="START_TIME_DESC", limit=1)[0]["id"])

    def run_of(run: str) -> dict[str, Any]:
        found: dict[str, Any] = prefect_api.ask("GET", f"{server.url}/flow_runs/{run}", auth=running)
        return found

    def ended(run: str, how: str) -> dict[str, Any]:
        wait_until(lambda: run_of(run)["state_type"] in ("FAILED", "CRASHED", "COMPLETED"), 300)
        found = run_of(run)
        assert found["state_type"] == how, found["state"]
        return found

    with webhook() as hook:
        done = nightshift("server", "notify", hook.address)
        assert done.returncode == 0 and "secret-path" not in done.stdout, done.stderr
        assert len(hook.messages) == 1
        refused = begun(environment=str(folder))
        state = ended(refused, "FAILED")["state"]
        assert state["message"].startswith(f"{folder} has no environment.toml")
        told = ask(server, "/logs/filter", running, logs={"flow_run_id": {"any_": [refused]}})
        assert told and not any("Traceback" in line["message"] for line in told)
        name = run_of(refused)["name"].partition(" ")[0]
        assert re.fullmatch(r"my-quad-\d{8}-\d{6}", name)

        quadratic(folder)  # mended, and Retry pressed
        prefect(home, server, running, "flow-run", "retry", refused)
        wait_until(lambda: run_of(refused)["state_type"] != "FAILED")
        found = ended(refused, "COMPLETED")
        assert {"nightshift", "My Quad", name} <= set(found["tags"]) and "cartpole" not in found["tags"]
        assert status(name)["shipped"] == "champion"
        champion = status(name)["champion"]["trial"]

        asking = tmp_path / "asking"
        quadratic(
            asking, toml=QUADRATIC.replace('judge = "command"', 'judge = "command"\nreadable = ["/usr/share"]', 1)
        )
        assert "--trust" in ended(begun(environment=str(asking), trials=1), "FAILED")["state"]["message"]
        wait_until(lambda: any("is certified" in message for message in hook.messages))
        wait_until(lambda: len([title for title in titles(hook) if title.endswith(" failed")]) >= 2)
        time.sleep(15)  # nothing comes a second time
        (other,) = (
            run["name"] for run in ask(server, "/flow_runs/filter", running) if run["name"].startswith("asking")
        )
        certified, *failures = sorted(titles(hook), key=lambda title: "is certified" not in title)
        assert certified == f"{name}: trial {champion} is certified"
        assert sorted(failures) == sorted([f"{found['name']} failed", f"{other} failed"])


def titles(hook: Received) -> list[str]:
    """Of the messages about anything but a new champion; the first of all says that messages come."""
    return [message.splitlines()[0] for message in hook.messages[1:] if "new champion" not in message]

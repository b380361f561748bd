"""Recovery without a person: what crashed is resumed, what lives is left alone, and what leads nowhere comes to an end."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from environments.plugins import Refused
from flows.cli.machine import sync
from flows.server.setup import AUTORESUME, RESUME, resume_cut_off
from tasks.record import reconcile, record
from tasks.store.campaign_lock import holder
from tasks.store.ledger import Ledger
from tasks.system.daemon import Daemon, Note
from tests.support.histories import tried
from tests.support.ledgers import created
from tests.support.prefect_api import ask, prefect_at, put_automations, remove_automations, set_state
from tests.support.processes import wait_for
from tests.support.servers import Service, free_port
from tests.support.toy import GREEDY, nightshift, quadratic, slow, start, stated, status
from tests.support.workers import prefect


def test_automations_are_made_once_and_what_a_person_switches_off_stays_off(server: str) -> None:
    put_automations(server)
    assert put_automations(server) == [], "what waits for a heartbeat is not forgotten by a second `up`"
    resume = known(server)
    ask("PATCH", f"{server}/automations/{resume['id']}", {"enabled": False})
    assert put_automations(server) == []
    assert put_automations(server, resume=20) == [RESUME]
    changed = known(server)
    assert (changed["id"], changed["enabled"], changed["trigger"]["within"]) == (resume["id"], False, 20)
    remove_automations(server)


def known(server: str) -> Any:
    (one,) = ask("POST", f"{server}/automations/filter", {"automations": {"name": {"any_": [RESUME]}}})
    return one


def running_on(server: str) -> str:
    """A flow run at the server, as if somebody ran it."""
    flow = ask("POST", f"{server}/flows/", {"name": "campaign"})["id"]
    run = ask("POST", f"{server}/flow_runs/", {"flow_id": flow, "state": {"type": "PENDING"}})["id"]
    set_state(server, run, type="RUNNING")
    return str(run)


def state_of(server: str, run: str) -> str:
    return str(ask("GET", f"{server}/flow_runs/{run}")["state_type"])


def test_what_was_cut_off_is_resumed_and_nothing_else(server: str, tmp_path: Path) -> None:
    runs = {name: running_on(server) for name in ("left", "crashed", "terminal", "cancelling", "over", "stranger")}
    for name, run in runs.items():
        if name != "stranger":
            created(tmp_path, name).event("life", flow_run_id=run, pid=1, host="gone")
    created(tmp_path, "over").event("end", state="finished", reason="all 3 trials done")
    for name in ("left", "crashed", "over", "cancelling"):
        ask("PATCH", f"{server}/flow_runs/{runs[name]}", {"tags": [AUTORESUME]})
    for name, state in (("crashed", "CRASHED"), ("over", "CRASHED"), ("cancelling", "CANCELLING")):
        set_state(server, runs[name], type=state)
    with prefect_at(server):
        assert len(resume_cut_off()) == 2
        again = resume_cut_off()
    assert {name: state_of(server, run) for name, run in runs.items()} == {
        "left": "SCHEDULED", "crashed": "SCHEDULED", "terminal": "CRASHED", "cancelling": "CANCELLED",
        "over": "CRASHED", "stranger": "RUNNING",
    }  # fmt: skip
    assert again == []
    for name in ("left", "crashed", "stranger"):
        set_state(server, runs[name], type="CANCELLED")


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Prefect's own in a file, or a PostgreSQL server of this test's, whose processes run as an ordinary user."""
    if request.param == "sqlite":
        yield
        return
    if shutil.which("initdb") is None or shutil.which("postgres") is None:
        pytest.skip("PostgreSQL is not installed")
    who = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="nightshift-", ignore_cleanup_errors=True) as folder:
        os.chown(folder, pwd.getpwnam(who).pw_uid, -1)
        data, port = f"{folder}/data", str(free_port())
        as_who: dict[str, Any] = {"user": who} if os.geteuid() == 0 else {}
        quiet: dict[str, Any] = {"cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run(["initdb", "-D", data, "-U", "prefect", "-A", "trust", "-N"], check=True, **quiet, **as_who)
        command = ["postgres", "-D", data, "-h", "127.0.0.1", "-p", port, "-k", folder, "-c", "fsync=off"]
        with subprocess.Popen(command, **quiet, **as_who) as process:
            ready = ["pg_isready", "-h", "127.0.0.1", "-p", port]
            wait_for(lambda: subprocess.run(ready, **quiet).returncode == 0, 60)
            url = f"postgresql+asyncpg://prefect@127.0.0.1:{port}/postgres"
            monkeypatch.setenv("PREFECT_SERVER_DATABASE_CONNECTION_URL", url)
            yield
            process.send_signal(signal.SIGQUIT)  # its data is thrown away


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("database")
def test_whatever_is_killed_the_campaign_comes_to_its_end_without_a_person(home: Path, tmp_path: Path) -> None:
    """One story for all of it, since each start takes some ten seconds and more."""
    directory = home / ".prefect"
    Daemon(directory, "server").write(Note(url=f"http://127.0.0.1:{free_port()}", pid=1, identity="gone"))
    up = nightshift("up")
    assert up.returncode == 0, up.stdout + up.stderr
    notes = {name: Daemon(directory, name).living() for name in ("server", "worker")}
    server, keepers = notes["server"], [psutil.Process(note.pid) for note in notes.values() if note]
    assert server and len(keepers) == 2
    who: tuple[str, str] = tuple((directory / "auth").read_text().strip().split(":", 1))  # type: ignore[assignment]
    put_automations(server.url, ":".join(who), silent=40)
    prefect(server.url, "deploy", "--all", PREFECT_API_AUTH_STRING=":".join(who))
    environment = str(quadratic(tmp_path / "quad", fit=slow(3), toml=stated("budget_seconds = 120")))
    parameters = {"environment": environment, "trials": 4, "rule": "greedy", "seed": 5, "tracking": "off"}

    def told(method: str, path: str, **body: Any) -> Any:
        return ask(method, f"{server.url}{path}", body or None, who)

    deployment = told("GET", "/deployments/name/campaign/cartpole-random")["id"]
    run = told("POST", f"/deployments/{deployment}/create_flow_run", parameters=parameters)["id"]
    wait_for(lambda: list(home.glob("*/trials/0001/log.txt")))
    (name,) = [path.name for path in home.iterdir() if path.name.startswith("cartpole-random-")]
    first = (home / name / "trials/0000/trial.json").read_text()

    for keeper in reversed(keepers):  # the worker first, so that nobody reports what follows; its keeper hires another
        for child in keeper.children():
            child.kill()
    os.kill(holder(Ledger.at(home / name))["pid"], signal.SIGKILL)

    def has_become(kind: str) -> bool:
        with contextlib.suppress(httpx.TransportError):  # the server has not been started again yet
            return bool(told("GET", f"/flow_runs/{run}")["state_type"] == kind)
        return False

    # Marked in the first seconds of the server, it is missed by the automation that resumes: `up`, by cron, is the net.
    wait_for(lambda: has_become("CRASHED"))
    assert nightshift("up").returncode == 0
    wait_for(lambda: has_become("COMPLETED"), 400)
    document = status(name)
    assert document["state"] == "finished" and len(document["trials"]) == 5
    assert (home / name / "trials/0000/trial.json").read_text() == first
    stopped = {"task_runs": {"state": {"type": {"any_": ["RUNNING", "PENDING"]}}}}
    assert told("POST", "/task_runs/count", **stopped) == 0, "no row of the killed process runs on"
    assert nightshift("down").returncode == 0
    again = nightshift("up")
    assert again.returncode == 0 and told("GET", f"/flow_runs/{run}")["state_type"] == "COMPLETED"
    assert nightshift("down").returncode == 0


# Outages: MLflow, the Prefect server or the disk gone in the middle of a night, and nothing is lost by it.


def test_a_campaign_is_not_recorded_in_two_places(
    stores: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.place(0).workspace.mkdir(parents=True)
    record(ledger, reconcile(ledger), tried((), 0.0))
    assert sync("n") == 0
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://team.example.org")
    with pytest.raises(Refused, match=r"recorded in mlflow\.db.*would go to https://team\.example\.org.*--tracking"):
        sync("n")


def done(home: Path) -> int:
    return len(list(home.glob("c/trials/*/trial.json")))


def begun(environment: Path, home: Path, trials: int, *more: str, server: str) -> subprocess.Popen[str]:
    """A campaign with two trials behind it."""
    asked = ("--name", "c", "--proposer", "random_search", "--trials", str(trials), *GREEDY, *more)
    process = start("run", str(environment), *asked, server=server)
    wait_for(lambda: done(home) >= 2 or process.poll() is not None)
    assert process.poll() is None, process.communicate()[0]
    return process


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_mlflow_hangs_and_dies_and_gets_everything_in_the_end(tmp_path: Path, home: Path, server: str) -> None:
    store = f"sqlite:///{tmp_path}/mlflow.db"
    command = ("mlflow", "server", "--backend-store-uri", store, "--workers", "1")
    with Service(tmp_path / "mlflow", *command, health="/health") as mlflow:
        environment = quadratic(tmp_path / "quad", fit=slow(1.0))
        process = begun(environment, home, 10, "--tracking", mlflow.url, server=server)
        wait_for(lambda: status("c")["waiting_to_record"] < done(home))
        mlflow.signal(signal.SIGSTOP)
        reached = done(home)
        wait_for(lambda: done(home) >= reached + 3)
        assert status("c")["waiting_to_record"] >= 2
        mlflow.signal(signal.SIGCONT)
        output, _ = process.communicate(timeout=180)
        assert process.returncode == 0, output
        assert status("c")["waiting_to_record"] == 0
        mlflow.signal(signal.SIGKILL)
        further = nightshift("resume", "c", "--trials", "12", server=server)
        assert further.returncode == 0 and "wait for MLflow: " in further.stdout, further.stdout
        assert nightshift("sync", "c").returncode == 1
        mlflow.up()
        sent = nightshift("sync")
        assert sent.returncode == 0 and sent.stdout.endswith("c: MLflow has everything\n"), sent.stderr
    from mlflow import MlflowClient

    client = MlflowClient(store)
    (experiment,) = [one for one in client.search_experiments() if one.name.startswith("nightshift/")]
    runs = client.search_runs([experiment.experiment_id], max_results=100)
    assert len(runs) == 1 + 13, "one for the campaign and one for each trial, none twice"
    assert {run.info.status for run in runs} == {"FINISHED"}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_prefect_server_that_dies_and_comes_back_leaves_the_ledger_complete(tmp_path: Path, home: Path) -> None:
    with Service(tmp_path / "prefect", "prefect", "server", "start", health="/api/health") as prefect:
        environment = quadratic(tmp_path / "quad", fit=slow(1.0))
        process = begun(environment, home, 8, "--tracking", "off", server=f"{prefect.url}/api")
        prefect.signal(signal.SIGKILL)
        wait_for(lambda: done(home) == 9)
        prefect.up()
        output, _ = process.communicate(timeout=180)
        assert process.returncode == 0, output
        assert "Traceback" not in output
        found = status("c")
        assert found["state"] == "finished" and len(found["trials"]) == 9
        run = found["urls"]["prefect"].rpartition("/")[2]
        assert ask("GET", f"{prefect.url}/api/flow_runs/{run}")["state"]["type"] == "COMPLETED"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_campaign_on_a_full_disk_stops_and_goes_on_when_there_is_room(tmp_path: Path, server: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1g", "none", disk], capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        environment = quadratic(tmp_path / "quad")
        ballast = disk / "ballast"
        with ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, 700 * 2**20)
        more = {"NIGHTSHIFT_HOME": str(disk / "runs")}
        asked = ("--name", "c", "--proposer", "random_search", "--trials", "2", "--tracking", "off", *GREEDY)
        stopped = nightshift("run", str(environment), *asked, server=server, **more)
        assert stopped.returncode == 0 and "c is stopped: the disk of " in stopped.stdout, stopped.stdout
        ballast.unlink()
        further = nightshift("resume", "c", server=server, **more)
        assert further.returncode == 0 and "c is finished: all 2 trials done" in further.stdout, further.stdout
    finally:
        subprocess.run(["umount", "-l", disk], check=True)

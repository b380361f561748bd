"""Outages: MLflow, the Prefect server or the disk gone in the middle of a night, and nothing is lost by it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from environments.plugins import Refused
from flows.cli.machine import sync
from tasks.record import reconcile, record
from tasks.store.ledger import Ledger
from tasks.tracking.background import Background
from tasks.tracking.connection import Store
from tasks.trial import History
from tests.support.histories import tried
from tests.support.ledgers import created
from tests.support.prefect_api import ask
from tests.support.processes import wait_for
from tests.support.servers import Service
from tests.support.toy import GREEDY, nightshift, quadratic, slow, start, status


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return created(tmp_path)


def decided(ledger: Ledger, count: int) -> History:
    """A ledger with so many trials in all."""
    history = reconcile(ledger)
    for number in range(len(history), count):
        ledger.place(number).workspace.mkdir(parents=True)
        history = record(ledger, history, tried(history, float(number)))
    return history


def test_a_campaign_is_not_recorded_in_two_places(
    stores: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided(ledger, 1)
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


def test_a_campaign_does_not_wait_for_a_server_and_says_once_that_it_is_away(ledger: Ledger, tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        said: list[str] = []
        away = Store(f"http://127.0.0.1:{silent.getsockname()[1]}", tmp_path)
        began = time.monotonic()
        with Background(ledger, away, said.append) as recording:
            for count in (1, 2, 3):
                decided(ledger, count)
                recording.ask()
            assert time.monotonic() - began < 20 and not said, "it waits for no answer"
            silent.close()
            recording.close("stopped")
    assert len(said) == 1 and len([event for event in ledger.events() if event["event"] == "tracking"]) == 1

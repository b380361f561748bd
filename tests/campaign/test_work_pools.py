"""Work pools: the bodies of their jobs, and campaigns whose trials run on two hosts, which die in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tasks.store.campaign_lock import holder
from tasks.store.ledger import Ledger
from tasks.system import orphans
from tasks.system.daemon import Daemon
from tests.support.prefect_api import ask, put_automations
from tests.support.processes import wait_for
from tests.support.servers import Service
from tests.support.toy import GREEDY, QUADRATIC, nightshift, quadratic, slow, start, status
from tests.support.workers import launches, prefect, working

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
LONG = QUADRATIC.replace("budget_seconds = 5", "budget_seconds = 120")
FIVE = ("--proposer", "grid", "--set", "proposer.points=5", "--trials", "5", "--tracking", "off", *GREEDY)


@pytest.fixture
def server(lone_server: str) -> str:
    """One whose work pools, deployments and automations are those of this file alone."""
    prefect(lone_server, "work-pool", "create", "gpu-pair", "--type", "process", "--overwrite")
    prefect(lone_server, "deploy", "--prefect-file", "docker/gpu.prefect.yaml", "--name", "gpu-pair")
    return lone_server


@contextmanager
def host(server: str, pool: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A worker on a machine of its own: its home, its Prefect home and its working directory are nobody else's."""
    folder.mkdir()
    own = {"HOME": str(folder), "NIGHTSHIFT_HOME": str(folder / "runs"), "PREFECT_HOME": str(folder / ".prefect")}
    with working(server, pool, folder.name, folder, "--install-policy", "never", **own) as process:
        yield process


def trained_by(worker: subprocess.Popen[bytes]) -> int:
    """The trial, later than the baseline, whose program runs on a worker's machine now; 0 for none."""
    for process in psutil.Process(worker.pid).children(recursive=True):
        with suppress(psutil.Error):
            mark = process.environ().get(orphans.MARKER, "")  # launched/<campaign id>/<trial>/<attempt>/<run>
            if mark and "fit.py" in " ".join(process.cmdline()) and (number := int(mark.split("/")[2])):
                return number
    return 0


def all_are_there_once(again: Sequence[str] = ()) -> None:
    """Every trial is decided once, with its own score, and nothing was asked for twice but what had died."""
    ledger = Ledger.open("night")
    history = ledger.history()
    assert sorted(done.number for done in history) == sorted(done.order for done in history) == list(range(6))
    for done in history:
        assert done.score.value == pytest.approx((float(done.proposal.params["x"]) - 1) ** 2)
    asked = sorted((event["run"], event["launch"]) for event in launches(ledger.path, "asked"))
    assert asked == sorted([(f"{number:04d}-1", 1) for number in range(6)] + [(run, 2) for run in again])
    assert orphans.marked(f"launched/{ledger.campaign.campaign_id}") == []


def test_neither_a_lost_machine_nor_a_killed_parent_loses_a_trial_or_does_one_twice(
    server: str, home: Path, tmp_path: Path
) -> None:
    put_automations(server, silent=40)
    folder, night = quadratic(tmp_path / "quad", fit=slow(8), toml=LONG), home / "night"
    with host(server, "gpu-pair", tmp_path / "one") as one, host(server, "gpu-pair", tmp_path / "two") as two:
        parent = start(
            "run", str(folder), "--name", "night", "--parallel", "2", "--launch", "gpu-pair", *FIVE, server=server
        )
        lost = wait_for(lambda: trained_by(one))
        for process in [(worker := psutil.Process(one.pid)), *worker.children(recursive=True)]:
            with suppress(psutil.Error):
                process.kill()  # the machine, as far as anybody can tell
        (death,) = wait_for(lambda: launches(night, "died"))
        assert (death["trial"], death["launch"]) == (lost, 1) and "No heartbeat" in death["reason"]

        wait_for(lambda: trained_by(two))
        os.killpg(parent.pid, signal.SIGKILL)
        parent.communicate()
        resumed = nightshift("resume", "night", server=server, seconds=600)
    assert resumed.returncode == 0, resumed.stderr
    all_are_there_once(again=[death["run"]])


def test_a_child_goes_on_without_its_worker_and_one_that_is_killed_is_launched_again(
    server: str, home: Path, tmp_path: Path
) -> None:
    folder, night = quadratic(tmp_path / "quad", fit=slow(8), toml=LONG), home / "night"
    with host(server, "gpu-pair", tmp_path / "one") as one:
        parent = start("run", str(folder), "--name", "night", "--launch", "gpu-pair", *FIVE, server=server)
        wait_for(lambda: trained_by(one))
        one.kill()
        with host(server, "gpu-pair", tmp_path / "two") as two:
            killed = wait_for(lambda: trained_by(two))
            (child,) = psutil.Process(two.pid).children()
            child.kill()
            out, _ = parent.communicate(timeout=600)
    assert parent.returncode == 0, out
    (death,) = launches(night, "died")
    assert death["trial"] == killed and "-9" in death["reason"]
    all_are_there_once(again=[death["run"]])


# A deployed campaign on servers that were started by hand, to which `up` adds a worker.


LOGIN = ("me", "a-long-secret")


def test_a_deployed_campaign_that_is_killed_goes_on_by_itself_on_servers_that_were_started_by_hand(
    home: Path, tmp_path: Path
) -> None:
    """The documented commands of Prefect and MLflow, in terminals of their own."""
    home.mkdir(mode=0o700)
    with (
        Service(
            tmp_path / "prefect", "prefect", "server", "start", health="/api/health",
            PREFECT_SERVER_API_AUTH_STRING=":".join(LOGIN),
        ) as own,
        Service(
            tmp_path / "mlflow", "mlflow", "server", "--app-name", "basic-auth", "--workers", "1", health="/health",
            MLFLOW_AUTH_ADMIN_USERNAME=LOGIN[0], MLFLOW_AUTH_ADMIN_PASSWORD=LOGIN[1],
            MLFLOW_FLASK_SERVER_SECRET_KEY="any",
        ) as mlflow,
    ):  # fmt: skip
        url = f"{own.url}/api"
        told = {
            "PREFECT_API_URL": url, "PREFECT_API_AUTH_STRING": ":".join(LOGIN), "MLFLOW_TRACKING_URI": mlflow.url,
            "MLFLOW_TRACKING_USERNAME": LOGIN[0], "MLFLOW_TRACKING_PASSWORD": LOGIN[1],
        }  # fmt: skip
        for more in (("--server", url), ()):  # what campaigns need there; and a worker
            up = nightshift("up", *more, **told)
            assert up.returncode == 0, up.stderr
        living = {name: Daemon(home / ".prefect", name).living() for name in ("server", "mlflow", "worker")}
        assert living["server"] is living["mlflow"] is None and living["worker"] and living["worker"].url == url

        def run() -> Any:
            (found,) = ask("POST", f"{url}/flow_runs/filter", {}, LOGIN)
            return found

        try:
            prefect(url, "deploy", "--name", "cartpole-random", **told)
            folder = str(quadratic(tmp_path / "quad", fit=slow(4), toml=LONG))
            stated = {"environment": folder, "trials": 2, "advanced": {"rule": "greedy", "seed": 5}}
            params = [f"--param={name}={json.dumps(value)}" for name, value in stated.items()]
            prefect(url, "deployment", "run", "campaign/cartpole-random", *params, **told)
            wait_for(lambda: list(home.glob("cartpole-random-*/trials/0001/log.txt")))
            (campaign,) = home.glob("cartpole-random-*")
            os.kill(holder(Ledger.at(campaign))["pid"], signal.SIGKILL)
            wait_for(lambda: run()["state_name"] == "Completed", 400, lambda: str(run()["state"]))
        finally:
            assert nightshift("down", "--now").returncode == 0
        assert run()["run_count"] == 2
        rows = ask("POST", f"{url}/task_runs/filter", {}, LOGIN)
        assert {row["state_type"] for row in rows if row["flow_run_run_count"] == 1} <= {"COMPLETED", "CRASHED"}
        assert not [row for row in rows if row["state_type"] in ("RUNNING", "PENDING")]
        document = status(campaign.name)
        assert [row["trial"] for row in document["trials"]] == [0, 1, 2]
        assert document["urls"]["mlflow_url"].startswith(mlflow.url)

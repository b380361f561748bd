"""A deployed campaign on the servers of `nightshift up`, and on servers that were started by hand: the same comes of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tasks.store.campaign_lock import holder
from tasks.store.ledger import Ledger
from tasks.system.daemon import Daemon
from tests.support.prefect_api import ask
from tests.support.processes import wait_for
from tests.support.servers import Service
from tests.support.toy import nightshift, quadratic, slow, status
from tests.support.workers import prefect, working

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
LOGIN = ("me", "a-long-secret")
Variables = dict[str, str]


@contextlib.contextmanager
def of_up(home: Path, folder: Path) -> Iterator[Variables]:
    """The variables that `up` says are to be exported."""
    done = nightshift("up")
    try:
        assert done.returncode == 0, done.stderr
        lines = [line.split(maxsplit=2)[2] for line in done.stdout.splitlines() if "  for " in line]
        told = subprocess.run(["sh", "-c", f"{'; '.join(lines)}; env"], capture_output=True, text=True, check=True)
        found = dict(line.split("=", 1) for line in told.stdout.splitlines() if "=" in line)
        yield {name: text for name, text in found.items() if name.startswith(("PREFECT_API", "MLFLOW_TRACKING"))}
    finally:
        nightshift("down", "--now")


@contextlib.contextmanager
def by_hand(home: Path, folder: Path) -> Iterator[Variables]:
    """The documented commands of Prefect and MLflow, in terminals of their own."""
    with (
        Service(
            folder / "prefect", "prefect", "server", "start", health="/api/health",
            PREFECT_SERVER_API_AUTH_STRING=":".join(LOGIN),
        ) as prefect,
        Service(
            folder / "mlflow", "mlflow", "server", "--app-name", "basic-auth", "--workers", "1", health="/health",
            MLFLOW_AUTH_ADMIN_USERNAME=LOGIN[0], MLFLOW_AUTH_ADMIN_PASSWORD=LOGIN[1],
            MLFLOW_FLASK_SERVER_SECRET_KEY="any",
        ) as mlflow,
    ):  # fmt: skip
        told = {
            "PREFECT_API_URL": f"{prefect.url}/api", "PREFECT_API_AUTH_STRING": ":".join(LOGIN),
            "MLFLOW_TRACKING_URI": mlflow.url, "MLFLOW_TRACKING_USERNAME": LOGIN[0],
            "MLFLOW_TRACKING_PASSWORD": LOGIN[1],
        }  # fmt: skip
        done = nightshift("up", "--server", told["PREFECT_API_URL"], **told)
        assert done.returncode == 0, done.stderr
        home.mkdir(exist_ok=True)
        with working(told["PREFECT_API_URL"], "trainers", "by-hand", folder, **told):
            yield told


@pytest.mark.parametrize("way", [of_up, by_hand])
def test_a_campaign_that_is_killed_goes_on_by_itself_and_is_found_in_both_pages(
    way: Callable[[Path, Path], contextlib.AbstractContextManager[Variables]], home: Path, tmp_path: Path
) -> None:
    with way(home, tmp_path) as told:
        auth: Any = tuple(told["PREFECT_API_AUTH_STRING"].split(":", 1))

        def at_server(path: str, **body: Any) -> Any:
            return ask("POST", f"{told['PREFECT_API_URL']}{path}", body, auth)

        prefect(told["PREFECT_API_URL"], "deploy", "--name", "cartpole-random", **told)
        folder = str(quadratic(tmp_path / "quad", fit=slow(4)))
        stated = {"environment": folder, "trials": 2, "advanced": {"rule": "greedy", "seed": 5}}
        params = [f"--param={name}={json.dumps(value)}" for name, value in stated.items()]
        prefect(told["PREFECT_API_URL"], "deployment", "run", "campaign/cartpole-random", *params, **told)
        wait_for(lambda: list(home.glob("cartpole-random-*/trials/0001/log.txt")))
        (campaign,) = home.glob("cartpole-random-*")
        os.kill(holder(Ledger.at(campaign))["pid"], signal.SIGKILL)

        def run() -> Any:
            (found,) = at_server("/flow_runs/filter")
            return found

        wait_for(lambda: run()["state_name"] == "Completed", 400, lambda: str(run()["state"]))
        assert run()["run_count"] == 2
        rows = at_server("/task_runs/filter")
        assert {row["state_type"] for row in rows if row["flow_run_run_count"] == 1} <= {"COMPLETED", "CRASHED"}
        assert not [row for row in rows if row["state_type"] in ("RUNNING", "PENDING")]
        document = status(campaign.name)
        assert [row["trial"] for row in document["trials"]] == [0, 1, 2]
        page = document["urls"]["mlflow_url"]
        assert page.startswith(told["MLFLOW_TRACKING_URI"])
        login = (told["MLFLOW_TRACKING_USERNAME"], told["MLFLOW_TRACKING_PASSWORD"])
        search = f"{told['MLFLOW_TRACKING_URI']}/api/2.0/mlflow/experiments/search?max_results=9"
        assert httpx.get(search, auth=login).json()["experiments"]
        assert httpx.get(search).status_code == 401


def test_up_leaves_the_servers_of_somebody_else_alone(home: Path, tmp_path: Path) -> None:
    with by_hand(home, tmp_path) as told:
        done = nightshift("up", **told)
        try:
            assert done.returncode == 0, done.stderr
            living = {name: Daemon(home / ".prefect", name).living() for name in ("server", "mlflow", "worker")}
            assert living["server"] is living["mlflow"] is None and living["worker"] is not None
            assert living["worker"].url == told["PREFECT_API_URL"] and psutil.pid_exists(living["worker"].pid)
        finally:
            assert nightshift("down").returncode == 0

"""A campaign as a deployment: a worker runs it, `kill -9` crashes it, Retry brings it back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tasks.store import campaign_lock
from tasks.store.ledger import Ledger
from tests.support.prefect_api import ask
from tests.support.toy import environment, quadratic, slow, status

CHECKOUT = Path(__file__).parents[2]


def prefect(server: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "prefect", "--no-prompt", *arguments],
        cwd=CHECKOUT,
        env=environment(server),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def server(lone_server: str) -> str:
    """One whose work pools and deployments are those of this file alone."""
    return lone_server


@pytest.fixture
def worker(server: str, home: Path, tmp_path: Path) -> Iterator[None]:
    """A process worker of the pool that prefect.yaml names, started somewhere else than in the checkout."""
    prefect(server, "work-pool", "create", "trainers", "--type", "process", "--overwrite")
    prefect(server, "deploy", "--all")
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", "trainers"]
    more = {"PREFECT_WORKER_QUERY_SECONDS": "1"}
    with (
        (tmp_path / "worker.log").open("wb") as log,
        subprocess.Popen(
            command, cwd=tmp_path, env=environment(server, **more), stdout=log, stderr=log, start_new_session=True
        ) as process,
    ):
        yield
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=240)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_both_catalogues_deploy_as_they_are_written_and_every_schedule_is_off(server: str) -> None:
    trials = {"gpu-pair": "process", "slurm": "process", "cpu-docker": "docker", "gpu-pair-docker": "docker"}
    for name, kind in {"trainers": "process", **trials}.items():
        prefect(server, "work-pool", "create", name, "--type", kind, "--overwrite")
    prefect(server, "deploy", "--all")
    gpus = "docker/gpu.prefect.yaml"
    prefect(server, "deploy", "--prefect-file", gpus, *(word for name in trials for word in ("--name", name)))
    stated = {
        f"{one['entrypoint'].rpartition('.')[2]}/{one['name']}": one
        for file in ("prefect.yaml", gpus)
        for one in yaml.safe_load((CHECKOUT / file).read_text())["deployments"]
    }
    for full_name in [name for name in stated if not name.endswith("-kubernetes")]:
        found, one = ask("GET", f"{server}/deployments/name/{full_name}"), stated[full_name]
        assert found["work_pool_name"] == one["work_pool"]["name"]
        assert found["parameters"] == one.get("parameters", {})
        assert found["job_variables"] == one["work_pool"]["job_variables"]
        assert [schedule["active"] for schedule in found["schedules"]] == [False] * len(one.get("schedules", ()))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("worker")
def test_a_deployed_campaign_that_was_killed_is_brought_back_by_retry(server: str, home: Path, tmp_path: Path) -> None:
    parameters = {
        "environment": str(quadratic(tmp_path / "quad", fit=slow(2))),
        "trials": 2,
        "rule": "greedy",
        "seed": 5,
        "tracking": "off",
    }
    deployment = ask("GET", f"{server}/deployments/name/campaign/cartpole-random")
    made = ask("POST", f"{server}/deployments/{deployment['id']}/create_flow_run", {"parameters": parameters})
    run_id = made["id"]

    def state() -> str:
        found: dict[str, Any] = ask("GET", f"{server}/flow_runs/{run_id}")
        return str(found["state_type"])

    wait_until(lambda: list(home.glob("*/trials/0001/log.txt")))
    (name,) = [path.name for path in home.iterdir() if path.name.startswith("cartpole-random-")]
    os.kill(campaign_lock.holder(Ledger.at(home / name))["pid"], signal.SIGKILL)
    wait_until(lambda: state() == "CRASHED")
    assert status(name)["state"] == "interrupted"
    before = (home / name / "trials/0000/trial.json").read_text()

    # The runner reports the crash at once and its worker again some seconds later, over any state set in between.
    wait_until(lambda: "flow_runs.worker - Check whether" in (tmp_path / "worker.log").read_text())
    prefect(server, "flow-run", "retry", run_id)
    wait_until(lambda: state() == "COMPLETED")
    document = status(name)
    assert document["state"] == "finished"
    assert [row["trial"] for row in document["trials"]] == [0, 1, 2]
    assert (home / name / "trials/0000/trial.json").read_text() == before
    chosen = {"flow_runs": {"id": {"any_": [run_id]}}, "task_runs": {"state": {"name": {"any_": ["Cached"]}}}}
    wait_until(lambda: ask("POST", f"{server}/task_runs/count", chosen) >= 4)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_run_of_a_deployment_from_before_a_flow_moved_says_to_deploy_again(server: str, tmp_path: Path) -> None:
    def post(path: str, document: dict[str, Any]) -> str:
        return str(ask("POST", f"{server}/{path}", document)["id"])

    old = {"name": "old", "entrypoint": "flows.proving.certify", "pull_steps": []}
    deployment = post("deployments/", old | {"flow_id": post("flows/", {"name": "certify"})})
    run = post(f"deployments/{deployment}/create_flow_run", {})

    done = subprocess.run(
        [sys.executable, "-m", "prefect", "--no-prompt", "flow-run", "execute", run],
        cwd=tmp_path, env=environment(server), capture_output=True, text=True, timeout=200,
    )  # fmt: skip

    assert "flows.proving is now flows.certify" in done.stdout + done.stderr
    assert "prefect --no-prompt deploy --all" in done.stdout + done.stderr
    assert ask("GET", f"{server}/flow_runs/{run}")["state_type"] == "CRASHED"


def wait_until(condition: Callable[[], object], seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.2)

"""The catalogues of deployments."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.prefect_api import ask
from tests.support.toy import environment

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

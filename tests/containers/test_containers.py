"""Campaigns whose trials run in Docker containers, on a real daemon: whole, and with containers killed.

Opt-in: `make test-docker`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tasks.store.ledger import Ledger
from tasks.system import orphans
from tests.support.prefect_api import put_automations
from tests.support.processes import wait_for
from tests.support.toy import GREEDY, QUADRATIC, nightshift, quadratic, slow, start
from tests.support.workers import CHECKOUT, launches, prefect, working

IMAGE = "nightshift-trial:latest"
BUILD_SECONDS = 2400
TORCH_INDEX = os.environ.get("TORCH_INDEX", "https://download.pytorch.org/whl/cpu")
"""Where the image has torch from; of PyPI's it is 3 GB."""
POOL = "cpu-docker"

pytestmark = [
    pytest.mark.docker,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(os.geteuid() != 0, reason="containers write as root: sudo make test-docker"),
    pytest.mark.skipif(not shutil.which("docker"), reason="there is no Docker: apt-get install docker.io"),
    pytest.mark.skipif(
        not importlib.util.find_spec("prefect_docker"), reason="pip install 'prefect-docker>=0.7.4,<0.8'"
    ),
]


def docker(*arguments: str, seconds: float = 120) -> str:
    """What `docker ...` prints, of the daemon of this machine or of DOCKER_HOST; authorities are the machine's."""
    done = subprocess.run(
        ["docker", *arguments], cwd=CHECKOUT, env={**os.environ, "SSL_CERT_FILE": ""}, capture_output=True, text=True,
        timeout=seconds,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


def none_is_left() -> None:
    """Return once there is no container, running or ended; the last may still say goodbye to the server."""
    wait_for(lambda: not docker("ps", "--all", "--quiet", "--filter", f"ancestor={IMAGE}"), 120)


@pytest.fixture(scope="module", autouse=True)
def image() -> None:
    """The image of this checkout: what has not changed is taken from an earlier build."""
    docker(
        "build", "--build-arg", f"TORCH_INDEX={TORCH_INDEX}", "--tag", IMAGE, "--file", "docker/Dockerfile", ".",
        seconds=BUILD_SECONDS,
    )  # fmt: skip


@pytest.fixture
def server(lone_server: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """One with a worker, on the daemon's machine, of cpu-docker as it is written, but for where the campaigns are."""
    monkeypatch.delenv("PREFECT_API_SSL_CERT_FILE")  # a worker passes it on, and containers do not have that file
    home.mkdir(mode=0o700, exist_ok=True)
    put_automations(lone_server, silent=40)
    catalogue = tmp_path / "gpu.prefect.yaml"
    catalogue.write_text((CHECKOUT / "docker" / catalogue.name).read_text().replace("/srv/nightshift/runs", str(home)))
    prefect(lone_server, "work-pool", "create", POOL, "--type", "docker", "--overwrite")
    prefect(lone_server, "deploy", "--prefect-file", str(catalogue), "--name", POOL)
    with working(lone_server, POOL, "docker", tmp_path, "--install-policy", "never"):
        yield lone_server


LONG = QUADRATIC.replace("budget_seconds = 5", "budget_seconds = 120")
NEEDED = ("--cap-add=SYS_ADMIN", "--cap-add=NET_ADMIN", "--security-opt=seccomp=unconfined")


def test_bubblewrap_works_in_a_container_with_what_the_deployment_gives_and_with_nothing_less() -> None:
    catalogue = yaml.safe_load((CHECKOUT / "docker/gpu.prefect.yaml").read_text())
    (ours,) = [one for one in catalogue["deployments"] if one["name"] == POOL]
    given = ours["work_pool"]["job_variables"]["container_create_kwargs"]
    options = [f"--cap-add={name}" for name in given["cap_add"]]
    options += [f"--security-opt={name}" for name in given["security_opt"]]
    assert {*options} >= {*NEEDED}
    assert level(*options) == "bwrap"
    for needed in NEEDED:
        assert level(*(option for option in options if option != needed)) != "bwrap"
    assert level() in ("landlock", "none")


def test_a_campaign_trains_ppo_in_containers_of_which_nothing_is_left(server: str, home: Path) -> None:
    done = nightshift(
        "run", "cartpole", "--name", "night", "--trials", "1", "--launch", POOL, "--tracking", "off",
        "--set", "startup_seconds=120", "--set", "budget_seconds=60", *GREEDY, server=server, seconds=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    history = Ledger.open("night").history()
    assert [one.number for one in history] == [0, 1]
    assert all(run.isolation == "bwrap" for one in history for run in one.runs)
    # A trial that is kept has a run of its own, untrained.
    asked = [event["run"] for event in launches(home / "night", "asked")]
    assert {run[:4] for run in asked} == {"0000", "0001"} and len(asked) == len(set(asked))
    none_is_left()


def test_a_trial_whose_container_is_killed_is_launched_again_and_none_is_doubled(
    server: str, home: Path, tmp_path: Path
) -> None:
    folder, night = quadratic(tmp_path / "quad", fit=slow(8), toml=LONG), home / "night"

    def under_way() -> list[dict[str, Any]]:
        """The launches after the baseline's, while a program of the campaign runs."""
        later = [event for event in launches(night, "asked") if event["run"] > "0000-1"]
        return later if later and orphans.marked(f"launched/{Ledger.open('night').campaign.campaign_id}") else []

    asked = ("run", str(folder), "--name", "night", "--launch", POOL, "--trials", "1", "--tracking", "off", *GREEDY)
    with start(*asked, server=server) as parent:
        killed = wait_for(under_way, 300)[-1]
        label = f"label=io.prefect.flow-run-id={killed['flow_run_id']}"
        docker("kill", docker("ps", "--quiet", "--filter", label).strip())
        said, _ = parent.communicate(timeout=900)
    assert parent.returncode == 0, said
    (death,) = launches(night, "died")
    assert death["run"] == killed["run"] and "137" in death["reason"]
    history = Ledger.open("night").history()
    assert sorted(done.order for done in history) == [0, 1]
    for done in history:
        assert done.score.value == pytest.approx((float(done.proposal.params["x"]) - 1) ** 2)
    twice = [event["run"] for event in launches(night, "asked") if event["launch"] > 1]
    assert twice == [killed["run"]]
    none_is_left()


def level(*options: str) -> str:
    """The sandbox level in a container, as `nightshift doctor` tells it."""
    said = docker("run", "--rm", "--network", "host", *options, IMAGE, "nightshift", "doctor")
    (found,) = re.findall(r"trials run at isolation (\w+)", said)
    return str(found)

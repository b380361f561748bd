"""Campaigns whose trials a process worker starts by `srun` in a real Slurm. Opt-in: `make test-slurm`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks.store.ledger import Ledger
from tests.support import slurm
from tests.support.slurm import Cluster
from tests.support.toy import GREEDY, QUADRATIC, environment, nightshift, quadratic, slow, start
from tests.support.workers import working

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
CHECKOUT = Path(__file__).parents[2]
LONG = QUADRATIC.replace("budget_seconds = 5", "budget_seconds = 120")
NIGHT = ("--name", "night", "--launch", "slurm", "--trials", "1", "--tracking", "off", *GREEDY)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    slurm.install_or_skip()
    with slurm.cluster(monkeypatch) as made:
        yield made


@pytest.fixture
def worker(cluster: Cluster, lone_server: str, tmp_path: Path) -> Iterator[str]:
    """The server of a worker of the deployment `trial/slurm`, with the resources that this cluster has."""
    stated = f"command=srun --ntasks=1 --kill-on-bad-exit=1 {sys.executable} -m prefect.engine"
    for arguments in (
        ("work-pool", "create", "slurm", "--type", "process", "--overwrite"),
        ("deploy", "--prefect-file", "docker/gpu.prefect.yaml", "--name", "slurm", "--job-variable", stated),
    ):
        subprocess.run(
            [sys.executable, "-m", "prefect", "--no-prompt", *arguments],
            cwd=CHECKOUT, env=environment(lone_server), check=True, capture_output=True, timeout=200,
        )  # fmt: skip
    machine = {"NIGHTSHIFT_HOME": str(tmp_path / "machine")}
    with working(lone_server, "slurm", "login", tmp_path, "--install-policy", "never", **machine):
        yield lone_server


def until(condition: Callable[[], Any], seconds: float = 200) -> Any:
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.2)
    return value


def launches(home: Path, what: str) -> list[tuple[int, int]]:
    """Trial and launch of what happened to the launches of the campaign, of one kind."""
    found = [json.loads(line) for line in (home / "night/events.jsonl").read_text().splitlines()]
    return [(one["trial"], one["launch"]) for one in found if one["event"] == "launch" and one["what"] == what]


def jobs(cluster: Cluster) -> list[str]:
    return cluster.ask("squeue", "-h", "-o", "%i").split()


def trains(home: Path) -> bool:
    return (home / "night/trials/0000/log.txt").exists()


def test_a_killed_campaign_finds_its_job_again(cluster: Cluster, worker: str, home: Path, tmp_path: Path) -> None:
    parent = start("run", str(quadratic(tmp_path / "quad", fit=slow(45), toml=LONG)), *NIGHT, server=worker)
    until(lambda: trains(home))
    (job,) = jobs(cluster)
    os.killpg(parent.pid, signal.SIGKILL)
    parent.communicate()
    resumed = nightshift("resume", "night", server=worker, seconds=400)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert launches(home, "asked") == [(0, 1), (1, 1)] and launches(home, "adopted") == [(0, 1)]
    first, second = (trial.runs[0].job for trial in Ledger.open("night").history())
    assert first == job and second not in ("", job)
    until(lambda: jobs(cluster) == [])


def test_a_job_that_slurm_ends_is_launched_again_and_no_crash_of_the_trial(
    cluster: Cluster, worker: str, home: Path, tmp_path: Path
) -> None:
    parent = start("run", str(quadratic(tmp_path / "quad", fit=slow(15), toml=LONG)), *NIGHT, server=worker)
    until(lambda: trains(home))
    cluster.ask("scancel", *jobs(cluster))
    out, _ = parent.communicate(timeout=400)
    assert parent.returncode == 0, out
    assert launches(home, "died") == [(0, 1)] and launches(home, "asked") == [(0, 1), (0, 2), (1, 1)]
    assert [trial.runs[0].status for trial in Ledger.open("night").history()] == ["finished", "finished"]


def test_what_stops_a_campaign_ends_its_jobs(cluster: Cluster, worker: str, home: Path, tmp_path: Path) -> None:
    parent = start("run", str(quadratic(tmp_path / "quad", fit=slow(30), toml=LONG)), *NIGHT, server=worker)
    until(lambda: trains(home))
    parent.send_signal(signal.SIGINT)
    parent.communicate(timeout=120)
    assert parent.returncode == 130
    until(lambda: jobs(cluster) == [], 30)

"""Work pools: the bodies of their jobs, and campaigns whose trials run on two hosts, which die in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tasks.store.ledger import Ledger
from tasks.system import orphans
from tests.support.prefect_api import put_automations
from tests.support.processes import wait_for
from tests.support.toy import GREEDY, QUADRATIC, nightshift, quadratic, slow, start
from tests.support.workers import launches, prefect, working

LONG = QUADRATIC.replace("budget_seconds = 5", "budget_seconds = 120")
FIVE = ("--proposer", "grid", "--set", "proposer.points=5", "--trials", "5", "--tracking", "off", *GREEDY)


@pytest.fixture
def server(lone_server: str) -> str:
    """One whose work pools, deployments and automations are those of this file alone."""
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


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_neither_a_lost_machine_nor_a_killed_parent_loses_a_trial_or_does_one_twice(
    server: str, home: Path, tmp_path: Path
) -> None:
    put_automations(server, silent=40)
    prefect(server, "work-pool", "create", "gpu-pair", "--type", "process", "--overwrite")
    prefect(server, "deploy", "--prefect-file", "docker/gpu.prefect.yaml", "--name", "gpu-pair")
    folder, night = quadratic(tmp_path / "quad", fit=slow(8), toml=LONG), home / "night"
    with host(server, "gpu-pair", tmp_path / "one") as one, host(server, "gpu-pair", tmp_path / "two") as two:
        parent = start(
            "run", str(folder), "--name", "night", "--parallel", "2", "--launch", "gpu-pair", *FIVE, server=server
        )
        lost = wait_for(lambda: trained_by(one))
        for process in [*psutil.Process(one.pid).children(recursive=True), psutil.Process(one.pid)]:
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


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_child_goes_on_without_its_worker_and_one_that_is_killed_is_launched_again(
    server: str, home: Path, tmp_path: Path
) -> None:
    prefect(server, "work-pool", "create", "gpu-pair", "--type", "process", "--overwrite")
    prefect(server, "deploy", "--prefect-file", "docker/gpu.prefect.yaml", "--name", "gpu-pair")
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

"""Campaigns whose trials are jobs of a real Slurm: adopted, preempted, cancelled, never trained twice."""

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
from tasks.system import orphans
from tests.support import slurm
from tests.support.slurm import Cluster
from tests.support.toy import FIT, GREEDY, QUADRATIC, command, environment, nightshift, quadratic, slow, start, status

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
CHECKOUT = Path(__file__).parents[2]
LONG = QUADRATIC.replace("budget_seconds = 5", "budget_seconds = 120")
NIGHT = ("--name", "night", "--launch", "slurm", "--proposer", "grid", "--tracking", "off", *GREEDY)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    slurm.install_or_skip()
    with slurm.cluster(monkeypatch) as made:
        yield made


def until(condition: Callable[[], Any], seconds: float = 200) -> Any:
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.2)
    return value


def launches(home: Path, what: str) -> list[dict[str, Any]]:
    """What happened to the launches of the campaign, of one kind."""
    path = home / "night/events.jsonl"
    found = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    return [one for one in found if one["event"] == "launch" and one["what"] == what]


def training(home: Path) -> bool:
    """Whether a program of the campaign trains now."""
    if not (home / "night/campaign.json").is_file():
        return False
    return bool(orphans.marked(f"launched/{Ledger.open('night').campaign.campaign_id}"))


def jobs(cluster: Cluster) -> list[str]:
    return cluster.ask("squeue", "-h", "-o", "%i").split()


def resumed(server: str) -> str:
    done = subprocess.run(
        command("resume", "night"), env=environment(server), capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_every_trial_is_a_job_with_the_resources_that_it_needs(
    cluster: Cluster, server: str, home: Path, tmp_path: Path
) -> None:
    folder = quadratic(tmp_path / "quad", toml=QUADRATIC.replace("[limits]", "[limits]\nmemory_gb = 0.5"))
    done = nightshift(
        "run", str(folder), *NIGHT, "--trials", "2", "--set", "proposer.points=2", "--set", "slurm.partition=urgent",
        server=server,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row["score"] for row in status("night")["trials"]] == pytest.approx([2.25, 16, 4])
    numbers = [event["job"] for event in launches(home, "submitted")]
    assert len(numbers) == 3
    job = cluster.ask("scontrol", "--oneliner", "show", "job", numbers[0])
    campaign = Ledger.open("night").campaign.campaign_id
    assert f"JobName=nightshift-{campaign}-0000-1-launch-1 " in job and f"{campaign}/0000/1/launch 1" in job
    # Of 8 s of training, 20 s of judging and 5 min besides.
    for fact in ("Partition=urgent", "NumCPUs=1", "mem=1.50G", "Requeue=0", "TimeLimit=00:06:00", "JobState=COMPLETED"):
        assert fact in job, job
    assert [trial.runs[0].job for trial in Ledger.open("night").history()] == numbers


def test_a_killed_campaign_finds_its_job_again(cluster: Cluster, server: str, home: Path, tmp_path: Path) -> None:
    folder = quadratic(tmp_path / "quad", fit=slow(15), toml=LONG)
    parent = start("run", str(folder), *NIGHT, "--trials", "1", server=server)
    until(lambda: training(home))
    os.killpg(parent.pid, signal.SIGKILL)
    parent.communicate()
    (noted,) = (home / "night").glob("launches/*/1.job")
    noted.unlink()  # as if it had been killed just after it submitted
    resumed(server)
    (found,) = launches(home, "found")
    assert found["trial"] == 0 and len(launches(home, "submitted")) == 2
    assert [row["trial"] for row in status("night")["trials"]] == [0, 1]


def test_what_stops_a_campaign_ends_its_jobs(cluster: Cluster, server: str, home: Path, tmp_path: Path) -> None:
    folder = quadratic(tmp_path / "quad", fit=slow(15), toml=LONG)
    parent = start("run", str(folder), *NIGHT, "--trials", "1", server=server)
    until(lambda: training(home))
    assert nightshift("stop", "night", "--now", server=server).returncode == 0
    parent.communicate(timeout=60)
    assert not training(home) and jobs(cluster) == []
    resumed(server)
    assert [event["launch"] for event in launches(home, "submitted") if event["trial"] == 0] == [1, 2]
    assert [trial.runs[0].status for trial in Ledger.open("night").history()] == ["finished", "finished"]


def test_a_queued_job_is_told_and_ends_where_the_campaign_goes_on_without_slurm(
    cluster: Cluster, server: str, home: Path, tmp_path: Path
) -> None:
    everything = ("--partition=urgent", f"--cpus-per-task={os.cpu_count()}", "--output=/dev/null", "--wrap=sleep 600")
    other = cluster.ask("sbatch", "--parsable", *everything).strip()
    parent = start("run", str(quadratic(tmp_path / "quad")), *NIGHT, "--trials", "1", server=server)
    until(lambda: len(jobs(cluster)) == 2)
    events = until(lambda: [one for one in Ledger.open("night").events() if "(Resources)" in one.get("who", "")])
    assert events[0]["event"] == "waiting" and "PENDING" in events[0]["who"]
    os.killpg(parent.pid, signal.SIGKILL)
    parent.communicate()
    done = nightshift("resume", "night", "--launch", "here", server=server)
    assert done.returncode == 0, done.stdout + done.stderr
    (ended,) = launches(home, "called back")
    assert ended["jobs"] == [launches(home, "submitted")[0]["job"]] and jobs(cluster) == [other]
    assert [trial.runs[0].job for trial in Ledger.open("night").history()] == ["", ""]


@pytest.mark.parametrize("how", ["preempted", "requeued", "node down", "cancelled"])
def test_what_the_machine_ends_is_launched_again_and_no_crash_of_the_trial(
    how: str, cluster: Cluster, server: str, home: Path, tmp_path: Path
) -> None:
    folder = quadratic(tmp_path / "quad", fit=slow(12), toml=LONG)
    parent = start("run", str(folder), *NIGHT, "--trials", "1", server=server)
    until(lambda: training(home))
    (job,) = jobs(cluster)
    node = cluster.ask("sinfo", "-h", "-N", "-o", "%n").split()[0]
    if how == "preempted":
        cluster.ask(
            "sbatch", "--partition=urgent", f"--cpus-per-task={os.cpu_count()}", "--output=/dev/null", "--wrap=sleep 5"
        )
    elif how == "requeued":
        subprocess.run(["scontrol", "requeue", job])  # refused, since the job says so
        cluster.ask("scontrol", "update", f"jobid={job}", "requeue=1")
        cluster.ask("scontrol", "requeue", job)
    elif how == "node down":
        cluster.end("slurmd", signal.SIGKILL)
        cluster.ask("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
        until(lambda: launches(home, "died"))
        cluster.start_slurmd()
        cluster.ask("scontrol", "update", f"nodename={node}", "state=resume")
    else:
        cluster.ask("scancel", job)
    out, _ = parent.communicate(timeout=400)
    assert parent.returncode == 0, out
    (died,) = launches(home, "died")
    words = {"preempted": "PREEMPTED", "requeued": "requeued", "node down": "NODE_FAIL", "cancelled": "CANCELLED"}
    assert words[how] in died["reason"]
    assert [trial.runs[0].status for trial in Ledger.open("night").history()] == ["finished", "finished"]
    assert [event["launch"] for event in launches(home, "submitted")] == [1, 2, 1]


def test_a_job_that_reaches_its_time_limit_is_no_crash_of_the_trial(
    cluster: Cluster, server: str, home: Path, tmp_path: Path
) -> None:
    # The program would save and end by itself at SIGTERM, which Slurm sends to every process of the job.
    obeys = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
    fit = f"{obeys}time.sleep(75 if '2.5' in sys.argv else 0)\n{FIT}"
    folder = quadratic(tmp_path / "quad", fit=fit, toml=LONG)
    parent = start("run", str(folder), *NIGHT, "--trials", "1", server=server)
    until(lambda: training(home))
    cluster.ask("scontrol", "update", f"jobid={jobs(cluster)[0]}", "timelimit=1")
    out, _ = parent.communicate(timeout=500)
    assert parent.returncode == 0, out
    (died,) = launches(home, "died")
    assert "TIMEOUT" in died["reason"]
    first = Ledger.open("night").history()[0].runs[0]
    assert first.status == "finished" and first.wall_seconds > 70


def test_a_worker_may_start_its_runs_by_srun(cluster: Cluster, server: str, home: Path, tmp_path: Path) -> None:
    """The deployment gpu-pair-slurm, with the resources that this cluster has."""
    prefect = [sys.executable, "-m", "prefect", "--no-prompt"]
    stated = f"command=srun --ntasks=1 --kill-on-bad-exit=1 {sys.executable} -m prefect.engine"
    own = environment(server, NIGHTSHIFT_HOME=str(tmp_path / "machine"), PREFECT_WORKER_QUERY_SECONDS="1")
    for arguments in (
        ("work-pool", "create", "gpu-pair-slurm", "--type", "process", "--overwrite"),
        ("deploy", "--prefect-file", "gpu.prefect.yaml", "--name", "gpu-pair-slurm", "--job-variable", stated),
    ):
        done = subprocess.run(
            [*prefect, *arguments], cwd=CHECKOUT, env=own, capture_output=True, text=True, timeout=200
        )
        assert done.returncode == 0, done.stdout + done.stderr
    with (tmp_path / "worker.log").open("wb") as log:
        worker = subprocess.Popen(
            [*prefect, "worker", "start", "--pool", "gpu-pair-slurm", "--limit", "1", "--install-policy", "never"],
            cwd=tmp_path, env=own, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        night = [argument.replace("slurm", "gpu-pair-slurm") for argument in NIGHT]
        parent = start(
            "run", str(quadratic(tmp_path / "quad", fit=slow(10), toml=LONG)), *night, "--trials", "1", server=server
        )
        until(lambda: training(home))
        parent.send_signal(signal.SIGTERM)
        parent.communicate(timeout=120)
        assert not training(home)
        until(lambda: jobs(cluster) == [])
        resumed(server)
    finally:
        os.killpg(worker.pid, signal.SIGTERM)
        worker.wait(60)
    ran = [trial.runs[0].job for trial in Ledger.open("night").history()]
    assert all(ran) and len(set(ran)) == 2

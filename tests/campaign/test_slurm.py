"""Campaigns whose trials a process worker starts by `srun` in a real Slurm. Opt-in: `make test-slurm`.

The cluster has one node: munged, slurmctld and slurmd of this test's own, on loopback, in one folder.
"""

from __future__ import annotations

import contextlib
import os
import platform
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tasks.store.ledger import Ledger
from tests.support.processes import wait_for
from tests.support.servers import free_port
from tests.support.toy import GREEDY, QUADRATIC, quadratic, slow, start
from tests.support.workers import launches, prefect, working

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
LONG = QUADRATIC.replace("budget_seconds = 5", "budget_seconds = 120")
NIGHT = ("--name", "night", "--launch", "slurm", "--trials", "1", "--tracking", "off", *GREEDY)

NEEDED = ("munged", "slurmctld", "slurmd", "srun", "squeue")
INSTALL = "apt-get install --no-install-recommends slurm-wlm munge"
START_SECONDS = 60.0
# Processes of a job are found by their parents, so neither cgroups nor root are needed.
CONF = """\
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={daemon}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0
KillWait=10
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} RealMemory=4000 State=UNKNOWN
PartitionName=night Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


@dataclass
class Cluster:
    """The daemons; `conf` is what SLURM_CONF has to name."""

    folder: Path
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def conf(self) -> Path:
        return self.folder / "slurm.conf"

    def start(self, name: str, *arguments: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.daemons[name] = subprocess.Popen([shutil.which(name) or name, *arguments], stdout=log, stderr=log)

    def end(self, name: str) -> None:
        process = self.daemons.pop(name)
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        process.kill()
        process.wait()

    def ask(self, *command: str) -> str:
        done = subprocess.run([*command], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{command}: {done.stderr}\n{self.logs()}"
        return done.stdout

    def logs(self) -> str:
        return "\n".join(f"{path.name}: {path.read_text()[-1500:]}" for path in sorted(self.folder.glob("*.log")))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """The cluster, to which SLURM_CONF of this process leads; its jobs and daemons end with the test."""
    if missing := [name for name in NEEDED if shutil.which(name) is None]:
        pytest.skip(f"{', '.join(missing)} not found: {INSTALL}")
    with tempfile.TemporaryDirectory(prefix="nightshift-slurm-", ignore_cleanup_errors=True) as name:
        made = Cluster(Path(name))
        for folder in ("munge", "state", "spool"):
            (made.folder / folder).mkdir(mode=0o700)
        (made.folder / "munge/key").write_bytes(secrets.token_bytes(1024))
        (made.folder / "munge/key").chmod(0o400)
        host, user = platform.node().partition(".")[0], pwd.getpwuid(os.geteuid()).pw_name
        made.conf.write_text(
            CONF.format(
                host=host, user=user, folder=name, controller=free_port(), daemon=free_port(), cores=os.cpu_count()
            )
        )
        monkeypatch.setenv("SLURM_CONF", str(made.conf))
        files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        stated = [f"--{option}={name}/munge/{file}" for option, file in files.items()]
        try:
            made.start("munged", "--foreground", "--force", *stated)
            wait_for(lambda: (made.folder / "munge/socket").exists(), START_SECONDS, made.logs)
            made.start("slurmctld", "-D")
            made.start("slurmd", "-D", "-N", host)
            wait_for(lambda: _answers("sinfo", "-h", "-t", "idle", "-o", "%n"), START_SECONDS, made.logs)
            yield made
        finally:
            if _answers("squeue", "-h", "-o", "%i"):
                subprocess.run(["scancel", "--user", user], capture_output=True, timeout=60)
                wait_for(lambda: not _answers("squeue", "-h", "-o", "%i"), START_SECONDS, made.logs)
            for daemon in [*reversed(made.daemons)]:
                made.end(daemon)


def _answers(*command: str) -> str:
    """What a command of Slurm's prints; empty where it fails, as while the controller starts."""
    return subprocess.run([*command], capture_output=True, text=True, timeout=60).stdout.strip()


@pytest.fixture
def worker(cluster: Cluster, lone_server: str, tmp_path: Path) -> Iterator[str]:
    """The server of a worker of the deployment `trial/slurm`, with the resources that this cluster has."""
    stated = f"command=srun --ntasks=1 --kill-on-bad-exit=1 {sys.executable} -m prefect.engine"
    prefect(lone_server, "work-pool", "create", "slurm", "--type", "process", "--overwrite")
    prefect(
        lone_server, "deploy", "--prefect-file", "docker/gpu.prefect.yaml", "--name", "slurm", "--job-variable", stated
    )
    machine = {"NIGHTSHIFT_HOME": str(tmp_path / "machine")}
    with working(lone_server, "slurm", "login", tmp_path, "--install-policy", "never", **machine):
        yield lone_server


def numbers(home: Path, what: str) -> list[tuple[int, int]]:
    """Trial and launch of what happened to the launches of the campaign, of one kind."""
    return [(one["trial"], one["launch"]) for one in launches(home / "night", what)]


def jobs(cluster: Cluster) -> list[str]:
    return cluster.ask("squeue", "-h", "-o", "%i").split()


def test_a_killed_campaign_finds_its_job_again_one_that_slurm_ends_is_launched_again_and_a_stop_ends_all(
    cluster: Cluster, worker: str, home: Path, tmp_path: Path
) -> None:
    parent = start("run", str(quadratic(tmp_path / "quad", fit=slow(30), toml=LONG)), *NIGHT, server=worker)
    wait_for(lambda: (home / "night/trials/0000/log.txt").exists())
    (job,) = jobs(cluster)
    os.killpg(parent.pid, signal.SIGKILL)
    parent.communicate()
    resumed = start("resume", "night", server=worker)
    wait_for((home / "night/trials/0001/log.txt").exists, 400)
    (first,) = Ledger.open("night").history()
    assert first.runs[0].job == job and numbers(home, "adopted") == [(0, 1)]

    cluster.ask("scancel", *jobs(cluster))
    wait_for(lambda: numbers(home, "asked") == [(0, 1), (1, 1), (1, 2)], 400)
    wait_for(lambda: jobs(cluster))
    resumed.send_signal(signal.SIGINT)
    out, _ = resumed.communicate(timeout=120)
    assert resumed.returncode == 130, out
    assert numbers(home, "died") == [(1, 1)], "no crash of the trial"
    wait_for(lambda: jobs(cluster) == [], 30)

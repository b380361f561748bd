"""A real Slurm cluster of one node: munged, slurmctld and slurmd of this test's own, on loopback, in one folder."""

from __future__ import annotations

import contextlib
import os
import platform
import pwd
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.servers import free_port

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


def install_or_skip() -> None:
    """Skip where Slurm is missing, with the command that installs it."""
    if missing := [name for name in NEEDED if shutil.which(name) is None]:
        pytest.skip(f"{', '.join(missing)} not found: {INSTALL}")


@contextlib.contextmanager
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """The cluster, to which SLURM_CONF of this process leads; its jobs and daemons end with the block."""
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
            _until(lambda: (made.folder / "munge/socket").exists(), made)
            made.start("slurmctld", "-D")
            made.start("slurmd", "-D", "-N", host)
            _until(lambda: _answers("sinfo", "-h", "-t", "idle", "-o", "%n"), made)
            yield made
        finally:
            if _answers("squeue", "-h", "-o", "%i"):
                subprocess.run(["scancel", "--user", user], capture_output=True, timeout=60)
                _until(lambda: not _answers("squeue", "-h", "-o", "%i"), made)
            for daemon in [*reversed(made.daemons)]:
                made.end(daemon)


def _answers(*command: str) -> str:
    """What a command of Slurm's prints; empty where it fails, as while the controller starts."""
    return subprocess.run([*command], capture_output=True, text=True, timeout=60).stdout.strip()


def _until(condition: object, made: Cluster) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, made.logs()
        time.sleep(0.1)

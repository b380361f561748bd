"""Campaigns whose trials run in Docker containers, on a real daemon: whole, and with containers killed.

Opt-in: `make test-docker`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tasks.store.ledger import Ledger
from tasks.system import orphans
from tests.support.prefect_api import put_automations
from tests.support.processes import naming, wait_for
from tests.support.toy import GREEDY, QUADRATIC, nightshift, quadratic, slow, start
from tests.support.workers import launches, prefect, working

# A Docker daemon of the tests' own, with its data in one folder, and the image of docker/Dockerfile built in it.

CHECKOUT = Path(__file__).parents[2]
IMAGE = "nightshift-trial:latest"
BASE = "python:3.11-slim"
"""What docker/Dockerfile begins from."""
RELEASE = "bookworm"
"""The Debian whose Python is 3.11: a base from it stands in where no registry can be reached."""
BUILD_SECONDS = 2400
DAEMON_SECONDS = 120
"""Longest wait for the daemon. It ends itself if its containerd takes 15 s to start, as on a busy machine."""
CA = Path("/etc/ssl/certs/ca-certificates.crt")


def missing() -> str:
    """What these tests lack here, with the command that mends it; empty when nothing is missing."""
    if os.geteuid() != 0:
        return "a Docker daemon needs root: sudo make test-docker"
    programs = {"dockerd": "docker.io", "docker": "docker.io", "debootstrap": "debootstrap"}
    if lacking := sorted({package for name, package in programs.items() if shutil.which(name) is None}):
        return f"not installed: apt-get install {' '.join(lacking)}"
    if importlib.util.find_spec("prefect_docker") is None:
        return "not installed: .venv/bin/pip install 'prefect-docker>=0.7.4,<0.8'"
    return ""


@dataclass
class Engine:
    """The daemon. Its containers use the host's network: it makes no bridge and no rules of a firewall."""

    folder: Path
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def host(self) -> str:
        return f"unix://{self.folder}/docker.sock"

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "DOCKER_HOST": self.host, "DOCKER_BUILDKIT": "0"}  # Debian's package has no other builder

    def start(self) -> None:
        command = [
            "dockerd", "--host", self.host, "--data-root", f"{self.folder}/data", "--exec-root", f"{self.folder}/exec",
            "--pidfile", f"{self.folder}/pid", "--bridge=none", "--iptables=false", "--ip6tables=false",
        ]  # fmt: skip
        deadline = time.monotonic() + DAEMON_SECONDS
        with (self.folder / "log").open("ab") as log:
            while subprocess.run(["docker", "info"], env=self.environment, capture_output=True, check=False).returncode:
                if time.monotonic() > deadline:
                    pytest.fail(f"dockerd did not start:\n{(self.folder / 'log').read_text()[-3000:]}")
                if self._process is None or self._process.poll() is not None:
                    self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
                time.sleep(0.2)

    def stop(self) -> None:
        """End the daemon with all of its containers, and unmount what it leaves: the network of the host."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(timeout=120)
        for place in reversed(mounts(self.folder)):
            subprocess.run(["umount", place], check=True)

    def run(self, *arguments: str, seconds: float = 120) -> str:
        """What `docker ...` prints."""
        done = subprocess.run(
            ["docker", *arguments], env=self.environment, cwd=CHECKOUT, capture_output=True, text=True, timeout=seconds
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
        return done.stdout

    def containers(self) -> list[str]:
        """Names of all containers, ended ones too."""
        return self.run("ps", "--all", "--format", "{{.Names}}").split()

    def build(self, torch_index: str) -> None:
        """Build docker/Dockerfile as its first lines say. What has not changed is taken from an earlier build."""
        pulled = subprocess.run(["docker", "pull", BASE], env=self.environment, capture_output=True, check=False)
        if pulled.returncode and not self.run("images", "--quiet", BASE).strip():
            self._make_base(self.folder / "base")
        self.run(
            "build", "--network", "host", "--build-arg", f"TORCH_INDEX={torch_index}", "--tag", IMAGE,
            "--file", "docker/Dockerfile", ".", seconds=BUILD_SECONDS,
        )  # fmt: skip

    def _make_base(self, root: Path) -> None:
        """A base from Debian's packages. It trusts whom this machine trusts, which may sit behind a proxy."""
        packages = "python3-dev,python3-pip,ca-certificates"
        if root.exists():  # of a build that was killed, perhaps with this machine's /proc in it
            for place in reversed(mounts(root)):
                subprocess.run(["umount", place], check=True)
            shutil.rmtree(root)
        made = subprocess.run(
            ["debootstrap", "--variant=minbase", f"--include={packages}", RELEASE, str(root)],
            capture_output=True, text=True, timeout=BUILD_SECONDS,
        )  # fmt: skip
        assert made.returncode == 0, f"neither a registry nor Debian's packages:\n{(made.stdout + made.stderr)[-3000:]}"
        next(root.glob("usr/lib/python3.*/EXTERNALLY-MANAGED")).unlink()
        (root / "usr/bin/python").symlink_to("python3")
        shutil.copy(CA, root / "etc/ssl/certs")
        (root / "etc/pip.conf").write_text(f"[global]\ncert = {CA}\n")
        with subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE) as tar:
            taken = subprocess.run(
                ["docker", "import", "-", BASE], env=self.environment, stdin=tar.stdout, capture_output=True, text=True
            )
        assert taken.returncode == 0, taken.stderr[-3000:]
        shutil.rmtree(root)


def mounts(folder: Path) -> list[str]:
    """What is mounted below a folder."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [place for place in (line.split()[1] for line in lines) if Path(place).is_relative_to(folder)]


pytestmark = [pytest.mark.docker, pytest.mark.timeout(3600)]

TORCH_INDEX = os.environ.get("TORCH_INDEX", "https://download.pytorch.org/whl/cpu")
"""Where the image has torch from; of PyPI's it is 3 GB."""
POOL = "cpu-docker"


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A daemon with the image. DOCKER_TEST_DATA names a folder to keep both in; else nothing of them stays."""
    if why := missing():
        pytest.skip(why)
    kept = os.environ.get("DOCKER_TEST_DATA")
    folder = Path(kept).absolute() if kept else tmp_path_factory.mktemp("docker")
    folder.mkdir(parents=True, exist_ok=True)
    daemon = Engine(folder)
    with pytest.MonkeyPatch.context() as outside:
        outside.delenv("SSL_CERT_FILE")  # these tests alone get something from elsewhere: images and packages
        outside.delenv("PREFECT_API_SSL_CERT_FILE")  # a worker passes it on, and containers do not have that file
        daemon.start()
        try:
            daemon.build(TORCH_INDEX)
            yield daemon
            assert daemon.containers() == []
        finally:
            daemon.stop()
            if not kept:
                shutil.rmtree(folder)
    assert naming(folder) == []
    assert mounts(folder) == []


@pytest.fixture
def server(engine: Engine, lone_server: str, home: Path, tmp_path: Path) -> Iterator[str]:
    """One with a worker, on the daemon's machine, of cpu-docker as it is written, but for where the campaigns are."""
    home.mkdir(mode=0o700, exist_ok=True)
    put_automations(lone_server, silent=40)
    catalogue = tmp_path / "gpu.prefect.yaml"
    catalogue.write_text((CHECKOUT / "docker" / catalogue.name).read_text().replace("/srv/nightshift/runs", str(home)))
    prefect(lone_server, "work-pool", "create", POOL, "--type", "docker", "--overwrite")
    prefect(lone_server, "deploy", "--prefect-file", str(catalogue), "--name", POOL)
    with working(lone_server, POOL, "docker", tmp_path, "--install-policy", "never", DOCKER_HOST=engine.host):
        yield lone_server


LONG = QUADRATIC.replace("budget_seconds = 5", "budget_seconds = 120")
NEEDED = ("--cap-add=SYS_ADMIN", "--cap-add=NET_ADMIN", "--security-opt=seccomp=unconfined")


def test_bubblewrap_works_in_a_container_with_what_the_deployment_gives_and_with_nothing_less(engine: Engine) -> None:
    catalogue = yaml.safe_load((CHECKOUT / "docker/gpu.prefect.yaml").read_text())
    (ours,) = [one for one in catalogue["deployments"] if one["name"] == POOL]
    given = ours["work_pool"]["job_variables"]["container_create_kwargs"]
    options = [f"--cap-add={name}" for name in given["cap_add"]]
    options += [f"--security-opt={name}" for name in given["security_opt"]]
    assert {*options} >= {*NEEDED}
    assert level(engine, *options) == "bwrap"
    for needed in NEEDED:
        assert level(engine, *(option for option in options if option != needed)) != "bwrap"
    assert level(engine) in ("landlock", "none")


def test_a_campaign_trains_ppo_in_containers_of_which_nothing_is_left(engine: Engine, server: str, home: Path) -> None:
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
    none_is_left(engine)


def test_a_trial_whose_container_is_killed_is_launched_again_and_none_is_doubled(
    engine: Engine, server: str, home: Path, tmp_path: Path
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
        engine.run("kill", engine.run("ps", "--quiet", "--filter", label).strip())
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
    none_is_left(engine)


def none_is_left(engine: Engine) -> None:
    """Return once there is no container, running or ended; the last may still say goodbye to the server."""
    wait_for(lambda: engine.containers() == [], 120)


def level(engine: Engine, *options: str) -> str:
    """The sandbox level in a container, as `nightshift doctor` tells it."""
    said = engine.run("run", "--rm", "--network", "host", *options, IMAGE, "nightshift", "doctor")
    (found,) = re.findall(r"trials run at isolation (\w+)", said)
    return str(found)

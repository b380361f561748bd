"""A Docker daemon of the tests' own, with its data in one folder, and the image of docker/Dockerfile built in it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

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

"""One Docker daemon with the image of a trial for all tests here, and a pool of containers at a Prefect server."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.server import automations
from tests.support.docker_engine import CHECKOUT, Engine, missing, mounts, processes
from tests.support.toy import environment
from tests.support.workers import working

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
    assert processes(folder) == []
    assert mounts(folder) == []


@dataclass(frozen=True)
class Pool:
    """A work pool whose trials are containers, on one server."""

    engine: Engine
    server: str
    logs: Path

    @contextlib.contextmanager
    def worker(self, name: str) -> Iterator[subprocess.Popen[bytes]]:
        """A worker of the pool, on the daemon's machine, that starts one container at a time."""
        never = ("--install-policy", "never")
        with working(self.server, POOL, name, self.logs, *never, DOCKER_HOST=self.engine.host) as process:
            yield process


@pytest.fixture
def pool(engine: Engine, lone_server: str, home: Path, tmp_path: Path) -> Pool:
    """The deployment cpu-docker as it is written, but for where the campaigns are."""
    home.mkdir(mode=0o700, exist_ok=True)
    automations.put(lone_server, None, {automations.SILENT: 40})
    catalogue = tmp_path / "gpu.prefect.yaml"
    catalogue.write_text((CHECKOUT / "docker" / catalogue.name).read_text().replace("/srv/nightshift/runs", str(home)))
    ours(lone_server, sys.executable, "-m", "prefect", "--no-prompt", "work-pool", "create", POOL, "--type", "docker")
    deploy = ["deploy", "--prefect-file", str(catalogue), "--name", POOL]
    ours(lone_server, sys.executable, "-m", "prefect", "--no-prompt", *deploy)
    return Pool(engine, lone_server, tmp_path)


def deployed() -> dict[str, Any]:
    """The job variables of cpu-docker in gpu.prefect.yaml."""
    catalogue = yaml.safe_load((CHECKOUT / "docker/gpu.prefect.yaml").read_text())
    (found,) = [one for one in catalogue["deployments"] if one["name"] == POOL]
    variables: dict[str, Any] = found["work_pool"]["job_variables"]
    return variables


def ours(server: str, *line: str) -> None:
    done = subprocess.run(line, cwd=CHECKOUT, env=environment(server), capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr

"""What real servers start from: free ports, and databases whose tables are made once for all workers of a test run."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from filelock import FileLock

SERVER_SECONDS = 90.0
"""How long a Prefect server may take to answer; cold, on a busy machine, 8 to 22 s were seen."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def wait_until_healthy(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + SERVER_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            pytest.fail(f"the Prefect server ended with {process.returncode}:\n{log.read_text()[-2000:]}")
        try:
            if httpx.get(f"{url}/health", timeout=5).is_success:
                return
        except httpx.TransportError:
            pass  # not listening yet
        time.sleep(0.2)
    pytest.fail(f"no answer from {url} in {SERVER_SECONDS:.0f} s:\n{log.read_text()[-2000:]}")


def for_all_workers(factory: pytest.TempPathFactory) -> Path:
    """A folder that the workers of pytest-xdist share."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def empty_mlflow_database(folder: Path) -> Path:
    """An MLflow database without a campaign, as the engine makes it; 2 s of work, done by whoever comes first."""
    path = folder / "empty/mlflow.db"
    code = "import pathlib, sys; from tasks.tracking.connection import build_database as build; build(pathlib.Path(sys.argv[1]))"
    return made_once(path, [sys.executable, "-c", code, str(path)])


def empty_prefect_database(folder: Path) -> Path:
    """A database of Prefect's with its tables and no rows; 5 s of work, done by whoever comes first."""
    path = folder / "empty/prefect.db"
    command = [sys.executable, "-m", "prefect", "server", "database", "upgrade", "--yes"]
    return made_once(path, command, PREFECT_HOME=str(path.parent))


def made_once(path: Path, command: list[str], **variables: str) -> Path:
    """The file that a command makes, run under a lock where it is not there yet."""
    path.parent.mkdir(exist_ok=True)
    with FileLock(f"{path}.made.lock"):
        done = Path(f"{path}.made")
        if not done.exists():
            environment = {**os.environ, **variables}
            made = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            assert made.returncode == 0 and path.exists(), made.stderr
            done.touch()
    return path

"""What every test gets: a home of its own, nobody's servers, and on request one real Prefect server."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

SERVER_SECONDS = 90.0
"""How long a Prefect server may take to answer; cold, on a busy machine, 8 to 22 s were seen."""

# Prefect and MLflow read these when they are imported, which test modules may do before any fixture runs.
_PREFECT_HOME = tempfile.TemporaryDirectory(prefix="nightshift-tests-")
for _name in ("PREFECT_API_URL", "PREFECT_API_KEY", "PREFECT_PROFILE", "MLFLOW_TRACKING_URI"):
    os.environ.pop(_name, None)
os.environ.update(
    PREFECT_HOME=_PREFECT_HOME.name,  # neither reads nor touches the profiles of whoever runs the tests
    PREFECT_SERVER_ANALYTICS_ENABLED="false",
    MLFLOW_DISABLE_TELEMETRY="true",
    DO_NOT_TRACK="1",
)
# A shell starts what runs in its background deaf to Ctrl-C, and the programs under test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's campaigns live (not made yet). Autouse: no test can reach the user's own runs/."""
    path = tmp_path / "runs"
    monkeypatch.setenv("NIGHTSHIFT_HOME", str(path))
    return path


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The API address of one real Prefect server, shared by all tests that ask for it."""
    folder = tmp_path_factory.mktemp("prefect")
    port = _free_port()
    url = f"http://127.0.0.1:{port}/api"
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            env={**os.environ, "PREFECT_HOME": str(folder), "PREFECT_SERVER_UI_ENABLED": "false"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait_until_healthy(url, process, folder / "server.log")
        yield url
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # its data is thrown away, so nothing needs a clean end
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _wait_until_healthy(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
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

"""What every test gets: a home of its own, nobody's servers, and on request one real Prefect server."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import servers

# Prefect and MLflow read these when they are imported, which test modules may do before any fixture runs.
_PREFECT_HOME = tempfile.TemporaryDirectory(prefix="nightshift-tests-")
atexit.register(_PREFECT_HOME.cleanup)
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


LONGEST_FIRST = (
    "campaign/", "judges/test_text_judge", "cli/test_cli", "engine/", "red_team/", "proposers/", "trainers/", "cli/",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first: a long one that begins last would run alone at the end."""

    def turn(item: pytest.Item) -> int:
        file = item.path.relative_to(Path(__file__).parent).as_posix()
        return next((rank for rank, start in enumerate(LONGEST_FIRST) if file.startswith(start)), len(LONGEST_FIRST))

    items.sort(key=turn)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's campaigns live (not made yet). Autouse: no test can reach the user's own runs/."""
    path = tmp_path / "runs"
    monkeypatch.setenv("NIGHTSHIFT_HOME", str(path))
    return path


@pytest.fixture(scope="session")
def empty_mlflow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow database to copy: making its tables takes seconds."""
    return servers.empty_mlflow_database(servers.for_all_workers(tmp_path_factory))


@pytest.fixture(scope="session")
def empty_prefect(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of a Prefect server to copy: making its tables takes seconds."""
    return servers.empty_prefect_database(servers.for_all_workers(tmp_path_factory))


@pytest.fixture
def stores(home: Path, empty_mlflow: Path) -> Path:
    """The home with an MLflow database that no campaign has written to: for tests that run whole campaigns."""
    home.mkdir(mode=0o700, parents=True)
    shutil.copy(empty_mlflow, home / "mlflow.db")
    return home


@pytest.fixture
def own_server(home: Path, empty_prefect: Path) -> Path:
    """The home with the database of a Prefect server in it: for tests in which one of our own is started."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    (home / ".prefect").mkdir(mode=0o700)
    shutil.copy(empty_prefect, home / ".prefect/prefect.db")
    return home


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, empty_prefect: Path) -> Iterator[str]:
    """The API address of one real Prefect server, shared by all tests that ask for it."""
    folder = tmp_path_factory.mktemp("prefect")
    shutil.copy(empty_prefect, folder)
    port = servers.free_port()
    url = f"http://127.0.0.1:{port}/api"
    command = [sys.executable, "-m", "flows.server.prefect_app", str(port)]
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
        servers.wait_until_healthy(url, process, folder / "server.log")
        yield url
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # its data is thrown away, so nothing needs a clean end
        process.wait()

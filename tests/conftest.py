"""What every test gets: a home of its own, nobody's servers, and on request one real Prefect server."""

from __future__ import annotations

import atexit
import importlib.metadata
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import certifi
import pytest

from tests.support import servers

if TYPE_CHECKING:
    from tasks.store.ledger import Ledger
    from tasks.tracking.connection import Store
    from tests.support.finished import Finished

# The tests start hundreds of interpreters, and each would compile all of this anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Prefect and MLflow read these when they are imported, which test modules may do before any fixture runs.
_PREFECT_HOME = tempfile.TemporaryDirectory(prefix="nightshift-tests-")
atexit.register(_PREFECT_HOME.cleanup)
for _name in ("PREFECT_API_URL", "PREFECT_API_KEY", "PREFECT_PROFILE", "MLFLOW_TRACKING_URI", "WANDB_PROJECT"):
    os.environ.pop(_name, None)
os.environ.update(
    PREFECT_HOME=_PREFECT_HOME.name,  # neither reads nor touches the profiles of whoever runs the tests
    PREFECT_SERVER_ANALYTICS_ENABLED="false",
    MLFLOW_DISABLE_TELEMETRY="true",
    DO_NOT_TRACK="1",
    PYDANTIC_DISABLE_PLUGINS="__all__",  # there are none, and each process would read what every package declares
)
# Tests speak to this machine alone. Each HTTP client reads the authorities that it trusts: 25 ms for all, 4 for one.
_AUTHORITY = Path(_PREFECT_HOME.name) / "one-authority.pem"
_AUTHORITY.write_text(certifi.contents().partition("-----END CERTIFICATE-----")[0] + "-----END CERTIFICATE-----\n")
for _name in ("SSL_CERT_FILE", "PREFECT_API_SSL_CERT_FILE"):
    os.environ[_name] = str(_AUTHORITY)
# Several test files run at a time: threads that wait for each other's cores spin, and cost several times the work.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
# A shell starts what runs in its background deaf to Ctrl-C, and the programs under test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

LONG = (
    "campaign/", "cli/", "engine/", "judges/test_text_judge", "llm/", "proposers/", "red_team/", "tracking/", "trainers/",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long files first: one that begins last would run alone at the end. The same in all workers."""
    items.sort(key=lambda item: not item.nodeid.partition("tests/")[2].startswith(LONG))


TOGETHER = (
    ("llm/", "proposers/test_llm_proposers"),
    ("tracking/", "store/test_safe_read"), ("environments/",), ("plots/", "report/"),
    ("trainers/test_ppo_and_sac", "trainers/test_grpo"), ("red_team/test_as_a_user", "red_team/test_processes"),
    ("proposers/", "cancellers/test_cancellers", "importing/test_optuna_study"),
)  # fmt: skip
"""Files of one worker: they use packages that take long to import (litellm, mlflow, verifiers, torch, matplotlib)."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Whole files to a worker, as `--dist loadfile`, and several of them where each worker would import the same."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Together(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::", 1)[0]
            name = file.partition("tests/")[2]
            return next((group[0] for group in TOGETHER if name.startswith(group)), file)

    return Together(config, log)


@pytest.fixture(autouse=True)
def own_home(home: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test can reach the user's own runs/, or waits for slots, whose locks lie with temporary files, of others."""
    monkeypatch.setenv("NIGHTSHIFT_HOME", str(home))
    monkeypatch.setenv("TMPDIR", aside := str(tmp_path_factory.getbasetemp()))
    monkeypatch.setattr(tempfile, "tempdir", aside)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where this test's campaigns live (not made yet)."""
    return tmp_path / "runs"


@pytest.fixture(scope="session")
def empty_mlflow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow database without a campaign, as the engine makes it, to copy: making its tables takes seconds."""
    path = servers.for_all_workers(tmp_path_factory) / "empty/mlflow.db"
    return servers.made_once(path, servers.MAKE_MLFLOW, str(path))


@pytest.fixture(scope="session")
def empty_prefect(pytestconfig: pytest.Config) -> Path:
    """A database of Prefect's with its tables and block types alone, to copy: 8 s of work, kept between test runs."""
    assert pytestconfig.cache is not None
    path = pytestconfig.cache.mkdir(f"prefect-{importlib.metadata.version('prefect')}") / "prepared/prefect.db"
    return servers.made_once(path, servers.MAKE_PREFECT, PREFECT_HOME=str(path.parent))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """A new campaign, `n`, in the quadratic environment."""
    from tests.support.ledgers import created  # not at the top, where PREFECT_HOME is not set yet

    return created(tmp_path)


@pytest.fixture
def stores(home: Path, empty_mlflow: Path) -> Path:
    """The home with an MLflow database that no campaign has written to."""
    home.mkdir(mode=0o700, exist_ok=True)
    shutil.copy(empty_mlflow, home / "mlflow.db")
    return home


@pytest.fixture
def store(stores: Path) -> Store:
    """The home's own MLflow database, a copy of an empty one."""
    from tasks.tracking.connection import Store

    return Store(f"sqlite:///{stores}/mlflow.db", stores)


@pytest.fixture
def foreign() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has nothing to do with us."""
    with subprocess.Popen(["sleep", "300"], start_new_session=True) as process:
        yield process
        process.kill()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, empty_prefect: Path) -> Iterator[str]:
    """The API address of one real Prefect server, shared by all tests that ask for it, those of other workers too."""
    folder = servers.for_all_workers(tmp_path_factory) / "prefect"
    with servers.shared_prefect_server(folder, empty_prefect) as url:
        yield url


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, server: str) -> Finished:
    """A finished campaign of three trials, shared by all workers, to look at or to copy."""
    from tests.support.finished import finished_campaign

    return finished_campaign(servers.for_all_workers(tmp_path_factory) / "finished", server)


@pytest.fixture(scope="session")
def lone_server(tmp_path_factory: pytest.TempPathFactory, empty_prefect: Path) -> Iterator[str]:
    """A server for tests that change what everybody on it sees: blocks by a known name, work pools, deployments."""
    with servers.prefect_server(tmp_path_factory.mktemp("prefect"), empty_prefect) as server:
        yield f"{server.url}/api"

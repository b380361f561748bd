"""Real servers: one of Prefect that all workers of a test run share, and what others start from: ports and databases."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import httpx
import pytest
from filelock import FileLock

from tests.support.processes import wait_for

SERVER_SECONDS = 90.0
"""How long a Prefect server may take to answer; cold, on a busy machine, 8 to 22 s were seen."""
HAS_BLOCK_TYPES = {"PREFECT_SERVER_REGISTER_BLOCKS_ON_START": "false"}
"""For a server that begins with a copied database: to register them again costs each start 3 s."""

QUIET = {
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "PREFECT_SERVER_UI_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_ENABLED": "false",  # no test reads them; automations hear them all the same
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


class Service:
    """A server in a process of its own, that can be stopped, killed and started anew where it was."""

    def __init__(self, folder: Path, *command: str, health: str, **variables: str) -> None:
        folder.mkdir(exist_ok=True)
        port = str(free_port())
        self.url, self.log = f"http://127.0.0.1:{port}", folder / "server.log"
        self._command = [sys.executable, "-m", *command, "--host", "127.0.0.1", "--port", port]
        self._health, self._variables = health, {"PREFECT_HOME": str(folder), **QUIET, **variables}
        self.up()

    def up(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=self.log.parent, env={**os.environ, **self._variables}, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        # Linux shares the processor between sessions, and tests run many: without this it falls silent for seconds.
        with contextlib.suppress(OSError):  # not allowed, or a system without this
            Path(f"/proc/{self._process.pid}/autogroup").write_text("-10")
        try:
            wait_for(self._is_well, SERVER_SECONDS, lambda: f"for {self.url}:\n{self.log.read_text()[-2000:]}")
        except BaseException:
            self.__exit__()
            raise

    def left_alone(self) -> int:
        """The id of its process, which lives on without us from now on."""
        self._process.returncode = 0  # or it is warned of, where it is forgotten
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.signal(signal.SIGKILL)  # its data is thrown away, so nothing needs a clean end

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
        if number == signal.SIGKILL:
            self._process.wait()

    def _is_well(self) -> bool:
        assert self._process.poll() is None, self.log.read_text()[-2000:]
        try:
            return httpx.get(self.url + self._health, timeout=5).is_success
        except httpx.TransportError:
            return False


def prefect_server(folder: Path, empty: Path) -> Service:
    """A Prefect server with its data in that folder, begun from an empty database; its API is at URL/api."""
    shutil.copy(empty, folder)
    return Service(folder, "prefect", "server", "start", health="/api/health", **HAS_BLOCK_TYPES)


@contextlib.contextmanager
def shared_prefect_server(folder: Path, empty: Path) -> Iterator[str]:
    """The API address of one for all workers that name that folder: whoever comes first starts it, whoever leaves last ends it."""
    folder.mkdir(exist_ok=True)
    address, entry = folder / "address", FileLock(folder / "entry.lock")
    with (folder / "users.lock").open("w") as users:
        with entry:
            fcntl.flock(users, fcntl.LOCK_SH)
            if not address.exists():
                server = prefect_server(folder, empty)
                address.write_text(f"{server.url}/api {server.left_alone()}")
        url, pid = address.read_text().split()
        yield url
        with entry, contextlib.suppress(BlockingIOError):  # others use it still
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            address.unlink()
            os.killpg(int(pid), signal.SIGKILL)


def for_all_workers(factory: pytest.TempPathFactory) -> Path:
    """A folder that the workers of pytest-xdist share."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


MAKE_MLFLOW = (
    "import pathlib, sys; from tasks.tracking.connection import make_database as make; make(pathlib.Path(sys.argv[1]))"
)
MAKE_PREFECT = """\
import asyncio
from prefect.server.database import provide_database_interface
from prefect.server.models.block_registration import run_block_auto_registration

async def prepare():
    database = provide_database_interface()
    await database.create_db()
    async with await database.session() as session:
        await run_block_auto_registration(session)
    await (await database.engine()).dispose()  # else its last rows stay in a file beside it

asyncio.run(prepare())
"""


def made_once(path: Path, code: str, *arguments: str, **variables: str) -> Path:
    """The file that Python code makes, run under a lock by whoever comes first."""
    path.parent.mkdir(exist_ok=True)
    with FileLock(f"{path}.made.lock"):
        done = Path(f"{path}.made")
        if not done.exists():
            path.unlink(missing_ok=True)  # of a run that was cut off
            command, environment = [sys.executable, "-c", code, *arguments], {**os.environ, **variables}
            made = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            assert made.returncode == 0 and path.exists(), made.stderr
            done.touch()
    return path

"""What several tests of whole campaigns need."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.servers import free_port


@pytest.fixture
def postgres() -> Iterator[str]:
    """A PostgreSQL server of this test's own, as Prefect's database; its processes run as an ordinary user."""
    if shutil.which("initdb") is None or shutil.which("postgres") is None:
        pytest.skip("PostgreSQL is not installed")
    who = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    with tempfile.TemporaryDirectory(prefix="nightshift-postgres-", ignore_cleanup_errors=True) as folder:
        os.chown(folder, pwd.getpwnam(who).pw_uid, -1)
        data, port = f"{folder}/data", str(free_port())
        as_who: dict[str, Any] = {"user": who} if os.geteuid() == 0 else {}
        quiet: dict[str, Any] = {"cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run(["initdb", "-D", data, "-U", "prefect", "-A", "trust", "-N"], check=True, **quiet, **as_who)
        command = ["postgres", "-D", data, "-h", "127.0.0.1", "-p", port, "-k", folder, "-c", "fsync=off"]
        with subprocess.Popen(command, **quiet, **as_who) as process:
            ready = ["pg_isready", "-h", "127.0.0.1", "-p", port]
            deadline = time.monotonic() + 60
            while subprocess.run(ready, **quiet).returncode != 0:
                assert time.monotonic() < deadline, "PostgreSQL did not start"
                time.sleep(0.2)
            yield f"postgresql+asyncpg://prefect@127.0.0.1:{port}/postgres"
            process.send_signal(signal.SIGQUIT)  # its data is thrown away

"""Campaigns side by side with Prefect and MLflow on a real PostgreSQL: nothing is lost, and nobody meets a lock."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from benchmarks.campaigns import free_port, surroundings
from benchmarks.lives import Server
from benchmarks.trial_overhead import FILES

WORKERS, TRIALS = 8, 3
ERRORS = re.compile(
    r"deadlock|database is locked|could not (serialize|obtain lock)|lock timeout|too many clients|connection refused"
    r"|\bERROR: |OperationalError|IntegrityError|UniqueViolation",
    re.IGNORECASE,
)
SENT_AGAIN = "metric_pk"
"""In PostgreSQL's line for a point of a metric that is sent again: MLflow tries, and leaves out what is there."""


def binary(name: str) -> str | None:
    """A program of PostgreSQL's; Debian keeps those of a server outside of PATH."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return shutil.which(name) or next((str(place / name) for place in places if (place / name).exists()), None)


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[str]:
    """A PostgreSQL on loopback with its data in a folder of its own, run as an ordinary user: `user@host:port`."""
    if binary("initdb") is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    if find_spec("psycopg") is None:
        pytest.skip("psycopg is not installed: pip install 'psycopg[binary]>=3.2,<4', the extra `postgres`")
    is_root = os.geteuid() == 0
    user = pwd.getpwnam("nobody") if is_root else pwd.getpwuid(os.geteuid())
    folder = tmp_path / "postgres"
    folder.mkdir()
    os.chown(folder, user.pw_uid, -1)
    for parent in folder.parents[:3] if is_root else ():
        parent.chmod(0o755)
    how: dict[str, Any] = {"cwd": folder, "stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    how |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if is_root else {}
    data, port = str(folder / "data"), str(free_port())
    subprocess.run(
        [f"{binary('initdb')}", "-D", data, "-U", "nightshift", "-A", "trust", "-E", "UTF8"], check=True, **how
    )
    command = [f"{binary('postgres')}", "-D", data, "-h", "127.0.0.1", "-p", port, "-k", str(folder)]
    address = ["-U", "nightshift", "-h", "127.0.0.1", "-p", port]
    with (folder / "postgres.log").open("wb") as log, subprocess.Popen(command, stderr=log, **how) as process:
        try:
            deadline = time.monotonic() + 60
            while subprocess.run([f"{binary('pg_isready')}", "-q", *address]).returncode:
                assert process.poll() is None and time.monotonic() < deadline, (folder / "postgres.log").read_text()
                time.sleep(0.1)
            for name in ("prefect", "mlflow"):
                subprocess.run(
                    [f"{binary('psql')}", "-q", *address, "postgres", "-c", f"create database {name}"], check=True
                )
            yield f"nightshift@127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGINT)  # a fast shutdown, whatever is still connected


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_eight_campaigns_at_once_lose_no_record_on_postgresql(
    tmp_path: Path, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    home, problem = tmp_path / "home", tmp_path / "empty"
    for folder in (home, problem):
        folder.mkdir()
    for name, content in FILES.items():
        is_environment = name == "environment.toml"  # its programs do nothing, and need no core
        (problem / name).write_text("cores = 0\n" + content if is_environment else content)
    monkeypatch.setenv("PREFECT_SERVER_DATABASE_CONNECTION_URL", f"postgresql+asyncpg://{postgres}/prefect")
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "nightshift:a-password-of-this-test")
    tracking = f"postgresql+psycopg://{postgres}/mlflow"
    client = MlflowClient(tracking)
    client.search_experiments()  # makes the tables
    server = Server.start(tmp_path / "server", free_port())
    started, logs = [], [home / f"worker-{number}.log" for number in range(WORKERS)]
    try:
        server.wait()
        login = {name: os.environ[name] for name in ("PREFECT_API_AUTH_STRING",)}
        for number, log in enumerate(logs):
            command = [
                sys.executable, "-m", "flows.cli", "run", str(problem), "--name", log.stem, "--trials", str(TRIALS),
                "--rule", "greedy", "--seed", str(number), "--tracking", tracking, "--server", server.url, "--trust",
            ]  # fmt: skip
            with log.open("wb") as output:
                started.append(subprocess.Popen(command, env=surroundings(home) | login, stdout=output, stderr=output))
        codes = [process.wait(3000) for process in started]
    finally:
        for process in started:
            process.terminate()
            process.wait()
        server.kill()

    assert codes == [0] * WORKERS, logs[0].read_text()
    ids = [one.experiment_id for one in client.search_experiments()]
    recorded = client.search_runs(ids, "tags.kind = 'trial'", max_results=1000)
    assert len(recorded) == WORKERS * (TRIALS + 1)  # every campaign has its baseline too
    files = [*logs, server.folder / "server.log", tmp_path / "postgres/postgres.log", *home.glob("*/events.jsonl")]
    lines = [line for file in files for line in file.read_text(errors="replace").splitlines()]
    assert [line for line in lines if ERRORS.search(line) and SENT_AGAIN not in line] == []

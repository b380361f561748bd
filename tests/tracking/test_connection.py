"""MLflow when it is down, silent, locked or broken, and when two processes open a fresh store at once."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tasks.tracking.client import CampaignRecord, locate
from tasks.tracking.connection import Unreachable, build_database, probe_database, probe_server, without_credentials

CAMPAIGN = CampaignRecord("night-1", "one-id", "toy", "return/mean", True, None, 1_700_000_000.0, {})


def closed_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def server_answering(status: int) -> Iterator[str]:
    """The address of a server that answers everything with `status`."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_dead_server_is_reported_at_once(tmp_path: Path) -> None:
    tracker = locate(f"http://me:secret@127.0.0.1:{closed_port()}", tmp_path)
    before = time.monotonic()
    with pytest.raises(Unreachable, match=r"http://127\.0\.0\.1:\d+: .*refused"):
        tracker.open_campaign(CAMPAIGN)
    assert time.monotonic() - before < 1


def test_a_server_that_never_answers_is_given_up_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.tracking.connection.PROBE_SECONDS", 0.5)  # its real length is that of a locked database
    with socket.create_server(("127.0.0.1", 0)) as silent:
        tracker = locate(f"http://127.0.0.1:{silent.getsockname()[1]}", tmp_path)
        before = time.monotonic()
        with pytest.raises(Unreachable, match="timed out"):
            tracker.open_campaign(CAMPAIGN)
        assert time.monotonic() - before < 5


def test_a_server_in_trouble_is_not_there() -> None:
    with server_answering(503) as address, pytest.raises(Unreachable, match="503"):
        probe_server(address)


def test_a_database_server_that_is_not_there_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.tracking.client.find_spec", lambda _: True)  # its driver is never loaded
    before = time.monotonic()
    with pytest.raises(Unreachable, match=r"no database answers there: .*refused"):
        locate(f"postgresql+psycopg://me@127.0.0.1:{closed_port()}/db", tmp_path).open_campaign(CAMPAIGN)
    assert time.monotonic() - before < 1


@pytest.mark.parametrize("status", [200, 401, 404])
def test_a_server_that_wants_credentials_is_there(status: int) -> None:
    with server_answering(status) as address:
        probe_server(address)


def test_a_locked_database_is_given_up_soon(tmp_path: Path) -> None:
    path = tmp_path / "some.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        before = time.monotonic()
        with pytest.raises(Unreachable, match="database is locked"):
            probe_database(path)
        assert time.monotonic() - before < 5
        other.execute("ROLLBACK")
        probe_database(path)


def test_a_file_that_is_no_database_is_reported(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("not a database, but long enough to be looked at " * 10)
    with pytest.raises(Unreachable, match="file is not a database"):
        locate(f"sqlite:///{tmp_path}/mlflow.db", tmp_path).open_campaign(CAMPAIGN)


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unreachable, match="File exists"):
        locate(f"sqlite:///{tmp_path}/file/mlflow.db", tmp_path).open_campaign(CAMPAIGN)


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("https://me:secret@host:5000/x", "https://host:5000/x"),
        ("postgresql://me:secret@host/db", "postgresql://host/db"),
        ("sqlite:////tmp/a@b.db", "sqlite:////tmp/a@b.db"),
    ],
)
def test_an_address_is_shown_without_its_password(address: str, public: str) -> None:
    assert without_credentials(address) == public


def test_a_store_that_was_moved_with_its_files_knows_where_they_are(empty_mlflow: Path, tmp_path: Path) -> None:
    home = tmp_path / "moved"
    home.mkdir()
    database = Path(shutil.copy(empty_mlflow, home / "mlflow.db"))

    def addresses() -> list[str]:
        with closing(sqlite3.connect(database)) as store:
            return [row[0] for row in store.execute("SELECT artifact_location FROM experiments ORDER BY experiment_id")]

    (first,) = addresses()
    before = first.removesuffix("/0")
    others = [f"{before}/toy", "s3://bucket/artifacts/toy", f"{before}-of-another/toy"]
    with closing(sqlite3.connect(database)) as store, store:
        for number, address in enumerate(others, 7):
            row = (number, f"nightshift/{number}", address, "active")
            columns = "experiment_id, name, artifact_location, lifecycle_stage"
            store.execute(f"INSERT INTO experiments ({columns}) VALUES (?, ?, ?, ?)", row)
    build_database(database)
    assert addresses() == [first, *others], "without its files nothing is known of a move"
    (home / "artifacts").mkdir()
    for _ in range(2):
        build_database(database)
        here = (home / "artifacts").as_uri()
        assert addresses() == [f"{here}/0", f"{here}/toy", *others[1:]]


OPEN = """
import sys
from pathlib import Path
from tasks.tracking.client import CampaignRecord, locate

home = Path(sys.argv[1])
tracker = locate(f"sqlite:///{home}/mlflow.db", home)
print(tracker.open_campaign(CampaignRecord("night-1", "one-id", "toy", "return/mean", True, None, 1.7e9, {})))
"""


@pytest.mark.slow
def test_processes_that_open_a_fresh_store_at_once_share_one_run(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db.0123.new").write_text("left by one that was killed")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", OPEN, str(tmp_path)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    openers = [subprocess.Popen(command, env=environment, **pipes) for _ in range(2)]
    answers = [opener.communicate(timeout=100) for opener in openers]
    assert [opener.returncode for opener in openers] == [0, 0], answers
    assert len({out for out, _ in answers}) == 1
    assert {err for _, err in answers} == {""}, "MLflow should be silent"
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".lock") == ["mlflow.db"]

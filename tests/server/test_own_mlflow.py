"""The MLflow server of `up` over real HTTP: who is let in, and that it serves what was recorded without it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from flows.server import mlflow_process
from tasks.system.daemon import Daemon, Note
from tasks.system.login import make_login, split_login
from tests.support.levels import SANDBOXED
from tests.support.strangers import is_nothing, of_a_trial, of_another_user

pytestmark = pytest.mark.slow
SEARCH = "/api/2.0/mlflow/experiments/search?max_results=9"
PATHS = (
    "/", "/version", "/graphql", "/get-artifact", SEARCH, "/api/2.0/mlflow-artifacts/artifacts", "/v1/traces",
    "/ajax-api/3.0/jobs", "/signup", "/no/such/path", "POST /api/2.0/mlflow/experiments/create",
)  # fmt: skip


@dataclass(frozen=True)
class Served:
    home: Path
    note: Note
    client: httpx.Client

    def ask(self, path: str, method: str = "GET", known: bool = True, **headers: str) -> httpx.Response:
        auth = split_login(make_login(self.home)) if known else None
        body = {"name": "new"} if method == "POST" else None
        return self.client.request(method, self.note.url + path, auth=auth, headers=headers, json=body)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, empty_mlflow: Path) -> Iterator[Served]:
    """One server for this module, started on a database in which a run was recorded before."""
    home = tmp_path_factory.mktemp("served") / "runs"
    (home / ".prefect").mkdir(mode=0o700, parents=True)
    shutil.copy(empty_mlflow, home / "mlflow.db")
    mlflow = Daemon(home / ".prefect", "mlflow")
    try:
        mlflow_process.start(home)
        note = mlflow.living()
        assert note is not None
        with httpx.Client(timeout=60, trust_env=False) as client:
            yield Served(home, note, client)
    finally:
        mlflow.end()


def test_whoever_does_not_know_the_login_gets_nothing(served: Served) -> None:
    user, _, _ = make_login(served.home).partition(":")
    for path in PATHS:
        method, _, place = path.rpartition(" ")
        for auth in (None, (user, ""), (user, "wrong"), ("admin", "password1234")):
            answer = served.client.request(method or "GET", served.note.url + place, auth=auth)
            assert answer.status_code == 401, path
    asked = served.ask("/", known=False)
    assert asked.headers["www-authenticate"].startswith("Basic "), "so that a browser asks for it"
    assert served.ask(SEARCH).is_success


def test_a_foreign_host_or_origin_is_refused_even_with_the_login(served: Served) -> None:
    for host in ("evil.example", "evil.example:5000", "127.0.0.1.evil.example"):
        assert served.ask(SEARCH, Host=host).status_code == 403
    for origin in ("http://evil.example", "null"):
        assert served.ask("/api/2.0/mlflow/experiments/create", "POST", Origin=origin).status_code == 403
        assert served.ask(SEARCH, Origin=origin).headers.get("access-control-allow-origin") != origin


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_and_a_trial_with_a_network_get_nothing(served: Served, tmp_path: Path) -> None:
    paths = [path for path in PATHS if path != "/signup"]
    got = [of_another_user(served.note, served.home, paths)]
    for level in SANDBOXED:
        (place := tmp_path / level).mkdir()
        got.append(of_a_trial(served.note, served.home, paths, place, level))
    assert [each for each in got if not is_nothing(each, paths)] == []


def test_the_password_is_in_private_files_and_on_no_command_line(served: Served) -> None:
    password = make_login(served.home).partition(":")[2].encode()
    files = [path for path in served.home.rglob("*") if path.is_file() and password in path.read_bytes()]
    assert {path.name for path in files} == {"auth"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in files)
    assert password not in Path(f"/proc/{served.note.pid}/cmdline").read_bytes()

"""Our own servers, Prefect's and MLflow's, over real HTTP: who is let in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from flows.server import server_process
from tasks.sandbox.confinement import Level, VisiblePaths
from tasks.system.daemon import Daemon, Note
from tasks.system.home import login_file, make_login
from tests.support.levels import SANDBOXED
from tests.support.sandboxed import answers
from tests.support.servers import HAS_BLOCK_TYPES

# What another user of this machine, and a trial with a network, get of one of our own servers.

USER = 4242
"""The number of a user whom this machine does not know."""
PRELUDE = """
import json, os, urllib.error, urllib.request

def tried(function):
    try:
        return function()
    except urllib.error.HTTPError as refused:
        return refused.code
    except OSError as refused:
        return type(refused).__name__

def ask(path, **headers):
    method, _, path = path.rpartition(" ")
    body = b"{}" if method == "POST" else None
    request = urllib.request.Request(URL + path, body, {"Content-Type": "application/json", **headers})
    return urllib.request.urlopen(request, timeout=20).status

tried(lambda: ask("/"))  # has everything imported
"""
TRY = """
own = {"Origin": URL, "Host": "localhost:" + URL.rpartition(":")[2]}
print(json.dumps({
    **{path: tried(lambda: ask(path)) for path in PATHS},
    "as its page": tried(lambda: ask(PATHS[0], **own)),
    "guess": tried(lambda: ask(PATHS[0], Authorization="Basic bmlnaHRzaGlmdDo=")),
    "login": tried(lambda: open(LOGIN).read()),
    "variables": tried(lambda: open(f"/proc/{PID}/environ").read()),
}))
"""


def of_another_user(note: Note, home: Path, paths: Sequence[str]) -> dict[str, Any]:
    """Its answers to another user, by path; `login`, `variables`: what that user reads of the file and of /proc."""
    become = f"os.setgroups([]); os.setgid({USER}); os.setuid({USER})\n"
    code = _targets(note, home, paths) + PRELUDE + become + TRY
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def of_a_trial(note: Note, home: Path, paths: Sequence[str], place: Path, level: Level) -> dict[str, Any]:
    """The same of a trial's program with `network = true`, which runs in `place`."""
    code = _targets(note, home, paths) + PRELUDE + TRY
    return dict(answers(place, level, code, view=VisiblePaths((), (), network=True)))


def is_nothing(got: dict[str, Any], paths: Sequence[str]) -> bool:
    """Whether every request was refused for the lack of a login, and nothing could be read."""
    files = {got["login"], got["variables"]}
    asked = {got[name] for name in (*paths, "as its page", "guess")}
    return files <= {"PermissionError", "FileNotFoundError"} and asked == {401}


def _targets(note: Note, home: Path, paths: Sequence[str]) -> str:
    page, login = note.url.removesuffix("/api"), str(login_file(home))
    return f"URL, LOGIN, PID, PATHS = {page!r}, {login!r}, {note.pid}, {list(paths)!r}\n"


pytestmark = pytest.mark.slow
PATHS = {
    "server": (
        "/api/admin/version", "/api/admin/settings", "/api/version", "POST /api/block_documents/filter",
        "POST /api/flow_runs/filter",
    ),
    "mlflow": (
        "/", "/version", "/graphql", "/get-artifact", "/api/2.0/mlflow/experiments/search?max_results=9",
        "/api/2.0/mlflow-artifacts/artifacts", "/v1/traces", "/ajax-api/3.0/jobs", "/no/such/path",
        "POST /api/2.0/mlflow/experiments/create",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Served:
    home: Path
    note: Note
    paths: tuple[str, ...]

    @property
    def page(self) -> str:
        return self.note.url.removesuffix("/api")

    @property
    def login(self) -> tuple[str, str]:
        user, _, password = make_login(self.home).partition(":")
        return user, password

    def ask(self, path: str, auth: tuple[str, str] | None, **headers: str) -> httpx.Response:
        method, _, path = path.rpartition(" ")
        body = {"name": "new"} if method else None
        with httpx.Client(timeout=60, trust_env=False) as client:
            return client.request(method or "GET", self.page + path, auth=auth, headers=headers, json=body)


@pytest.fixture(scope="module", params=list(PATHS))
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, empty_mlflow: Path, empty_prefect: Path
) -> Iterator[Served]:
    """One of the two, for all tests of this module."""
    home = tmp_path_factory.mktemp(request.param) / "runs"
    directory = home / ".prefect"
    directory.mkdir(mode=0o700, parents=True)
    shutil.copy(empty_mlflow, home / "mlflow.db")
    shutil.copy(empty_prefect, directory / "prefect.db")
    daemon = Daemon(directory, request.param)
    with pytest.MonkeyPatch.context() as variables:
        for name, value in {**server_process.QUIET, **HAS_BLOCK_TYPES}.items():
            variables.setenv(name, value)
        with server_process.shared(directory) if request.param == "server" else mlflow_of(home):
            note = daemon.living()
            assert note is not None
            yield Served(home, note, PATHS[request.param])


@contextmanager
def mlflow_of(home: Path) -> Iterator[None]:
    try:
        server_process.mlflow_server(home)
        yield
    finally:
        Daemon(home / ".prefect", "mlflow").end()


def test_whoever_does_not_know_the_login_gets_nothing(served: Served) -> None:
    user, _ = served.login
    for path in (*served.paths, *(["/signup"] if served.paths == PATHS["mlflow"] else [])):
        for auth in (None, (user, ""), (user, "wrong"), ("admin", "password1234")):
            assert served.ask(path, auth).status_code == 401, path
    assert served.ask(served.paths[0], served.login).is_success


def test_a_page_from_elsewhere_is_told_nothing_even_with_the_login(served: Served) -> None:
    search = served.paths[4] if served.paths == PATHS["mlflow"] else served.paths[0]
    for origin in ("http://evil.example", "null"):
        answer = served.ask(search, served.login, Origin=origin)
        assert answer.headers.get("access-control-allow-origin") != origin
    if served.paths == PATHS["mlflow"]:  # a name that points here; Prefect's has the login alone
        assert served.ask(search, served.login, Host="evil.example").status_code == 403
        assert served.ask(served.paths[-1], served.login, Origin="http://evil.example").status_code == 403
        return
    assert served.ask(search, served.login, Origin=served.page).headers["access-control-allow-origin"] == served.page
    told = served.ask("/ui-settings", None).json()
    assert (told["api_url"], told["auth"]) == (served.note.url, "BASIC"), "its page asks for the login"
    assert served.login[1] not in str(told)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_and_a_trial_with_a_network_get_nothing(served: Served, tmp_path: Path) -> None:
    got = [of_another_user(served.note, served.home, served.paths)]
    for level in SANDBOXED:
        (place := tmp_path / level).mkdir()
        got.append(of_a_trial(served.note, served.home, served.paths, place, level))
    assert [each for each in got if not is_nothing(each, served.paths)] == []


def test_the_password_is_in_a_private_file_and_on_no_command_line(served: Served) -> None:
    password = served.login[1].encode()
    files = [path for path in served.home.rglob("*") if path.is_file() and password in path.read_bytes()]
    assert {path.name for path in files} == {"auth"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in files)
    assert password not in Path(f"/proc/{served.note.pid}/cmdline").read_bytes()

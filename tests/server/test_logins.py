"""Our own servers, Prefect's and MLflow's, over real HTTP: who is let in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from flows.server import server_process
from tasks.sandbox.confinement import VisiblePaths
from tasks.system.daemon import Daemon, Note
from tasks.system.home import login_file, make_login
from tests.support.levels import SANDBOXED
from tests.support.sandboxed import answers
from tests.support.servers import HAS_BLOCK_TYPES

USER = 4242
"""The number of a user whom this machine does not know."""
ATTEMPTS = """
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
BECOME
page = {"Origin": URL, "Host": "localhost:" + URL.rpartition(":")[2]}
asked = [tried(lambda: ask(path)) for path in PATHS]
asked += [tried(lambda: ask(PATHS[0], **more)) for more in (page, {"Authorization": "Basic bmlnaHRzaGlmdDo="})]
print(json.dumps([asked, [tried(lambda: open(file).read()) for file in (LOGIN, f"/proc/{PID}/environ")]]))
"""
"""What is answered to somebody without the login, and what that one reads of its file and of the server's variables."""
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
    with pytest.MonkeyPatch.context() as variables, ExitStack() as stack:
        for name, value in {**server_process.QUIET, **HAS_BLOCK_TYPES}.items():
            variables.setenv(name, value)
        stack.callback(daemon.end)
        if request.param == "server":
            stack.enter_context(server_process.shared(directory))
        else:
            server_process.mlflow_server(home)
        note = daemon.living()
        assert note is not None
        yield Served(home, note, PATHS[request.param])


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
    targets = {"URL": served.page, "LOGIN": str(login_file(served.home)), "PID": served.note.pid, "PATHS": served.paths}
    code = "".join(f"{name} = {value!r}\n" for name, value in targets.items()) + ATTEMPTS
    as_user = code.replace("BECOME", f"os.setgroups([]); os.setgid({USER}); os.setuid({USER})")
    done = subprocess.run([sys.executable, "-I", "-c", as_user], capture_output=True, text=True, check=True)
    got = {"another user": json.loads(done.stdout)}
    for level in SANDBOXED:
        view = VisiblePaths((), (), network=True)
        got[level] = answers(tmp_path / level, level, code.replace("BECOME", ""), view)
    for asked, read in got.values():
        assert set(asked) == {401} and set(read) <= {"PermissionError", "FileNotFoundError"}, got


def test_the_password_is_in_a_private_file_and_on_no_command_line(served: Served) -> None:
    password = served.login[1].encode()
    files = [path for path in served.home.rglob("*") if path.is_file() and password in path.read_bytes()]
    assert {path.name for path in files} == {"auth"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in files)
    assert password not in Path(f"/proc/{served.note.pid}/cmdline").read_bytes()

"""Which Prefect server: the one that is stated, else one of our own that its users share and its last one stops."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from environments.plugins import Refused
from flows.server import server_process
from flows.server.server_process import FIRST_PORT, prefect_server, stated_server
from tasks.system.daemon import Daemon, Note, answers
from tests.support.prefect_api import ask
from tests.support.servers import HAS_BLOCK_TYPES, free_port

CHECKOUT = Path(__file__).parents[2]
NOWHERE = "http://127.0.0.1:9/api"


@pytest.fixture
def settled(home: Path, empty_prefect: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose server keeps its data there; what `settle_in` does in a process of its own."""
    directory = home / ".prefect"
    for name, value in {**HAS_BLOCK_TYPES, **server_process.QUIET, "PREFECT_HOME": str(directory)}.items():
        monkeypatch.setenv(name, value)
    home.mkdir(mode=0o700)
    directory.mkdir(mode=0o700)
    shutil.copy(empty_prefect, directory / "prefect.db")
    return home


@contextlib.contextmanager
def listening(port: int) -> Iterator[None]:
    """Have somebody listen on a port."""
    with socket.socket() as occupant:
        occupant.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        occupant.bind(("127.0.0.1", port))
        occupant.listen()
        yield


@pytest.mark.parametrize("url", [NOWHERE, "nonsense"])
def test_a_stated_server_that_is_nowhere_is_refused(url: str, home: Path) -> None:
    why = f"--server = {url}: no Prefect server answers there"
    with pytest.raises(Refused, match=re.escape(why)):
        stated_server(url, home)


def test_an_export_of_our_own_server_holds_while_that_is_down(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", NOWHERE)
    Daemon(home / ".prefect", "server").write(Note(url=NOWHERE, pid=1, identity="gone"))
    assert stated_server(None, home) is None, "it is started where it was"


def test_an_active_schedule_makes_runs(server: str) -> None:
    """A SQLAlchemy that Prefect's scheduler cannot work with lets everything else work, and no night ever begins."""

    def made(path: str, **body: Any) -> Any:
        return ask("POST", f"{server}{path}", body)

    flow = made("/flows/", name="sleeper")["id"]
    every_night = {"schedule": {"cron": "0 22 * * *", "timezone": "UTC"}, "active": True}
    deployment = made("/deployments/", name="nightly", flow_id=flow, schedules=[every_night])["id"]
    made(f"/deployments/{deployment}/schedule")
    runs = made("/flow_runs/filter", deployments={"id": {"any_": [deployment]}})
    assert runs and all("T22:00:00" in run["expected_start_time"] for run in runs)
    ask("DELETE", f"{server}/deployments/{deployment}")


def test_a_server_keeps_its_port_unless_that_is_taken(settled: Path) -> None:
    server = Daemon(settled / ".prefect", "server")
    with listening(first := free_port()):
        server.write(Note(url=f"http://127.0.0.1:{first}/api", pid=1, identity="gone"))
        assert server.port(FIRST_PORT) != first
    assert server.port(FIRST_PORT) == first
    assert server.is_own(f"http://localhost:{first}/api") and not server.is_own("http://localhost:1/api")


OWNER = """\
import time
from pathlib import Path
from flows.server.server_process import prefect_server, settle_in
from tasks.system.home import home
settle_in(home())
with prefect_server(None, home()) as url:
    print(url, flush=True)
    time.sleep(300)
"""


@contextlib.contextmanager
def owner_of_a_server() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that started our own server and uses it; the server's address."""
    command = [sys.executable, "-c", OWNER]
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        yield owner, owner.stdout.readline().strip()
        owner.kill()


@pytest.mark.slow
def test_our_own_server_survives_its_owner_is_adopted_and_shared_and_stopped_by_its_last_user(
    settled: Path, foreign: subprocess.Popen[bytes]
) -> None:
    """One server for all of this, since each takes some ten seconds to start.

    The port that it had is taken, and server.json names somebody else's process.
    """
    port = free_port()
    theirs = {"url": f"http://127.0.0.1:{port}/api", "pid": foreign.pid, "identity": "of an earlier boot"}
    (settled / ".prefect/server.json").write_text(json.dumps(theirs))
    with listening(port), owner_of_a_server() as (owner, url):
        assert url != theirs["url"]
        assert foreign.poll() is None, "a process that is not ours is never ended"
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()
    survivor = Daemon(settled / ".prefect", "server").living()
    assert survivor and survivor.url == url and survivor.pid != foreign.pid
    family = [server := psutil.Process(survivor.pid), *server.children(recursive=True)]

    with contextlib.ExitStack() as first, contextlib.ExitStack() as second:
        assert first.enter_context(prefect_server(None, settled)) == url
        assert second.enter_context(prefect_server(None, settled)) == url
        assert Daemon(settled / ".prefect", "server").living() == survivor, "adopted, not started again"
        assert server_process.version(url, settled)
        first.close()
        assert answers(url, 5), "somebody still uses it"
    assert psutil.wait_procs(family, timeout=5)[1] == [] and not answers(url, 5)
    assert server_process.auth_string(url, settled) == "", "whoever listens there next is told no password"
    assert foreign.poll() is None


def test_prefects_home_is_ours_and_no_profile_of_the_users_is_read(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from flows.server.server_process import settle_in\n"
        f"settle_in(Path({str(tmp_path)!r}))\n"
        "import os, prefect; print(os.environ['PREFECT_HOME'], os.environ.get('PREFECT_PROFILE'))"
    )
    environment = {**os.environ, "PREFECT_PROFILE": "cloud"}
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, env=environment, capture_output=True, text=True)
    assert done.stdout.split() == [str(tmp_path / ".prefect"), "ephemeral"], done.stderr
    assert (tmp_path / ".prefect").stat().st_mode & 0o777 == 0o700


def test_what_a_dead_server_was_not_told_holds_up_no_end(home: Path) -> None:
    code = (
        "from pathlib import Path; from flows.server import server_process\n"
        f"server_process.settle_in(Path({str(home)!r}))\n"
        f"with server_process.prefect_server({NOWHERE!r}, Path({str(home)!r})):\n"
        "    from prefect.events import emit_event\n"
        "    for each in range(9): emit_event('lost', {'prefect.resource.id': 'any'})\n"
        f"    server_process.drain({NOWHERE!r})\n"
        "print('said'); server_process.leave(3)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (3, "said\n"), done.stderr

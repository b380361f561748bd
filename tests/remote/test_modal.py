"""Modal's own SDK against a server of its calls on this machine: sandboxes of both versions, and kills."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from environments.plugins import Refused
from tasks.remote import jobs, places
from tasks.remote.places import RemotePlace
from tasks.system import interrupt
from tests.support.modal_server import ModalServer, modal_server
from tests.support.processes import wait_for

pytestmark = pytest.mark.slow
CPU: dict[str, Any] = {"image": "image", "usd_per_second": 0, "ready_seconds": 30, "poll_seconds": 0.05}
GPU = {**CPU, "gpu": "A100", "gpu_count": 2}
ENGINE = """\
import sys
from pathlib import Path
from tasks.remote import jobs, places
place = places.load("modal", {settings})
left = jobs.begin("campaign/0001", "modal", place, 60.0, Path(sys.argv[1]), adopt=True)
left.job.place.reach(left.job.key, 60.0)
"""


@pytest.fixture
def server(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModalServer]:
    pytest.importorskip("modal", reason="pip install 'nightshift-rl[modal]'")
    home.mkdir()
    with modal_server(tmp_path / "cloud", monkeypatch) as found:
        yield found


def place(settings: dict[str, Any], **more: Any) -> RemotePlace:
    return places.load("modal", {**settings, **more})


def test_a_sandbox_is_made_as_stated_found_by_its_name_and_terminated(server: ModalServer) -> None:
    """Of the second version, without a GPU; of the first are the others here."""
    wanted = place(CPU, cpu=1.5, memory_gb=4, command=["python", "serve.py"])
    wanted.check()

    first, second = wanted.reach("key", 60.0), wanted.reach("key", 60.0)
    wanted.tear_down("key", 30.0)
    wanted.tear_down("key", 30.0)

    (made,) = server.made
    assert first == second and first.url.startswith("https://") and not server.containers.running
    assert list(made.entrypoint_args) == ["python", "serve.py"] and made.timeout_secs == 60
    assert (made.resources.milli_cpu, made.resources.memory_mb) == (1500, 4096)
    assert "SandboxCreateV2" in server.asked and not made.resources.gpu_config.count


def test_a_sandbox_that_waits_for_a_machine_outlives_its_engine_and_is_adopted_and_removed(
    server: ModalServer, home: Path, tmp_path: Path
) -> None:
    server.is_full = True
    code = ENGINE.format(settings=GPU)
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "costs")], start_new_session=True) as engine:
        wait_for(lambda: server.containers.running)
        engine.send_signal(signal.SIGKILL)
    server.is_full = False

    settings = place(GPU)
    again = jobs.begin("campaign/0001", "modal", settings, 60.0, tmp_path / "costs", adopt=True)
    again.job.place.reach(again.job.key, 60.0)
    assert again.end() is None

    (made,) = server.made
    assert (made.resources.gpu_config.gpu_type, made.resources.gpu_config.count) == ("A100", 2)
    assert not server.containers.running and not jobs.unfollowed()


def test_an_engine_that_is_told_to_end_waits_for_no_machine_and_leaves_no_sandbox(server: ModalServer) -> None:
    server.is_full = True

    def engine() -> float:
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            place(GPU).reach("key", 60.0)
        return time.monotonic() - began

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(engine)
        wait_for(lambda: server.containers.running)
        with interrupt.asked():
            assert waiting.result() < GPU["ready_seconds"] / 2
    place(GPU).tear_down("key", 30.0)
    assert len(server.made) == 1 and not server.containers.running


def test_a_wrong_login_and_gpus_without_a_model_are_refused_before_the_start(
    server: ModalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Refused, match="state gpu"):
        place(CPU, gpu_count=1).check()
    monkeypatch.setenv("MODAL_TOKEN_SECRET", "another")
    with pytest.raises(Refused, match="no such login"):
        place(CPU).check()
    assert not server.made

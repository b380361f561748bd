"""Trainings in clouds, at servers that stand in for them: one container for each trial, found again after a kill, and always removed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from environments import Environment
from environments.plugins import Refused
from tasks.remote import jobs, places
from tasks.remote.endpoint import EndpointFault
from tasks.remote.places import RemotePlace, name_of
from tasks.system import interrupt
from tests.support.clouds import Containers, ModalServer, basilica, modal_server
from tests.support.endpoints import frozen, remote_quadratic, trained
from tests.support.processes import wait_for
from tests.support.toy import FIT


@pytest.fixture(params=["basilica", "modal"])
def cloud(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, Containers]]:
    pytest.importorskip(request.param, reason=f"pip install 'nightshift-rl[{request.param}]'")
    with ExitStack() as stack:
        if request.param == "basilica":
            containers = stack.enter_context(basilica(tmp_path / "cloud", monkeypatch))
        else:
            containers = stack.enter_context(modal_server(tmp_path / "cloud", monkeypatch)).containers
        yield request.param, containers
        containers.end_all()


def problem(folder: Path, trainer: str, fit: str = FIT) -> Environment:
    source = remote_quadratic(folder / "quad", "http://127.0.0.1:9", fit) / "environment.toml"
    section = f'[{trainer}]\nimage = "image"\nusd_per_second = 0.5\ngpu_count = 2\ngpu = "A100"'
    toml = source.read_text().replace('trainer = "http"', f'trainer = "{trainer}"')
    source.write_text(toml.replace('[http]\nurl = "http://127.0.0.1:9"', section))
    return frozen(folder)


def test_a_container_is_deployed_for_a_trial_paid_for_and_removed(
    tmp_path: Path, home: Path, cloud: tuple[str, Containers]
) -> None:
    home.mkdir()
    trainer, containers = cloud
    environment = problem(tmp_path, trainer)
    assert environment.remote is not None
    places.load(trainer, environment.remote.model_dump()).check()

    run = trained(environment, tmp_path)

    assert run.error is None
    assert run.usd is not None and 0 < run.usd <= 0.5 * (run.wall_seconds + 0.1)
    assert len(containers.created) == containers.starts == 1 and not containers.running
    assert not list((home / ".remote").iterdir())


def test_what_a_killed_engine_has_deployed_is_adopted_or_swept(
    tmp_path: Path, home: Path, cloud: tuple[str, Containers]
) -> None:
    home.mkdir()
    trainer, containers = cloud
    environment = problem(tmp_path, trainer)
    settings = environment.remote
    assert settings is not None
    reached = []
    for _ in range(2):
        with jobs.begin("campaign/0001", trainer, settings, 60.0, tmp_path / "costs", adopt=True) as left:
            reached.append(left.place.reach(left.key, left.token, 60.0))
    said = jobs.sweep(jobs.is_of("campaign"))

    assert reached[0] == reached[1] and len(containers.created) == 1
    assert len(said) == 1 and not containers.running and not jobs.unfollowed()
    assert jobs.paid(tmp_path / "costs") > (0, 0)


def test_a_container_that_never_serves_is_given_up_and_removed(
    tmp_path: Path, home: Path, cloud: tuple[str, Containers]
) -> None:
    home.mkdir()
    trainer, containers = cloud
    settings = {"image": "image", "usd_per_second": 0, "ready_seconds": 0.3, "poll_seconds": 0.05}
    place = places.load(trainer, settings)
    containers.start(name_of("key"), {"ENDPOINT_TOKEN": "of somebody else"})

    with pytest.raises(EndpointFault, match="does not serve the protocol"):
        place.reach("key", "token", 60.0)
    place.tear_down("key", 30.0)
    place.tear_down("key", 30.0)

    assert not containers.running


# Modal alone

CPU: dict[str, Any] = {"image": "image", "usd_per_second": 0, "ready_seconds": 30, "poll_seconds": 0.05}
GPU = {**CPU, "gpu": "A100", "gpu_count": 2}
ENGINE = """\
import sys
from pathlib import Path
from tasks.remote import jobs, places
place = places.load("modal", {settings})
left = jobs.begin("campaign/0001", "modal", place, 60.0, Path(sys.argv[1]), adopt=True)
left.place.reach(left.key, left.token, 60.0)
"""


@pytest.fixture
def server(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModalServer]:
    pytest.importorskip("modal", reason="pip install 'nightshift-rl[modal]'")
    home.mkdir()
    with modal_server(tmp_path / "cloud", monkeypatch) as found:
        yield found


def place(settings: dict[str, Any], **more: Any) -> RemotePlace:
    return places.load("modal", {**settings, **more})


@pytest.mark.slow
def test_a_sandbox_is_made_as_stated_found_by_its_name_and_terminated(server: ModalServer) -> None:
    """Of the second version, without a GPU; of the first are the others here."""
    wanted = place(CPU, cpu=1.5, memory_gb=4, command=["python", "serve.py"])
    wanted.check()

    first, second = wanted.reach("key", "token", 60.0), wanted.reach("key", "token", 60.0)
    wanted.tear_down("key", 30.0)
    wanted.tear_down("key", 30.0)

    (made,) = server.made
    assert first == second and first.url.startswith("https://") and not server.containers.running
    assert list(made.entrypoint_args) == ["python", "serve.py"] and made.timeout_secs == 60
    assert (made.resources.milli_cpu, made.resources.memory_mb) == (1500, 4096)
    assert "SandboxCreateV2" in server.asked and not made.resources.gpu_config.count


@pytest.mark.slow
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
    again.place.reach(again.key, again.token, 60.0)
    assert again.end() is None

    (made,) = server.made
    assert (made.resources.gpu_config.gpu_type, made.resources.gpu_config.count) == ("A100", 2)
    assert not server.containers.running and not jobs.unfollowed()


@pytest.mark.slow
def test_an_engine_that_is_told_to_end_waits_for_no_machine_and_leaves_no_sandbox(server: ModalServer) -> None:
    server.is_full = True

    def engine() -> None:
        with pytest.raises(KeyboardInterrupt):
            place(GPU, ready_seconds=120).reach("key", "token", 60.0)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(engine)
        wait_for(lambda: server.containers.running)
        with interrupt.asked():
            waiting.result(timeout=60)
    place(GPU).tear_down("key", 30.0)
    assert len(server.made) == 1 and not server.containers.running


@pytest.mark.slow
def test_a_wrong_login_and_gpus_without_a_model_are_refused_before_the_start(
    server: ModalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Refused, match="state gpu"):
        place(CPU, gpu_count=1).check()
    monkeypatch.setenv("MODAL_TOKEN_SECRET", "another")
    with pytest.raises(Refused, match="no such login"):
        place(CPU).check()
    assert not server.made

"""Trainings in clouds, at servers that stand in for them: one container for each trial, found again after a kill, and always removed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import environments
from environments import Environment
from tasks.remote import jobs, places
from tasks.remote.endpoint import EndpointFault
from tasks.remote.places import name_of
from tasks.store.ledger import freeze
from tasks.store.workspace import TrialDir
from tasks.train import run_program
from tasks.trial import Proposal, Run
from tests.support.clouds import Containers, basilica
from tests.support.endpoints import remote_quadratic
from tests.support.modal_server import modal_server
from tests.support.toy import FIT, SANDBOX


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
    environment = environments.load(source.parent)
    freeze(environment, folder)
    return environment


def trained(environment: Environment, folder: Path) -> Run:
    place = TrialDir(folder / "trials/0001")
    place.path.mkdir(parents=True, exist_ok=True)
    proposal = Proposal({"x": 2.0})
    return run_program("campaign/0001/1/run-1", environment, SANDBOX, folder / "program", place, proposal, 7)


def test_a_container_is_deployed_for_a_trial_paid_for_and_removed(
    tmp_path: Path, home: Path, cloud: tuple[str, Containers]
) -> None:
    home.mkdir()
    trainer, containers = cloud
    environment = problem(tmp_path, trainer)
    assert environment.remote is not None
    places.load(trainer, environment.remote.model_dump()).check()

    run = trained(environment, tmp_path)

    assert (run.error, run.rented_gpus) == (None, 2)
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
            reached.append(left.job.place.reach(left.job.key, 60.0))
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
        place.reach("key", 60.0)
    place.tear_down("key", 30.0)
    place.tear_down("key", 30.0)

    assert not containers.running

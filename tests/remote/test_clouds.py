"""Trainings in clouds, at servers that stand in for them: one container for each trial, found again after a kill, and always removed."""

from __future__ import annotations

import asyncio
import base64
import functools
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from environments import Environment
from environments.plugins import Refused
from tasks.remote import jobs, places
from tasks.remote.endpoint import EndpointFault
from tasks.remote.places import RemotePlace, name_of
from tasks.system import interrupt
from tests.support.endpoints import RunningEndpoint, frozen, reference, remote_quadratic, trained
from tests.support.processes import wait_for
from tests.support.servers import free_port
from tests.support.toy import FIT
from tests.support.web import Handler, serving

# Stand-ins of clouds: their containers are reference endpoints on this machine, and nobody has an account.


class Containers:
    """The containers that run, by the name that was asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.running, self.created = folder, dict[str, RunningEndpoint](), list[str]()
        self._stack = ExitStack()

    def start(self, name: str, variables: dict[str, Any]) -> None:
        assert name not in self.running
        self.created.append(name)
        endpoint = reference(self.folder / name, token=variables["ENDPOINT_TOKEN"])
        self.running[name] = self._stack.enter_context(endpoint)

    def end(self, name: str) -> None:
        self.running.pop(name).process.kill()

    def end_all(self) -> None:
        self.running.clear()
        self._stack.close()

    @property
    def starts(self) -> int:
        """Trainings that were started, in all containers."""
        return sum(len(path.read_text().split()) for path in self.folder.glob("*/starts.txt"))


class _Basilica(Handler):
    containers: Containers

    def do_GET(self) -> None:
        assert self.headers["Authorization"] == "Bearer basilica_test"
        body, containers = json.loads(self.body() or b"{}"), self.containers
        if self.command == "POST":
            containers.start(body["instanceName"], body["env"])
            answer = self.described(body["instanceName"])
        elif self.command == "DELETE":
            name = self.path.rpartition("/")[2].removeprefix("id-")
            containers.end(name)
            answer = {"instanceName": f"id-{name}", "state": "Deleted", "message": "gone"}
        else:
            every = [self.described(name) for name in containers.running]
            answer = {"deployments": every, "total": len(every)}
        self.answer(200, json.dumps(answer).encode(), Content_Type="application/json")

    do_POST = do_DELETE = do_GET

    def described(self, name: str) -> dict[str, Any]:
        return {
            "instanceName": f"id-{name}", "friendlyName": name, "userId": "me", "namespace": "mine", "image": "image",
            "state": "Active", "url": self.containers.running[name].url, "replicas": {"desired": 1, "ready": 1},
            "createdAt": "2026-11-23T00:00:00Z", "public": True,
        }  # fmt: skip


@pytest.fixture
def basilica(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Containers]:
    """The part of Basilica's REST interface that its SDK uses for deployments."""
    pytest.importorskip("basilica", reason="pip install 'nightshift-rl[basilica]'")
    home.mkdir()
    containers = Containers(tmp_path / "cloud")
    with serving(_Basilica, containers=containers) as url:
        monkeypatch.setenv("BASILICA_API_URL", url)
        monkeypatch.setenv("BASILICA_API_TOKEN", "basilica_test")
        yield containers
        containers.end_all()


# Modal's control plane as far as our sandboxes need it, over gRPC on this machine: Modal's own SDK talks to it.


LOGIN = ("ak-of-the-tests", "as-of-the-tests")
CALLS = (
    "AuthTokenGet", "EnvironmentGetOrCreate", "AppGetOrCreate", "ImageGetOrCreate", "SecretGetOrCreate",
    "SandboxCreate", "SandboxGetTaskId", "SandboxGetFromName", "SandboxWait", "SandboxGetTunnels", "SandboxTerminate",
    "SandboxCreateV2", "SandboxGetFromNameV2", "SandboxWaitV2", "SandboxGetTunnelsV2", "SandboxTerminateV2",
)  # fmt: skip
PORT = 8400
FIRST = 22
"""Characters of the id of a sandbox of the first version, behind its prefix."""


@dataclass
class ModalServer:
    """The sandboxes of one app, and what was asked. A sandbox has ended once its container has."""

    api: Any
    containers: Containers
    asked: list[str] = field(default_factory=list)
    made: list[Any] = field(default_factory=list)
    """The definitions of all sandboxes."""
    is_full: bool = False
    """Whether sandboxes wait for a machine."""
    _secrets: dict[str, dict[str, str]] = field(default_factory=dict)
    _ids: dict[str, str] = field(default_factory=dict)
    """Of sandboxes, by their names; by their form the SDK knows the version."""

    def __mapping__(self) -> dict[str, Any]:
        """What grpclib asks a service for."""
        from google.protobuf.message_factory import GetMessageClass
        from grpclib.const import Cardinality, Handler

        service = self.api.DESCRIPTOR.services_by_name["ModalClient"]
        found = {}
        for name in CALLS:
            method = service.methods_by_name[name]
            types = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
            answer = functools.partial(self._answer, name, types[1])
            found[f"/{service.full_name}/{name}"] = Handler(answer, Cardinality.UNARY_UNARY, *types)
        return found

    async def _answer(self, name: str, kind: Any, stream: Any) -> None:
        from grpclib import GRPCError, Status

        asked = await stream.recv_message()
        self.asked.append(name)
        login = tuple(stream.metadata.get(f"x-modal-token-{part}") for part in ("id", "secret"))
        second = name.endswith("V2")
        if login != LOGIN or (second and stream.metadata.get("x-modal-auth-token") != token()):
            raise GRPCError(Status.UNAUTHENTICATED, "no such login")
        facts = self._constant().get(name) or await getattr(self, f"_{name.removesuffix('V2')}")(asked, second)
        await stream.send_message(kind(**facts))

    def _constant(self) -> dict[str, dict[str, Any]]:
        """What is always answered the same, by the name of the call."""
        settings = self.api.EnvironmentSettings(image_builder_version="2025.06")
        done = {"status": "GENERIC_STATUS_SUCCESS"}
        return {
            "AuthTokenGet": {"token": token()},
            "EnvironmentGetOrCreate": {"environment_id": "en-1", "metadata": {"name": "main", "settings": settings}},
            "AppGetOrCreate": {"app_id": "ap-1"},
            "ImageGetOrCreate": {"image_id": "im-1", "result": done, "metadata": {"image_builder_version": "2025.06"}},
        }

    async def _SecretGetOrCreate(self, asked: Any, second: bool) -> dict[str, Any]:
        name = f"st-{len(self._secrets)}"
        self._secrets[name] = dict(asked.env_dict)
        return {"secret_id": name}

    async def _SandboxCreate(self, asked: Any, second: bool) -> dict[str, Any]:
        from grpclib import GRPCError, Status

        definition = asked.definition
        name, variables = definition.name, dict[str, str]()
        if name in self.containers.running:
            raise GRPCError(Status.ALREADY_EXISTS, f"Sandbox with name {name!r} already exists.")
        for source in asked.secret_sources if second else ():
            variables |= dict(source.env.contents)
        for secret in definition.secret_ids:
            variables |= self._secrets[secret]
        self.made.append(definition)
        await asyncio.to_thread(self.containers.start, name, variables)
        self._ids[name] = f"sb-{len(self.made):0{FIRST + 4 * second}d}"
        return {"sandbox_id": self._ids[name], **({"task_id": "ta-1"} if second else {})}

    async def _SandboxGetTaskId(self, asked: Any, second: bool) -> dict[str, Any]:
        return {} if self.is_full else {"task_id": "ta-1"}

    async def _SandboxGetFromName(self, asked: Any, second: bool) -> dict[str, Any]:
        from grpclib import GRPCError, Status

        name = asked.sandbox_name
        is_first = len(self._ids.get(name, "")) == len("sb-") + FIRST
        if name not in self.containers.running or second == is_first:
            raise GRPCError(Status.NOT_FOUND, f"Sandbox with name {name!r} not found")
        return {"sandbox_id": self._ids.setdefault(name, "sb-others"), "metadata": {"app_id": "ap-1"}}

    async def _SandboxWait(self, asked: Any, second: bool) -> dict[str, Any]:
        ended = {"result": {"status": "GENERIC_STATUS_SUCCESS"}}
        return {} if self._running(asked) else ended

    async def _SandboxGetTunnels(self, asked: Any, second: bool) -> dict[str, Any]:
        name = self._running(asked)
        if self.is_full or not name:
            return {"result": {"status": "GENERIC_STATUS_TIMEOUT"}}
        address = urlsplit(self.containers.running[name].url)
        return {"tunnels": [{"host": address.hostname, "port": address.port, "container_port": PORT}]}

    async def _SandboxTerminate(self, asked: Any, second: bool) -> dict[str, Any]:
        if name := self._running(asked):
            await asyncio.to_thread(self.containers.end, name)
        return {}

    def _running(self, asked: Any) -> str | None:
        """The name of the sandbox that a question is about, while it runs."""
        return next((name for name in self.containers.running if self._ids.get(name) == asked.sandbox_id), None)


@functools.cache
def token() -> str:
    """A token as of Modal's control plane: of its three parts the SDK reads the second."""
    claims = json.dumps({"exp": int(time.time()) + 3600}).encode()
    return f"e30.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.signature"


@pytest.fixture
def server(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModalServer]:
    """The server, and a login of it in the variables of this process and of those that it starts."""
    pytest.importorskip("modal", reason="pip install 'nightshift-rl[modal]'")
    import modal
    from grpclib.server import Server
    from modal_proto import api_pb2

    home.mkdir()
    found = ModalServer(api_pb2, Containers(tmp_path / "cloud"))
    # A tunnel of Modal's ends in TLS; here it leads to the container itself.
    monkeypatch.setattr(modal.Tunnel, "url", property(lambda tunnel: f"http://{tunnel.host}:{tunnel.port}"))
    port, started, over = free_port(), threading.Event(), threading.Event()

    async def serve() -> None:
        server = Server([found])
        await server.start("127.0.0.1", port)
        started.set()
        await asyncio.to_thread(over.wait)
        server.close()
        await asyncio.sleep(0.05)  # in which connections end

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert started.wait(60)
        monkeypatch.setenv("MODAL_SERVER_URL", f"http://127.0.0.1:{port}")
        for name, value in zip(("MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET"), LOGIN, strict=True):
            monkeypatch.setenv(name, value)
        yield found
    finally:
        modal.Client.from_env().close()  # the next test's server is another
        found.containers.end_all()  # so that their connections end
        over.set()
        thread.join()
        found.containers.end_all()  # what was under way


@pytest.fixture(params=["basilica", "modal"])
def cloud(request: pytest.FixtureRequest) -> tuple[str, Containers]:
    if request.param == "basilica":
        return "basilica", request.getfixturevalue("basilica")
    return "modal", request.getfixturevalue("server").containers


def problem(folder: Path, trainer: str, fit: str = FIT) -> Environment:
    source = remote_quadratic(folder / "quad", "http://127.0.0.1:9", fit) / "environment.toml"
    section = f'[{trainer}]\nimage = "image"\nusd_per_second = 0.5\ngpu_count = 2\ngpu = "A100"'
    toml = source.read_text().replace('trainer = "http"', f'trainer = "{trainer}"')
    source.write_text(toml.replace('[http]\nurl = "http://127.0.0.1:9"', section))
    return frozen(folder)


def test_a_container_is_deployed_for_a_trial_paid_for_and_removed(
    tmp_path: Path, home: Path, cloud: tuple[str, Containers]
) -> None:
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
    assert len(said) == 1 and not containers.running and not [*jobs.unfollowed()]
    assert jobs.paid(tmp_path / "costs") > (0, 0)


def test_a_container_that_never_serves_is_given_up_and_removed(
    tmp_path: Path, home: Path, cloud: tuple[str, Containers]
) -> None:
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
    assert first == second and not server.containers.running
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
    assert not server.containers.running and not [*jobs.unfollowed()]


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

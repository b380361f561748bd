"""Stand-ins of clouds: their containers are reference endpoints on this machine, and nobody has an account."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import json
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.endpoints import RunningEndpoint, reference
from tests.support.servers import free_port
from tests.support.web import Handler, serving


class Containers:
    """The containers that run, by the name that was asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.running, self.created = folder, dict[str, RunningEndpoint](), list[str]()
        self._stacks: dict[str, ExitStack] = {}

    def start(self, name: str, variables: dict[str, Any]) -> None:
        assert name not in self.running
        self.created.append(name)
        stack = self._stacks[name] = ExitStack()
        self.running[name] = stack.enter_context(reference(self.folder / name, token=variables["ENDPOINT_TOKEN"]))

    def end(self, name: str) -> None:
        del self.running[name]
        self._stacks.pop(name).close()

    def end_all(self) -> None:
        for name in list(self.running):
            self.end(name)

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


@contextmanager
def basilica(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Containers]:
    """The part of Basilica's REST interface that its SDK uses for deployments."""
    containers = Containers(folder)
    with serving(_Basilica, containers=containers) as url:
        monkeypatch.setenv("BASILICA_API_URL", url)
        monkeypatch.setenv("BASILICA_API_TOKEN", "basilica_test")
        yield containers


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
CERTIFICATE = (
    "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
    "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem",
)  # fmt: skip


@dataclass
class ModalServer:
    """The sandboxes of one app, and what was asked. A sandbox has ended once its container has."""

    api: Any
    containers: Containers
    certificate: ssl.SSLContext
    asked: list[str] = field(default_factory=list)
    made: list[Any] = field(default_factory=list)
    """The definitions of all sandboxes."""
    is_full: bool = False
    """Whether sandboxes wait for a machine."""
    _secrets: dict[str, dict[str, str]] = field(default_factory=dict)
    _ids: dict[str, str] = field(default_factory=dict)
    """Of sandboxes, by their names; by their form the SDK knows the version."""
    relays: dict[str, asyncio.Server] = field(default_factory=dict)

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
        if name not in self.relays:
            relay = functools.partial(_relay, self.containers.running[name].url)
            self.relays[name] = await asyncio.start_server(relay, "127.0.0.1", 0, ssl=self.certificate)
        host, port = self.relays[name].sockets[0].getsockname()
        return {"tunnels": [{"host": host, "port": port, "container_port": PORT}]}

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


async def _relay(url: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass one connection on to a container."""

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.closing(target), contextlib.suppress(ConnectionError):
            while data := await source.read(2**16):
                target.write(data)
                await target.drain()

    onward = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    await asyncio.gather(copy(reader, onward[1]), copy(onward[0], writer))


@contextlib.contextmanager
def modal_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModalServer]:
    """The server, and a login of it in the variables of this process and of those that it starts."""
    if shutil.which(CERTIFICATE[0]) is None:
        pytest.skip("not installed: apt-get install openssl")
    import modal
    from grpclib.server import Server
    from modal_proto import api_pb2

    folder.mkdir(parents=True)
    subprocess.run(CERTIFICATE, cwd=folder, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    found = ModalServer(api_pb2, Containers(folder), context)
    port, started, over = free_port(), threading.Event(), threading.Event()

    async def serve() -> None:
        server = Server([found])
        await server.start("127.0.0.1", port)
        started.set()
        await asyncio.to_thread(over.wait)
        for closed in (server, *found.relays.values()):
            closed.close()
        await asyncio.sleep(0.05)  # in which connections end

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert started.wait(60)
        monkeypatch.setenv("MODAL_SERVER_URL", f"http://127.0.0.1:{port}")
        for name, value in zip(("MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET"), LOGIN, strict=True):
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("SSL_CERT_FILE", str(folder / "cert.pem"))
        yield found
    finally:
        modal.Client.from_env().close()  # the next test's server is another
        found.containers.end_all()  # so that their connections end
        over.set()
        thread.join()
        found.containers.end_all()  # what was under way

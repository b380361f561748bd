"""Stand-ins of clouds: their containers are reference endpoints on this machine, and nobody has an account."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.endpoints import RunningEndpoint, reference
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

"""A stand-in of the Hugging Face hub: the routes that its client calls for an upload, and a fault on request.

Commits are atomic, as there. Weights go with the commit: large files are the client's own business.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.support import web
from tests.support.web import Handler

TOKEN = "hf_" + "StandIn" * 5


@dataclass(frozen=True)
class StoredCommit:
    oid: str
    title: str
    files: dict[str, bytes]


@dataclass
class Repository:
    private: bool
    commits: list[StoredCommit] = field(default_factory=list)

    def commit(self, title: str, files: dict[str, bytes]) -> StoredCommit:
        oid = hashlib.sha1(f"{len(self.commits)}{title}{sorted(files)}".encode()).hexdigest()
        self.commits.append(StoredCommit(oid, title, files))
        return self.commits[-1]


@dataclass
class Hub:
    """Its state, and all requests that it saw."""

    endpoint: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    fault: Literal["", "refuses", "loses the answer"] = ""
    """Of the next commit."""
    requests: list[str] = field(default_factory=list)
    received: list[bytes] = field(default_factory=list)
    """The body of each request."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def files(self, repo: str) -> dict[str, bytes]:
        return self.repositories[repo].commits[-1].files

    def answer(self, path: str, body: bytes) -> tuple[int, Any]:
        """Status and JSON."""
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        if path == "/api/repos/create":
            asked = json.loads(body)
            repo, is_private = f"{asked['organization'] or 'me'}/{asked['name']}", asked.get("visibility") == "private"
            if is_new := repo not in self.repositories:
                self.repositories[repo] = Repository(is_private)
                self.repositories[repo].commit("initial commit", {".gitattributes": b""})
            return 200 if is_new else 409, {"url": f"{self.endpoint}/{repo}", "error": "it exists"}
        found = re.fullmatch(r"/api/models/([^/]+/[^/?]+)/?(\w*).*", path)
        if not found or found[1] not in self.repositories:
            return 404, {"error": f"nothing at {path}"}
        repository, what = self.repositories[found[1]], found[2]
        head = repository.commits[-1]
        oids = {name: _git_oid(content) for name, content in head.files.items()}
        if what == "preupload":
            modes = {"uploadMode": "regular", "shouldIgnore": False}
            paths = [one["path"] for one in json.loads(body)["files"]]
            return 200, {"files": [{"path": path, "oid": oids.get(path), **modes} for path in paths]}
        if what == "tree":
            return 200, [{"type": "file", "path": p, "size": len(c), "oid": oids[p]} for p, c in head.files.items()]
        if what == "commit":
            files = dict(head.files)
            header, *lines = (
                json.loads(line)["value"] | {"kind": json.loads(line)["key"]} for line in body.splitlines()
            )
            for line in lines:
                if line["kind"] == "deletedFile":
                    del files[line["path"]]
                else:
                    files[line["path"]] = base64.b64decode(line["content"])
            made = repository.commit(header["summary"], files)
            return 200, {"commitUrl": f"{self.endpoint}/{found[1]}/commit/{made.oid}", "commitOid": made.oid}
        about = {"id": found[1], "modelId": found[1], "sha": head.oid, "private": repository.private}
        return 200, about | {"siblings": [{"rfilename": name} for name in head.files]}


def _git_oid(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class _Handler(Handler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        hub, body, fault = self.hub, self.body(), ""
        with hub.lock:
            hub.requests.append(self.path)
            hub.received.append(body)
            if "/commit/" in self.path:
                fault, hub.fault = hub.fault, ""
            status, answer = (500, {}) if fault == "refuses" else hub.answer(self.path, body)
            if self.headers.get("Authorization") != f"Bearer {TOKEN}" and "validate" not in self.path:
                status, answer = 401, {"error": "Invalid credentials in Authorization header"}
        if fault == "loses the answer":
            self.close_connection = True
            self.connection.close()
            return
        why = {"X_Error_Message": answer.get("error", "as a test says")} if status >= 400 else {}
        self.answer(status, json.dumps(answer).encode(), **why)

    do_POST = do_GET


@contextlib.contextmanager
def serving() -> Iterator[Hub]:
    """A hub on this machine, until the end of the block."""
    hub = Hub()
    with web.serving(_Handler, hub=hub) as hub.endpoint:
        yield hub

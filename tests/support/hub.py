"""A stand-in of the Hugging Face hub: the routes that its client calls for an upload, and faults on request.

Commits are atomic, and content is kept by its hash, as there. What weights are called goes by LFS.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.support import web
from tests.support.web import Handler

TOKEN = "hf_" + "StandIn" * 5
LFS = (".bin", ".pt", ".safetensors")


@dataclass
class Fault:
    """What happens to one request instead of an answer."""

    method: str
    path: str
    """A regular expression that is searched for in the path."""
    status: int = 500
    times: int = 1
    cut: bool = False
    """Close the connection in place of an answer."""
    done: bool = False
    """Do what was asked before: the answer alone is lost."""
    seconds: float = 0.0
    """Wait before: with status 200, a slow answer."""


@dataclass(frozen=True)
class StoredCommit:
    oid: str
    title: str
    files: dict[str, bytes]


@dataclass
class Repository:
    private: bool
    commits: list[StoredCommit] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)

    def commit(self, title: str, message: str, files: dict[str, bytes]) -> StoredCommit:
        oid = hashlib.sha1(f"{len(self.commits)}{title}{message}{sorted(files)}".encode()).hexdigest()
        self.commits.append(StoredCommit(oid, title, files))
        return self.commits[-1]


class Refusal(Exception):
    """The end of a request that is not granted."""

    def __init__(self, status: int, words: str, url: str = "") -> None:
        super().__init__(words)
        self.status, self.url = status, url


class Hub:
    """Its state, and all requests that it saw."""

    def __init__(self) -> None:
        self.endpoint = ""
        self.repositories: dict[str, Repository] = {}
        self.objects: dict[str, bytes] = {}
        """Content that was uploaded, by its SHA-256."""
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str]] = []
        self.received: list[bytes] = []
        """The body of each request that had one."""
        self.agents: set[str] = set()
        self.lock = threading.Lock()

    def files(self, repo: str) -> dict[str, bytes]:
        return self.repositories[repo].commits[-1].files

    def asked(self, pattern: str) -> list[str]:
        """The requests, as `METHOD path`, in which a pattern is found."""
        return [line for line in map(" ".join, self.requests) if re.search(pattern, line)]

    def fault(self, method: str, path: str) -> Fault | None:
        for one in self.faults:
            if one.times > 0 and one.method == method and re.search(one.path, path):
                one.times -= 1
                return one
        return None

    # The routes

    def whoami(self, body: Any) -> Any:
        return {"type": "user", "name": "me", "orgs": [{"name": "lab"}], "auth": {}}

    def create(self, body: Any) -> Any:
        repo = f"{body['organization'] or 'me'}/{body['name']}"
        if repo.split("/")[0] not in ("me", "lab"):
            raise Refusal(403, f"You don't have the rights to write under {repo.split('/')[0]}")
        url = f"{self.endpoint}/{repo}"
        if repo in self.repositories:
            raise Refusal(409, "You already created this model repo", url)
        made = self.repositories[repo] = Repository(body.get("visibility") == "private")
        made.commit("initial commit", "", {".gitattributes": b""})
        return {"url": url}

    def info(self, body: Any, repo: str, revision: str = "") -> Any:
        made = self._repository(repo)
        files = [{"rfilename": name} for name in sorted(self.files(repo))]
        return {"id": repo, "modelId": repo, "sha": made.commits[-1].oid, "private": made.private, "siblings": files}

    def validate(self, body: Any) -> Any:
        return {"errors": [], "warnings": []}

    def preupload(self, body: Any, repo: str, revision: str) -> Any:
        files = self._repository(repo).commits[-1].files

        def answer(path: str) -> dict[str, Any]:
            is_lfs = path.endswith(LFS)
            known = None if path not in files else _lfs_oid(files[path]) if is_lfs else _git_oid(files[path])
            return {"path": path, "uploadMode": "lfs" if is_lfs else "regular", "shouldIgnore": False, "oid": known}

        return {"files": [answer(one["path"]) for one in body["files"]]}

    def batch(self, body: Any, repo: str) -> Any:
        objects = [{"oid": one["oid"], "size": one["size"]} for one in body["objects"]]
        for one in objects:
            if one["oid"] not in self.objects:
                links = {"upload": f"lfs/{one['oid']}?signature=x", "verify": f"lfs-verify/{one['oid']}"}
                one["actions"] = {name: {"href": f"{self.endpoint}/{link}"} for name, link in links.items()}
        return {"transfer": "basic", "objects": objects}

    def store(self, body: bytes, oid: str) -> Any:
        if _lfs_oid(body) != oid:
            raise Refusal(400, "the content is not what its hash says")
        self.objects[oid] = body
        return {}

    def verify(self, body: Any, oid: str) -> Any:
        assert oid in self.objects
        return {}

    def commit(self, body: bytes, repo: str, revision: str) -> Any:
        repository, lines = self._repository(repo), [json.loads(line) for line in body.splitlines()]
        header = next(line["value"] for line in lines if line["key"] == "header")
        if header.get("parentCommit") not in (None, repository.commits[-1].oid):
            raise Refusal(412, "A commit has happened since. Please refresh and try again.")
        files = dict(repository.commits[-1].files)
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.objects[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        made = repository.commit(header["summary"], header["description"], files)
        return {"commitUrl": f"{self.endpoint}/{repo}/commit/{made.oid}", "commitOid": made.oid}

    def refs(self, body: Any, repo: str) -> Any:
        made = self._repository(repo)
        tags = [{"name": n, "ref": f"refs/tags/{n}", "targetCommit": oid} for n, oid in made.tags.items()]
        main = {"name": "main", "ref": "refs/heads/main", "targetCommit": made.commits[-1].oid}
        return {"branches": [main], "converts": [], "tags": tags}

    def tree(self, body: Any, repo: str, revision: str) -> Any:
        self._repository(repo)
        return [{"type": "file", "path": p, "size": len(c), "oid": _git_oid(c)} for p, c in self.files(repo).items()]

    def tag(self, body: Any, repo: str, revision: str) -> Any:
        tags = self._repository(repo).tags
        if body["tag"] in tags:
            raise Refusal(409, f"Tag {body['tag']} exists")
        tags[body["tag"]] = revision
        return {}

    def _repository(self, repo: str) -> Repository:
        if repo not in self.repositories:
            raise Refusal(404, "Repository not found")
        return self.repositories[repo]


def _git_oid(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _lfs_oid(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


_REPO = r"([^/]+/[^/]+)"
ROUTES: list[tuple[str, str, Callable[..., Any]]] = [
    ("GET", "/api/whoami-v2", Hub.whoami),
    ("POST", "/api/repos/create", Hub.create),
    ("POST", "/api/validate-yaml", Hub.validate),
    ("GET", f"/api/models/{_REPO}(?:/revision/.+)?", Hub.info),
    ("POST", f"/api/models/{_REPO}/preupload/(.+)", Hub.preupload),
    ("POST", rf"/{_REPO}\.git/info/lfs/objects/batch", Hub.batch),
    ("PUT", "/lfs/([0-9a-f]+)", Hub.store),
    ("POST", "/lfs-verify/([0-9a-f]+)", Hub.verify),
    ("POST", f"/api/models/{_REPO}/commit/(.+)", Hub.commit),
    ("GET", f"/api/models/{_REPO}/refs", Hub.refs),
    ("GET", f"/api/models/{_REPO}/tree/([^/]+)", Hub.tree),
    ("POST", f"/api/models/{_REPO}/tag/(.+)", Hub.tag),
]
OPEN = (Hub.validate, Hub.store, Hub.verify)
"""Routes that ask for no token, and take it as part of the address."""
RAW = (Hub.store, Hub.commit)
"""Routes whose body is no single JSON value."""


class _Handler(Handler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        hub, body = self.hub, self.body()
        with hub.lock:
            hub.requests.append((self.command, self.path))
            hub.agents.add(self.headers.get("User-Agent", ""))
            fault = hub.fault(self.command, self.path)
        if fault and fault.seconds:
            time.sleep(fault.seconds)
        status, answer = fault.status if fault else 200, dict[str, Any]()
        if fault is None or fault.done or fault.status == 200:
            with hub.lock:
                hub.received.append(body)
                status, answer = self._route(body)
        if fault and fault.cut:
            self.close_connection = True
            self.connection.close()
            return
        why = {"X_Error_Message": answer.get("error", "as a test says")} if status >= 400 else {}
        self.answer(status, json.dumps(answer).encode(), **why)

    do_POST = do_PUT = do_GET

    def _route(self, body: bytes) -> tuple[int, Any]:
        for method, pattern, action in ROUTES:
            match = re.fullmatch(pattern, urlsplit(self.path).path)
            if match and method == self.command:
                if action not in OPEN and self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    return 401, {"error": "Invalid credentials in Authorization header"}
                try:
                    given = body if action in RAW else json.loads(body or b"{}")
                    return 200, action(self.hub, given, *map(unquote, match.groups()))
                except Refusal as refusal:
                    return refusal.status, {"error": str(refusal), "url": refusal.url}
        return 404, {"error": f"no route {self.command} {self.path}"}


@contextlib.contextmanager
def serving() -> Iterator[Hub]:
    """A hub on this machine, until the end of the block."""
    hub = Hub()
    with web.serving(_Handler, hub=hub) as hub.endpoint:
        yield hub

"""A stand-in of the Hugging Face hub: the routes that its client calls for models, and faults on request.

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
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml

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
    """Wait before: with nothing else, a slow answer."""


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

    def at(self, revision: str) -> StoredCommit | None:
        oid = self.tags.get(revision, revision)
        return self.commits[-1] if revision == "main" else next((c for c in self.commits if c.oid == oid), None)

    def commit(self, title: str, message: str, files: dict[str, bytes]) -> StoredCommit:
        oid = hashlib.sha1(f"{len(self.commits)}{title}{message}{sorted(files)}".encode()).hexdigest()
        self.commits.append(StoredCommit(oid, title, files))
        return self.commits[-1]


class Answer(Exception):
    """The end of a request: what is answered."""

    def __init__(self, status: int, body: Any = None, **headers: str) -> None:
        super().__init__(status)
        self.status, self.body = status, {} if body is None else body
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


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

    def files(self, repo: str, revision: str = "main") -> dict[str, bytes]:
        commit = self.repositories[repo].at(revision)
        assert commit is not None
        return commit.files

    def asked(self, pattern: str) -> list[str]:
        """The requests, as `METHOD path`, in which a pattern is found."""
        return [line for line in map(" ".join, self.requests) if re.search(pattern, line)]

    def fault(self, method: str, path: str) -> Fault | None:
        for one in self.faults:
            if one.times > 0 and one.method == method and re.search(one.path, path):
                one.times -= 1
                return one
        return None


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        hub = self.hub
        with hub.lock:
            hub.requests.append((self.command, self.path))
            hub.agents.add(self.headers.get("User-Agent", ""))
            fault = hub.fault(self.command, self.path)
        if fault and fault.seconds:
            time.sleep(fault.seconds)
        body = self._body()
        if fault and not fault.done:
            if fault.cut:
                self._cut()
            elif fault.status != 200:
                self._send(Answer(fault.status, {"error": "as a test says"}))
            if fault.cut or fault.status != 200:
                return
        try:
            with hub.lock:
                hub.received.append(body)
                self._route(body)
        except Answer as answer:
            if fault and fault.cut:
                self._cut()
            else:
                self._send(answer)

    do_HEAD = do_POST = do_PUT = do_GET

    def _cut(self) -> None:
        self.close_connection = True
        self.connection.close()

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _send(self, answer: Answer) -> None:
        body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        self.send_response(answer.status)
        for name, value in {**answer.headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.wfile.write(body)

    def _route(self, body: bytes) -> None:
        path = urlsplit(self.path).path
        for method, pattern, action in ROUTES:
            match = re.fullmatch(pattern, path)
            if match and method in (self.command, "GET" if self.command == "HEAD" else ""):
                action(self, body, *map(unquote, match.groups()))
        raise Answer(404, {"error": f"no route {self.command} {path}"})

    def _user(self) -> None:
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            words = "Invalid credentials in Authorization header"
            raise Answer(401, {"error": words}, X_Error_Message=words)

    def _repository(self, repo: str) -> Repository:
        self._user()
        if repo not in self.hub.repositories:
            raise Answer(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
        return self.hub.repositories[repo]

    def _commit(self, repo: str, revision: str) -> StoredCommit:
        commit = self._repository(repo).at(revision)
        if commit is None:
            raise Answer(404, {"error": "Invalid rev id"}, X_Error_Code="RevisionNotFound")
        return commit

    def _may_write(self, repo: str) -> None:
        self._user()
        if repo.split("/")[0] not in ("me", "lab"):
            words = f"You don't have the rights to write under {repo.split('/')[0]}"
            raise Answer(403, {"error": words}, X_Error_Message=words)

    def whoami(self, body: bytes) -> None:
        self._user()
        raise Answer(200, {"type": "user", "name": "me", "orgs": [{"name": "lab"}], "auth": {}})

    def create(self, body: bytes) -> None:
        wanted = json.loads(body)
        repo = f"{wanted['organization'] or 'me'}/{wanted['name']}"
        self._may_write(repo)
        url = {"url": f"{self.hub.endpoint}/{repo}"}
        if repo in self.hub.repositories:
            raise Answer(409, {"error": "You already created this model repo", **url})
        made = self.hub.repositories[repo] = Repository(wanted.get("visibility") == "private")
        made.commit("initial commit", "", {".gitattributes": b""})
        raise Answer(200, url)

    def info(self, body: bytes, repo: str, revision: str = "main") -> None:
        commit = self._commit(repo, revision)
        files = [{"rfilename": name} for name in sorted(commit.files)]
        private = self.hub.repositories[repo].private
        raise Answer(200, {"id": repo, "modelId": repo, "sha": commit.oid, "private": private, "siblings": files})

    def validate(self, body: bytes) -> None:
        head = re.match(r"---\n(.*?)\n---", json.loads(body)["content"], re.DOTALL)
        try:
            metadata = yaml.safe_load(head[1]) if head else None
        except yaml.YAMLError as wrong:
            raise Answer(400, {"errors": [{"message": str(wrong)}], "warnings": []}) from wrong
        warnings = [] if metadata else [{"message": "empty or missing yaml metadata in repo card"}]
        raise Answer(200, {"errors": [], "warnings": warnings})

    def preupload(self, body: bytes, repo: str, revision: str) -> None:
        self._may_write(repo)
        wanted, files = json.loads(body), self._commit(repo, revision).files
        ignored = wanted.get("gitIgnore", files.get(".gitignore", b"").decode()).splitlines()

        def answer(path: str) -> dict[str, Any]:
            lfs = path.endswith(LFS)
            known = None if path not in files else _lfs_oid(files[path]) if lfs else _git_oid(files[path])
            mode = "lfs" if lfs else "regular"
            return {"path": path, "uploadMode": mode, "shouldIgnore": path.split("/")[-1] in ignored, "oid": known}

        raise Answer(200, {"files": [answer(one["path"]) for one in wanted["files"]]})

    def batch(self, body: bytes, repo: str) -> None:
        self._may_write(repo)
        objects = [{"oid": one["oid"], "size": one["size"]} for one in json.loads(body)["objects"]]
        for one in objects:
            if one["oid"] not in self.hub.objects:
                links = {"upload": f"lfs/{one['oid']}?signature=x", "verify": f"lfs-verify/{one['oid']}"}
                one["actions"] = {name: {"href": f"{self.hub.endpoint}/{link}"} for name, link in links.items()}
        raise Answer(200, {"transfer": "basic", "objects": objects})

    def store(self, body: bytes, oid: str) -> None:
        if _lfs_oid(body) != oid:
            raise Answer(400, {"error": "the content is not what its hash says"})
        self.hub.objects[oid] = body
        raise Answer(200, b"")

    def verify(self, body: bytes, oid: str) -> None:
        raise Answer(200 if oid in self.hub.objects else 404)

    def commit(self, body: bytes, repo: str, revision: str) -> None:
        self._may_write(repo)
        repository, lines = self._repository(repo), [json.loads(line) for line in body.splitlines()]
        header = next(line["value"] for line in lines if line["key"] == "header")
        if header.get("parentCommit") not in (None, repository.commits[-1].oid):
            raise Answer(412, {"error": "A commit has happened since. Please refresh and try again."})
        files = dict(repository.commits[-1].files)
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                if value["oid"] not in self.hub.objects:
                    raise Answer(400, {"error": f"LFS pointer of {value['path']} points nowhere"})
                files[value["path"]] = self.hub.objects[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        made = repository.commit(header["summary"], header["description"], files)
        raise Answer(200, {"commitUrl": f"{self.hub.endpoint}/{repo}/commit/{made.oid}", "commitOid": made.oid})

    def refs(self, body: bytes, repo: str) -> None:
        repository = self._repository(repo)
        tags = [{"name": n, "ref": f"refs/tags/{n}", "targetCommit": oid} for n, oid in repository.tags.items()]
        main = {"name": "main", "ref": "refs/heads/main", "targetCommit": repository.commits[-1].oid}
        raise Answer(200, {"branches": [main], "converts": [], "tags": tags})

    def commits(self, body: bytes, repo: str, revision: str) -> None:
        self._commit(repo, revision)
        same = {"message": "", "authors": [{"user": "me"}], "date": "2026-11-01T08:00:00.000Z"}
        made = reversed(self.hub.repositories[repo].commits)
        raise Answer(200, [{"id": one.oid, "title": one.title, **same} for one in made])

    def tree(self, body: bytes, repo: str, revision: str) -> None:
        files = sorted(self._commit(repo, revision).files.items())
        raise Answer(200, [{"type": "file", "path": p, "size": len(c), "oid": _git_oid(c)} for p, c in files])

    def tag(self, body: bytes, repo: str, revision: str) -> None:
        self._may_write(repo)
        name, tags = json.loads(body)["tag"], self.hub.repositories[repo].tags
        if name in tags:
            raise Answer(409, {"error": f"Tag {name} exists"})
        tags[name] = self._commit(repo, revision).oid
        raise Answer(200, {})

    def resolve(self, body: bytes, repo: str, revision: str, path: str) -> None:
        commit = self._commit(repo, revision)
        if path not in commit.files:
            raise Answer(404, {"error": "Entry not found"}, X_Error_Code="EntryNotFound")
        content = commit.files[path]
        raise Answer(200, content, X_Repo_Commit=commit.oid, ETag=f'"{_lfs_oid(content)}"')


def _git_oid(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _lfs_oid(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


_REPO = r"([^/]+/[^/]+)"
ROUTES: list[tuple[str, str, Callable[..., None]]] = [
    ("GET", "/api/whoami-v2", _Handler.whoami),
    ("POST", "/api/repos/create", _Handler.create),
    ("POST", "/api/validate-yaml", _Handler.validate),
    ("GET", f"/api/models/{_REPO}", _Handler.info),
    ("GET", f"/api/models/{_REPO}/revision/(.+)", _Handler.info),
    ("POST", f"/api/models/{_REPO}/preupload/(.+)", _Handler.preupload),
    ("POST", rf"/{_REPO}\.git/info/lfs/objects/batch", _Handler.batch),
    ("PUT", "/lfs/([0-9a-f]+)", _Handler.store),
    ("POST", "/lfs-verify/([0-9a-f]+)", _Handler.verify),
    ("POST", f"/api/models/{_REPO}/commit/(.+)", _Handler.commit),
    ("GET", f"/api/models/{_REPO}/refs", _Handler.refs),
    ("GET", f"/api/models/{_REPO}/commits/(.+)", _Handler.commits),
    ("GET", f"/api/models/{_REPO}/tree/([^/]+)", _Handler.tree),
    ("POST", f"/api/models/{_REPO}/tag/(.+)", _Handler.tag),
    ("GET", f"/{_REPO}/resolve/([^/]+)/(.+)", _Handler.resolve),
]


@contextlib.contextmanager
def serving() -> Iterator[Hub]:
    """A hub on this machine, until the end of the block."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

"""Uploading a champion: by the hub's own client, over HTTP, to a stand-in of the hub."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pytest

from environments.plugins import Refused
from flows.engine.certifying import store
from flows.export.upload import upload
from tasks.store.ledger import Ledger
from tests.support import web
from tests.support.histories import certified
from tests.support.lazy import LazyModule
from tests.support.ledgers import created, stored
from tests.support.web import Handler

# A stand-in of the Hugging Face hub: the routes that its client calls for an upload, and a fault on request. Commits are
# atomic, as there. Weights go with the commit: large files are the client's own business.

TOKEN = "hf_" + "StandIn" * 5


class StoredCommit(NamedTuple):
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
    requests: list[tuple[str, bytes]] = field(default_factory=list)
    """Path and body of each."""
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
            files, (header, *lines) = dict(head.files), map(json.loads, body.splitlines())
            for kind, value in (line.values() for line in lines):
                if kind == "deletedFile":
                    del files[value["path"]]
                else:
                    files[value["path"]] = base64.b64decode(value["content"])
            made = repository.commit(header["value"]["summary"], files)
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
            hub.requests.append((self.path, body))
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


if TYPE_CHECKING:
    import huggingface_hub
else:
    huggingface_hub = LazyModule("huggingface_hub")

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # the client's own, on httpx
REPO = "me/quad"
PLANTED = "sk-planted-0123456789"
WEIGHTS = os.urandom(100_000)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """A hub, known by the environment; what the client reads when it is imported is set too."""
    from huggingface_hub import constants

    found = Hub()
    with web.serving(_Handler, hub=found) as found.endpoint:
        for name, value in {"HF_ENDPOINT": found.endpoint, "HF_TOKEN": TOKEN, "HF_HOME": str(tmp_path / "hf")}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "hf" / "token"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
        yield found
        huggingface_hub.close_session()


@pytest.fixture
def ledger(tmp_path: Path, home: Path) -> Ledger:
    """A campaign whose champion, trial 1, is certified."""
    made = created(tmp_path)
    stored(made, 3.0, 2.0, weights=WEIGHTS)
    store(made, certified(1, [10, 10.5, 11], [2, 2.5, 3]))
    return made


def send(ledger: Ledger, repo: str = REPO, public: bool = False, uncertified: bool = False) -> dict[str, Any]:
    return upload(ledger, repo, public=public, uncertified=uncertified)


def test_an_upload_is_one_private_commit_that_says_what_it_is_with_a_card_that_the_hub_reads(
    hub: Hub, ledger: Ledger
) -> None:
    done = send(ledger)

    _, made = hub.repositories[REPO].commits
    assert hub.repositories[REPO].private and done["visibility"] == "private" and not done["again"]
    assert done["url"] == f"{hub.endpoint}/{REPO}/tree/{made.oid}"
    assert made.title.startswith("n, trial 1: certified, +8")
    assert made.files["checkpoint/step-1/weights.bin"] == WEIGHTS
    assert {"environment/quad/environment.toml", "result.json", "reproduce.sh", "champion.patch"} <= set(made.files)
    assert not [name for name in made.files if "latest" in name]  # a link to a folder
    assert not [path for path, _ in hub.requests if "harness" in path or "telemetry" in path]

    card = huggingface_hub.ModelCard(hub.files(REPO)["README.md"].decode())
    (result,) = card.data.eval_results or ()
    assert isinstance(result, huggingface_hub.EvalResult)
    assert (result.metric_type, result.metric_value) == (ledger.environment.metric, 10.5)
    assert card.data.library_name == "nightshift" and "reinforcement-learning" in (card.data.tags or ())
    assert card.text.lstrip().startswith("# n, trial 1\n") and "certified" in card.text
    assert send(ledger, "me/open", public=True)["visibility"] == "public"


def test_a_later_version_replaces_the_files_of_the_earlier_one_and_no_others(hub: Hub, ledger: Ledger) -> None:
    send(ledger)
    repository = hub.repositories[REPO]
    repository.commit("by hand", {**hub.files(REPO), "LICENSE": b"mine", "checkpoint/old.bin": b"old"})
    store(ledger, replace(certified(1, [11, 11.5, 12], [2, 2.5, 3]), look=2))

    done = send(ledger)

    assert not done["again"] and send(ledger)["again"] and done["commit"] == repository.commits[-1].oid
    assert hub.files(REPO)["LICENSE"] == b"mine" and "checkpoint/old.bin" not in hub.files(REPO)
    assert hub.files(REPO)["checkpoint/step-1/weights.bin"] == WEIGHTS


@pytest.mark.parametrize("fault", ["refuses", "loses the answer"])
def test_after_a_fault_the_same_command_leaves_one_whole_version(hub: Hub, ledger: Ledger, fault: Any) -> None:
    hub.fault = fault
    with pytest.raises(ConnectionError, match="give the same command again"):
        send(ledger)

    done = send(ledger)

    assert [made.oid for made in hub.repositories[REPO].commits[1:]] == [done["commit"]]


def test_what_is_not_certified_is_uploaded_on_request_alone_and_says_so_first(
    hub: Hub, tmp_path: Path, home: Path
) -> None:
    ledger = created(tmp_path)
    stored(ledger, 3.0, 2.0)
    with pytest.raises(Refused, match="--uncertified"):
        send(ledger)
    assert not hub.requests

    send(ledger, uncertified=True)

    text = huggingface_hub.ModelCard(hub.files(REPO)["README.md"].decode()).text
    assert "not certified" in text.lstrip().splitlines()[0]
    assert hub.repositories[REPO].commits[-1].title == "n, trial 1: not certified"


def test_no_secret_leaves(hub: Hub, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", PLANTED)  # it is in the patch

    send(ledger)

    assert "SOME_API_KEY" in hub.files(REPO)["champion.patch"].decode()
    assert not [body for _, body in hub.requests if PLANTED.encode() in body or TOKEN.encode() in body]
    monkeypatch.setenv("OTHER_TOKEN", "(x - 1)")  # shorter than any secret
    monkeypatch.setenv("ANOTHER_TOKEN", WEIGHTS[50_000:50_040].hex())
    frozen = ledger.path / "environment" / "judge.py"
    frozen.chmod(0o644)
    frozen.write_text(f"{frozen.read_text()}\n# {WEIGHTS[50_000:50_040].hex()}\n")
    count = len(hub.requests)
    with pytest.raises(Refused, match="ANOTHER_TOKEN"):
        send(ledger, "me/second")
    monkeypatch.delenv("ANOTHER_TOKEN")
    (ledger.path / "environment" / ".env").write_text("KEY=hf_" + "a1B2" * 9)
    with pytest.raises(Refused, match="what looks like a key"):
        send(ledger, "me/second")
    assert "me/second" not in hub.repositories and len(hub.requests) == count

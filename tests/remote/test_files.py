"""What comes back from an endpoint is brought into out/ under limits, whatever the endpoint says."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from environments.limits import Limits
from tasks.remote.endpoint import Address, EndpointFault, RemoteEndpoint, TrialFault
from tasks.remote_session import fetch

CONTENT = bytes(range(256)) * 1000
LIMITS = Limits(out_files=3, out_gb=0.001, file_gb=0.001)


class Told(BaseHTTPRequestHandler):
    """Answers what a test tells it to."""

    listed: object = []
    content = CONTENT
    cuts = 0
    """Answers that end in their middle before one is whole."""

    def do_GET(self) -> None:
        content = json.dumps(self.listed).encode() if self.path.endswith("/files") else self.content
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        is_cut = self.cuts > 0 and not self.path.endswith("/files")
        type(self).cuts -= is_cut
        self.wfile.write(content[: len(content) // 2] if is_cut else content)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def told() -> Iterator[tuple[type[Told], RemoteEndpoint]]:
    handler = type("Own", (Told,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        with RemoteEndpoint(Address(f"http://127.0.0.1:{server.server_port}"), 2.0, 2.0) as endpoint:
            yield handler, endpoint
        server.shutdown()
        thread.join()


def entry(path: str, size: int = len(CONTENT), content: bytes = CONTENT) -> dict[str, object]:
    return {"path": path, "bytes": size, "sha256": hashlib.sha256(content).hexdigest()}


def test_a_download_that_is_cut_begins_again(told: tuple[type[Told], RemoteEndpoint], tmp_path: Path) -> None:
    handler, endpoint = told
    handler.listed, handler.cuts = [entry("a/model.bin"), entry("progress.jsonl")], 2

    fetch(endpoint, "key", tmp_path, LIMITS)

    assert (tmp_path / "a/model.bin").read_bytes() == CONTENT
    assert handler.cuts == 0
    assert not (tmp_path / "progress.jsonl").exists(), "the reports are ours already"


@pytest.mark.parametrize(
    ("listed", "kind", "reason"),
    [
        ([entry("../x")], TrialFault, "no plain relative path"),
        ([entry("a"), entry("a/b")], TrialFault, "cannot be written"),
        ([entry(name) for name in "abcd"], TrialFault, "3 files"),
        ([entry("a", 2 * 2**20)], TrialFault, "0.001 GiB"),
        ([entry("a", content=b"other")], EndpointFault, "another content"),
        ([entry("a", size=10)], EndpointFault, "sends more"),
        ("x" * (17 * 2**20), EndpointFault, "another form"),
    ],
)
def test_names_that_lead_elsewhere_too_much_and_what_contradicts_its_list_are_not_taken(
    told: tuple[type[Told], RemoteEndpoint], tmp_path: Path, listed: object, kind: type[Exception], reason: str
) -> None:
    handler, endpoint = told
    handler.listed = listed
    (tmp_path / "out").mkdir()

    with pytest.raises(kind, match=reason):
        fetch(endpoint, "key", tmp_path / "out", LIMITS)

    assert {path.name for path in tmp_path.iterdir()} == {"out"}

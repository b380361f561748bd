"""A receiver of notifications: a real webhook, which keeps what it is sent."""

from __future__ import annotations

import contextlib
import json
import socketserver
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Received:
    address: str
    messages: list[str] = field(default_factory=list)
    """The texts, in order."""


@contextlib.contextmanager
def webhook(status: int = 200) -> Iterator[Received]:
    """A web server that takes `{"text": ...}`, and answers with that status."""

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            received.messages.append(body["text"])
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with _serving(ThreadingHTTPServer(("127.0.0.1", 0), Hook)) as port:
        received = Received(f"http://127.0.0.1:{port}/secret-path")
        yield received


@contextlib.contextmanager
def _serving(server: socketserver.TCPServer) -> Iterator[int]:
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()

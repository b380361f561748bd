"""Web servers of the tests' own, on a free port of the loopback interface."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing is printed."""

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self, status: int, content: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content_Length": str(len(content))}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        with contextlib.suppress(OSError):  # whoever asked need not have waited
            self.wfile.write(content)


@contextlib.contextmanager
def serving(handler: type[Handler], **facts: object) -> Iterator[str]:
    """The address of a server, until the end of the block; `facts` are attributes of its handler."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Serving", (handler,), facts))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

"""The reports of a home over HTTP, on this machine and behind its login: `nightshift report --serve`.

Only what a report shows and links to is served, by an exact list of names: never a program, a checkpoint, a judge's
file or campaign.json. Paths are matched as they were sent before anything is opened, and no link is followed. Texts are
redacted once more, since a log is as long as the program made it. A request must name this machine and the server's
port, so that no other name leads here, and no other site's page may read an answer or show it within itself.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import re
from functools import partial
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from flows.report import page, write
from flows.report.shareable import shareable
from flows.views import own_servers
from tasks.store.safe_read import open_below
from tasks.system.daemon import HOST, address, free_port
from tasks.system.home import home
from tasks.system.login import login_file, make_login

FIRST_PORT = 4300
CAMPAIGN, RUN = r"[a-z0-9][a-z0-9._-]{0,63}", r"(?:trials|certificates)/\d[A-Za-z0-9_.-]{0,128}"
"""The folders of a campaign, and in it of a trial or another training run."""
PICTURES = r"[a-z0-9_-]{1,64}\.(?:png|gif)"
IN_CAMPAIGN = rf"report\.html|timeline\.json|results\.tsv|events\.jsonl|spec\.toml|{PICTURES}"
IN_RUN = rf"log\.txt|judge\.txt|diff\.patch|proposal\.json|{PICTURES}"
FILE = re.compile(rf"/(?:comparison\.html|{CAMPAIGN}/(?:{IN_CAMPAIGN}|{RUN}/(?:{IN_RUN})))")
FOLDER = re.compile(rf"/{CAMPAIGN}/(?:trials|certificates|{RUN})/")
KINDS = {".html": "text/html", ".png": "image/png", ".gif": "image/gif"}
HEADERS = {
    "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-cache, private",
    "Content-Security-Policy": "default-src 'none'; img-src 'self' data:; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
}  # fmt: skip


def serve(path: str) -> int:
    """Serve this home's reports until Ctrl-C; prints the link to the page at this path, and how to log in."""
    handler = partial(Handler, make_login(home()))
    with ThreadingHTTPServer((HOST, free_port(FIRST_PORT)), handler) as server, contextlib.suppress(KeyboardInterrupt):
        print(address(server.server_port, path))
        print(f"login: {own_servers.how_to_log_in(login_file(home()))}")
        print("Ctrl-C ends it.", flush=True)
        server.serve_forever()
    return 0


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    timeout = 60
    server_version, sys_version = "Nightshift", ""

    def __init__(self, login: str, *more: object) -> None:
        self._login = f"Basic {base64.b64encode(login.encode()).decode()}"
        super().__init__(*more)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """Answer with a page or a file, or say why not."""
        with contextlib.suppress(ConnectionError):  # a browser that has left
            if refusal := self._refusal():
                self._answer(refusal[0], "text/plain", refusal[1].encode())
            elif found := content(self.path.partition("?")[0]):
                self._answer(200, *found)
            else:
                self._answer(404, "text/plain", b"there is no such report or file\n")

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        """Say nothing on the terminal."""

    def _refusal(self) -> tuple[int, str] | None:
        hosts = [f"{name}:{self.server.server_port}" for name in (HOST, "localhost")]  # type: ignore[attr-defined]
        given = {name: self.headers.get_all(name) or [] for name in ("Host", "Origin", "Authorization")}
        if len(given["Host"]) != 1 or given["Host"][0].lower() not in hosts:
            return 421, f"this server answers at {' and '.join(hosts)} only\n"
        if any(origin not in [f"http://{host}" for host in hosts] for origin in given["Origin"]):
            return 403, "a page of another site may not ask this server\n"
        if not hmac.compare_digest(" ".join(given["Authorization"]).encode(), self._login.encode()):
            return 401, "this server asks for a login: `nightshift report --serve` says where it is\n"
        return None

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        headers = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body)), **HEADERS}
        if status == 401:
            headers["WWW-Authenticate"] = 'Basic realm="Nightshift", charset="UTF-8"'
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def content(path: str) -> tuple[str, bytes] | None:
    """Type and content of what a path shows, exactly as it was sent: an encoded character is none of any name here."""
    if path in ("/", f"/{write.INDEX}"):
        return "text/html", page.campaigns(write.rows()).encode()
    if FOLDER.fullmatch(path):
        return _listing(home().resolve() / path.strip("/"))
    file = open_below(home().resolve(), path.removeprefix("/")) if FILE.fullmatch(path) else None
    if file is None:
        return None
    with file:
        read, kind = file.read(), KINDS.get(Path(path).suffix, "text/plain")
    is_text = kind == "text/plain"  # a report was made shareable when it was written
    return kind, shareable(read.decode(errors="replace")).encode() if is_text else read


def _listing(path: Path) -> tuple[str, bytes] | None:
    """Links to what is served of a folder; None where a link leads elsewhere."""
    if path.resolve() != path or not path.is_dir():
        return None
    base = f"/{path.relative_to(home().resolve())}/"
    names = [f"{each.name}{'/' * each.is_dir()}" for each in sorted(path.iterdir()) if not each.is_symlink()]
    shown = [name for name in names if FILE.fullmatch(base + name) or FOLDER.fullmatch(base + name)]
    links = "".join(f'<li><a href="{escape(name)}">{escape(name)}</a></li>' for name in shown)
    return "text/html", f"<!doctype html><title>{escape(base)}</title><h1>{escape(base)}</h1><ul>{links}</ul>".encode()

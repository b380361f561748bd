"""The reports of a home over HTTP, on this machine and behind its login: `nightshift report --serve`.

Only what a report shows and links to is served, by an exact list of names: never a program, a checkpoint, a judge's
file or campaign.json. Paths are matched before anything is opened, and no link is followed. Texts are redacted once
more, since a log is as long as the program made it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from environments.plugins import Refused
from flows import status
from flows.report import campaign_index, page
from flows.report.request_check import AsgiMessage, Receive, RequestCheck, Send
from flows.report.shareable import shareable
from flows.views import own_servers
from tasks.store.ledger import Ledger
from tasks.store.safe_read import open_below
from tasks.system.daemon import HOST, address, free_port
from tasks.system.home import home
from tasks.system.login import login_file, make_login

FIRST_PORT = 4300
AGAIN_SECONDS = 30
"""How often a browser asks again for a page of a running campaign."""
CAMPAIGN = r"[a-z0-9][a-z0-9._-]{0,63}"
IN_CAMPAIGN = r"report\.html|timeline\.json|results\.tsv|events\.jsonl|spec\.toml|[a-z0-9_-]{1,64}\.(png|gif)"
RUN = r"\d[A-Za-z0-9_.-]{0,128}"
"""The folder of a trial, or of another training run."""
IN_RUN = r"log\.txt|judge\.txt|diff\.patch|proposal\.json|[a-z0-9_-]{1,64}\.(png|gif)"
RUNS = r"trials|certificates"
FILE = re.compile(rf"/(?:comparison\.html|{CAMPAIGN}/(?:{IN_CAMPAIGN}|(?:{RUNS})/{RUN}/(?:{IN_RUN})))")
FOLDER = re.compile(rf"/({CAMPAIGN})/({RUNS})/(?:({RUN})/)?")
PAGES = ("/", f"/{campaign_index.INDEX}")
KINDS = {".html": "text/html", ".png": "image/png", ".gif": "image/gif", ".json": "application/json"}
"""Types of files; of the others text/plain, and of proposals, which are read."""
ALWAYS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "x-frame-options": "DENY",
    "cache-control": "no-cache, private",
    "content-security-policy": "default-src 'none'; img-src 'self' data:; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
}


@dataclass(frozen=True)
class Response:
    kind: str
    body: bytes
    status: int = 200
    again: bool = False
    """Whether a browser should ask again after a while."""


MISSING = Response("text/plain", b"there is no such report or file\n", 404)


def serve(path: str) -> int:
    """Serve this home's reports until Ctrl-C; prints the link to the page at this path, and how to log in."""
    import uvicorn

    login = make_login(home())
    with listening() as (port, listener):
        print(address(port, path))
        print(f"login: {own_servers.how_to_log_in(login_file(home()))}")
        print("Ctrl-C ends it.", flush=True)
        config = uvicorn.Config(
            application(port, login),
            lifespan="off",
            log_level="warning",
            server_header=False,
            timeout_graceful_shutdown=2,
        )
        with contextlib.suppress(KeyboardInterrupt):  # uvicorn has ended well when it passes the signal on
            uvicorn.Server(config).run(sockets=[listener])
    return 0


@contextlib.contextmanager
def listening() -> Iterator[tuple[int, socket.socket]]:
    """A socket on the first free port; it listens already, so that a link may be opened once it is printed."""
    port = free_port(FIRST_PORT)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen()
        yield port, listener


def is_page(path: str) -> bool:
    """Whether links of other sites may open it; nothing here changes anything."""
    return path.endswith(("/", ".html"))


def application(port: int, login: str) -> Callable[[AsgiMessage, Receive, Send], object]:
    """The whole ASGI application: every answer, a refusal too, has the headers that keep a browser careful."""
    check = RequestCheck(_answer, port, login=login, is_page=is_page)

    async def careful(scope: AsgiMessage, receive: Receive, send: Send) -> None:
        async def with_headers(message: AsgiMessage) -> None:
            if message["type"] == "http.response.start":
                more = [(name.encode(), value.encode()) for name, value in ALWAYS.items()]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        await check(scope, receive, with_headers)

    return careful


async def _answer(scope: AsgiMessage, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        await send({"type": "websocket.close", "code": 1008, "reason": "reports are read over HTTP"})
        return
    response = Response("text/plain", b"reports are only read\n", 405)
    if scope["method"] in ("GET", "HEAD"):
        response = await asyncio.to_thread(found, scope["raw_path"].decode("latin-1").partition("?")[0])
    headers = [(b"content-type", f"{response.kind}; charset=utf-8".encode())]
    headers += [(b"content-length", str(len(response.body)).encode())]
    headers += [(b"refresh", str(AGAIN_SECONDS).encode())] if response.again else []
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else response.body})


def found(path: str) -> Response:
    """What a path shows, exactly as it was sent: an encoded character is none of any name here."""
    if path in PAGES:
        rows = campaign_index.rows()
        running = any(row.state == campaign_index.RUNNING for row in rows)
        return Response("text/html", campaign_index.html(rows).encode(), again=running)
    if FILE.fullmatch(path):
        return _file(path.removeprefix("/"))
    if folder := FOLDER.fullmatch(path):
        return _listing(path.strip("/"), *folder.groups())
    return MISSING


def _file(name: str) -> Response:
    opened = open_below(home().resolve(), name)
    if opened is None:
        return MISSING
    with opened:
        content = opened.read()
    kind = KINDS.get(Path(name).suffix, "text/plain")
    if name.endswith("/proposal.json"):
        kind = "text/plain"
    if kind.startswith("image/"):
        return Response(kind, content)
    if kind != "text/html":  # a report was made shareable when it was written
        content = shareable(content.decode(errors="replace")).encode()
    return Response(kind, content, again=name.endswith("/report.html") and _is_running(name.partition("/")[0]))


def _is_running(name: str) -> bool:
    with contextlib.suppress(Refused):
        return status.state(Ledger.open(name)) == campaign_index.RUNNING
    return False


def _listing(folder: str, campaign: str, runs: str, run: str | None) -> Response:
    """The names in a folder of runs, or in one of them, that are served."""
    path = home().resolve() / folder
    if path.resolve() != path or not path.is_dir():  # a link leads elsewhere
        return MISSING
    inside = [each for each in path.iterdir() if not each.is_symlink()]
    if run:
        names = [each.name for each in inside if re.fullmatch(IN_RUN, each.name)]
    else:
        names = [f"{each.name}/" for each in inside if re.fullmatch(RUN, each.name) and each.is_dir()]
    title = f"{campaign}: {runs}/{run or ''}"
    return Response("text/html", page.listing(title, sorted(names), "../../" if run else "../").encode())

"""The front of the served reports: it refuses foreign names, foreign pages and requests without the login.

A web page can make a browser send requests to this machine, and can point a name of its own at 127.0.0.1. So a request
must name this machine and the server's port, and one that a browser sends must come from the server's own pages. A link
to a page may be followed from anywhere.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

HOSTS = ("127.0.0.1", "localhost", "[::1]")
"""Names of this machine, one of which a request must carry."""
AsgiMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
Application = Callable[[AsgiMessage, Receive, Send], Awaitable[None]]
StatusAndReason = tuple[int, str]
"""Of an HTTP answer that refuses a request."""


class RequestCheck:
    """An ASGI application in front of another one."""

    def __init__(
        self, application: Application, port: int, *, login: str | None, is_page: Callable[[str], bool]
    ) -> None:
        """
        Args:
            login: The `user:password` that every request must carry; None: not asked here.
            is_page: Whether a path is a page, which links of other sites may open; it must change nothing.
        """
        self._application = application
        self._hosts = {f"{host}:{port}".encode() for host in HOSTS}
        self._origins = {b"http://" + host for host in self._hosts}
        self._credentials = base64.b64encode(login.encode()) if login is not None else None
        self._is_page = is_page

    async def __call__(self, scope: AsgiMessage, receive: Receive, send: Send) -> None:
        refusal = None if scope["type"] == "lifespan" else self._refusal(scope)
        if refusal is None:
            await self._application(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": refusal[1]})
        else:
            await _answer(send, *refusal)

    def _refusal(self, scope: AsgiMessage) -> StatusAndReason | None:
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name, []).append(value)
        if len(hosts := headers.get(b"host", [])) != 1 or hosts[0].lower() not in self._hosts:
            return 421, f"this server answers at {b' and '.join(sorted(self._hosts)).decode()} only"
        if not self._is_own_or_link(scope, headers):
            return 403, "a page of another site may not ask this server"
        if self._credentials is not None and not self._is_known(headers.get(b"authorization", [])):
            return 401, "this server asks for a login: `nightshift report --serve` says where it is"
        return None

    def _is_own_or_link(self, scope: AsgiMessage, headers: dict[bytes, list[bytes]]) -> bool:
        """Whether no other site's page sent it; browsers say so, other programs send none of these headers."""
        if origins := headers.get(b"origin"):
            return len(origins) == 1 and origins[0] in self._origins
        if all(site in (b"same-origin", b"none") for site in headers.get(b"sec-fetch-site", [])):
            return True
        is_link = headers.get(b"sec-fetch-mode") == [b"navigate"] and headers.get(b"sec-fetch-dest") == [b"document"]
        return is_link and scope.get("method") == "GET" and self._is_page(scope["path"])

    def _is_known(self, given: list[bytes]) -> bool:
        scheme, _, credentials = (given[0] if len(given) == 1 else b"").partition(b" ")
        known = hmac.compare_digest(credentials.strip(), self._credentials or b"")
        return known and scheme.lower() == b"basic"


async def _answer(send: Send, status: int, reason: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    if status == 401:
        headers.append((b"www-authenticate", b'Basic realm="Nightshift", charset="UTF-8"'))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": f"{reason}\n".encode()})

"""The check of requests in front of the served reports: whose requests it lets through."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest
from flows.report.request_check import AsgiMessage, RequestCheck

PORT = 5000
LOGIN = "nightshift:correct horse"
HOST = {"host": f"127.0.0.1:{PORT}"}


def basic(login: str, scheme: str = "Basic") -> dict[str, str]:
    return {"authorization": f"{scheme} {base64.b64encode(login.encode()).decode()}"}


def ask(
    headers: dict[str, str] | list[tuple[str, str]], *, login: str | None = None, path: str = "/", method: str = "GET",
    kind: str = "http",
) -> list[AsgiMessage]:  # fmt: skip
    """What comes back of a request; of one that is let through only `let through`."""
    sent: list[AsgiMessage] = []

    async def application(scope: AsgiMessage, receive: Any, send: Any) -> None:
        await send({"type": "let through"})

    async def send(message: AsgiMessage) -> None:
        sent.append(message)

    async def receive() -> AsgiMessage:
        return {"type": "http.request"}

    pairs = headers.items() if isinstance(headers, dict) else headers
    scope: AsgiMessage = {
        "type": kind,
        "path": path,
        "headers": [(name.encode(), text.encode()) for name, text in pairs],
    }
    if kind == "http":
        scope["method"] = method
    check = RequestCheck(application, PORT, login=login, is_page=lambda path: path == "/")
    asyncio.run(check(scope, receive, send))
    return sent


def status(*arguments: Any, **more: Any) -> int:
    """The status of the answer; 200 if it was let through."""
    first, *_ = ask(*arguments, **more)
    return 200 if first["type"] == "let through" else int(first["status"])


@pytest.mark.parametrize("host", ["127.0.0.1:5000", "localhost:5000", "LOCALHOST:5000", "[::1]:5000"])
def test_this_machine_has_three_names(host: str) -> None:
    assert status({"host": host}) == 200


@pytest.mark.parametrize(
    "headers",
    [
        [], [("host", "")], [("host", "evil.example:5000")], [("host", "127.0.0.1")], [("host", "127.0.0.1:4200")],
        [("host", "localhost.evil.example:5000")], [("host", "127.0.0.1:5000.evil.example")], [("host", "0.0.0.0:5000")],
        [("host", "user@127.0.0.1:5000")], [("host", "127.0.0.1:5000"), ("host", "evil.example")],
    ],
)  # fmt: skip
def test_another_name_is_refused_whoever_asks(headers: list[tuple[str, str]]) -> None:
    assert status([*headers, *basic(LOGIN).items()], login=LOGIN) == 421
    (closed,) = ask(headers, kind="websocket")
    assert closed["type"] == "websocket.close"


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example", "null", "", "https://127.0.0.1:5000", "http://127.0.0.1:5001", "http://127.0.0.1",
        "http://127.0.0.1:5000.evil.example", "http://localhost:8888", "file://",
    ],
)  # fmt: skip
def test_a_page_of_another_origin_is_refused_even_with_the_login(origin: str) -> None:
    headers = {**HOST, **basic(LOGIN), "origin": origin}
    assert status(headers, login=LOGIN) == status(headers, method="POST", login=LOGIN) == 403
    (closed,) = ask(headers, kind="websocket")
    assert closed["type"] == "websocket.close"


def test_a_page_of_its_own_is_let_through() -> None:
    for origin in ("http://127.0.0.1:5000", "http://localhost:5000", "http://[::1]:5000"):
        assert status({**HOST, "origin": origin}, method="POST") == 200
    for site in ("same-origin", "none"):
        assert status({**HOST, "sec-fetch-site": site}, path="/get-artifact") == 200


LINK = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_of_another_site_only_a_link_to_a_page_is_followed(site: str) -> None:
    """Another port of this machine is the same site: there may be anybody's page."""
    from_there = {**HOST, "sec-fetch-site": site}
    assert status({**from_there, **LINK}) == 200
    assert status({**from_there, **LINK}, path="/get-artifact") == 403
    assert status({**from_there, **LINK}, method="POST") == 403
    assert status({**from_there, **LINK, "sec-fetch-dest": "iframe"}) == 403
    assert status({**from_there, "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}) == 403
    (closed,) = ask({**from_there, **LINK}, kind="websocket")
    assert closed["type"] == "websocket.close"


@pytest.mark.parametrize(
    "headers",
    [
        {}, {"authorization": ""}, {"authorization": "Basic"}, {"authorization": "Basic "}, basic(""), basic(":"),
        basic("nightshift:"), basic(LOGIN[:-1]), basic(f"{LOGIN} "), basic(LOGIN.upper()), basic(LOGIN, "Bearer"),
        {"authorization": f"Basic {LOGIN}"},
    ],
)  # fmt: skip
def test_who_does_not_know_the_login_is_asked_for_it(headers: dict[str, str]) -> None:
    begin, body = ask({**HOST, **headers}, login=LOGIN)
    assert begin["status"] == 401 and b"login" in body["body"]
    assert dict(begin["headers"])[b"www-authenticate"].startswith(b"Basic ")


def test_who_knows_the_login_is_let_through_once() -> None:
    assert (
        status({**HOST, **basic(LOGIN)}, login=LOGIN) == status({**HOST, **basic(LOGIN, "basic")}, login=LOGIN) == 200
    )
    twice = [*HOST.items(), *basic(LOGIN).items(), *basic("other:login").items()]
    assert status(twice, login=LOGIN) == 401


def test_the_start_and_the_end_of_a_server_are_no_requests() -> None:
    assert ask({}, kind="lifespan", login=LOGIN) == [{"type": "let through"}]

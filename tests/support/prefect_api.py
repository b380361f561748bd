"""A Prefect server's API as tests ask it: once more where the server is busy, as Prefect's own clients do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import httpx

from flows.server.api import Api


def ask(method: str, url: str, body: Any = None, auth: tuple[str, str] | None = None) -> Any:
    """The answer, parsed from JSON; None where it is empty. Raises httpx.HTTPError if there is none."""
    with Api("", auth) as api:
        return api.ask(method, url, body)


def refusal(method: str, url: str, body: Any = None, auth: tuple[str, str] | None = None) -> httpx.Response:
    """The answer of a server that refuses this."""
    try:
        answered = ask(method, url, body, auth)
    except httpx.HTTPStatusError as error:
        return error.response
    raise AssertionError(f"{method} {url} is not refused: {answered}")


def remove_automations(url: str) -> None:
    for one in ask("POST", f"{url}/automations/filter", {}):
        ask("DELETE", f"{url}/automations/{one['id']}")


@contextlib.contextmanager
def prefect_at(url: str) -> Iterator[None]:
    """Have the flows and tasks of this process run at that server."""
    from prefect.settings import PREFECT_API_URL, PREFECT_LOGGING_TO_API_ENABLED, temporary_settings

    with temporary_settings({PREFECT_API_URL: url, PREFECT_LOGGING_TO_API_ENABLED: False}):
        yield

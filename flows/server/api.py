"""A question to a Prefect server's API by a command that does not load Prefect for it."""

from __future__ import annotations

import time
from typing import Any

import httpx

ANSWER_SECONDS = 20.0
BUSY_SECONDS = 90.0
"""How long a server is asked again that says it is busy, as one on SQLite does while it stores what it was told."""
BUSY = 503


class Api:
    """A Prefect server's API, used as a `with` block."""

    def __init__(self, url: str, auth: tuple[str, str] | None) -> None:
        self._client = httpx.Client(base_url=url, auth=auth, timeout=ANSWER_SECONDS)

    def __enter__(self) -> Api:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """What it answers, from JSON; None where it says nothing.

        Raises:
            httpx.HTTPError: it does not answer, stays busy, or refuses.
        """
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                answer = self._client.request(method, path, json=body)
                if answer.status_code != BUSY or time.monotonic() > deadline:
                    answer.raise_for_status()
                    return answer.json() if answer.content else None
            except httpx.TimeoutException:
                if time.monotonic() > deadline:
                    raise
            time.sleep(1.0)

"""A client of a Prefect server's API for commands that need not import Prefect."""

from __future__ import annotations

import time
from typing import Any

import httpx

ANSWER_SECONDS = 20.0
PATIENCE_SECONDS = 90.0
"""How long a busy server is asked again; on SQLite it is busy while it stores events."""
BUSY = 503


class Api:
    """A Prefect server's API, used as a `with` block.

    Args:
        patience: How long a server that is busy or silent is asked again, in seconds.
    """

    def __init__(self, url: str, auth: tuple[str, str] | None, patience: float = PATIENCE_SECONDS) -> None:
        self._client = httpx.Client(base_url=url, auth=auth, timeout=ANSWER_SECONDS)
        self._patience = patience

    def __enter__(self) -> Api:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer, parsed from JSON; None where it is empty.

        Raises:
            httpx.HTTPError: the server does not answer, stays busy, or refuses.
        """
        deadline = time.monotonic() + self._patience
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

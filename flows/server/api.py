"""Clients of a Prefect server's API: one that needs no import of Prefect, and Prefect's own without its retries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx

from tasks.system.retrying import retrying

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

ANSWER_SECONDS = 20.0
PATIENCE_SECONDS = 90.0
"""How long a busy server is asked again; on SQLite it is busy while it stores events."""


class Api(httpx.Client):
    """A Prefect server's API, used as a `with` block; a busy or silent server is asked again for `patience` seconds."""

    def __init__(self, url: str, auth: tuple[str, str] | None, patience: float = PATIENCE_SECONDS) -> None:
        super().__init__(base_url=url, auth=auth, timeout=ANSWER_SECONDS)
        self._patience = patience

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer, parsed from JSON; None where it is empty. Raises httpx.HTTPError if there is none."""
        answer = retrying(self._patience)(lambda: self.request(method, path, json=body).raise_for_status())
        return answer.json() if answer.content else None


@contextmanager
def impatient_client(seconds: float, retries: int = 0) -> Iterator[SyncPrefectClient]:
    """Prefect's client, which asks again so many times only: its caller asks again, and sees a request to stop."""
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    with (
        temporary_settings({PREFECT_CLIENT_MAX_RETRIES: retries}),
        get_client(sync_client=True, httpx_settings={"timeout": seconds}) as client,
    ):
        yield client

"""Prefect's own client of the server that its settings name, with a bound on its patience."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

ANSWER_SECONDS = 20.0
BUSY_RETRIES = 5
"""How often a busy server is asked again, for a minute in all; on SQLite it is busy while it stores events."""


@contextmanager
def impatient_client(seconds: float = ANSWER_SECONDS, retries: int = 0) -> Iterator[SyncPrefectClient]:
    """Prefect's client, which asks again so many times only: its caller asks again, and sees a request to stop."""
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    with (
        temporary_settings({PREFECT_CLIENT_MAX_RETRIES: retries}),
        get_client(sync_client=True, httpx_settings={"timeout": seconds}) as client,
    ):
        yield client

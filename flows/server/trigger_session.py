"""Transactions in which our Prefect server evaluates an event for the automations: on SQLite they wait for their turn.

Prefect reads the automation's count of events and then writes it, in a transaction begun DEFERRED. While another
connection writes, SQLite refuses that write at once, whatever the timeout (a snapshot that was read cannot be written
to). Prefect asks again four times within a tenth of a second and drops the event: no automation hears of it, and for
up to 15 minutes none hears of the events that follow it. Begun IMMEDIATE, the transaction waits before it reads.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession


def wait_for_the_database() -> None:
    """Have the server in this process evaluate events so; before it starts."""
    from prefect.server.events import triggers

    triggers.automations_session = _session  # type: ignore[attr-defined,assignment]  # no setting of Prefect does this


@asynccontextmanager
async def _session(begin_transaction: bool = False) -> AsyncIterator[AsyncSession]:
    """As prefect.server.events.models.automations.automations_session. PostgreSQL begins its transactions as ever."""
    from prefect.server.database import provide_database_interface

    database = provide_database_interface()
    async with database.session_context(begin_transaction, with_for_update=begin_transaction) as session:
        yield session

"""Two faults of Prefect 3.8 corrected, in our own server and in our own worker.

    python -m flows.server.corrected_prefect worker start --pool trainers

is Prefect's command `worker start ...` without the second.

1. Events are lost on SQLite. Where the server evaluates an event for the automations, it reads a count and then writes
   it, in a transaction begun DEFERRED. While another connection writes, SQLite refuses that write at once, whatever the
   timeout (a snapshot that was read cannot be written to). Prefect asks again four times within a tenth of a second and
   drops the event: no automation hears of it, and for up to 15 minutes none hears of the events that follow it. Begun
   IMMEDIATE, the transaction waits before it reads.
2. A worker with `--limit` ends when it is given a run that it still holds, such as one that has crashed and was resumed
   before its process had ended. It leaves such a run alone now, and finds it again at its next look.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun
    from prefect.client.schemas.responses import WorkerFlowRunResponse
    from prefect.workers.base import BaseWorker
    from sqlalchemy.ext.asyncio import AsyncSession


def wait_for_the_database() -> None:
    """Have the server in this process evaluate events in transactions that wait; before it starts."""
    from prefect.server.events import triggers

    triggers.automations_session = _session  # type: ignore[attr-defined,assignment]  # no setting of Prefect does this


@asynccontextmanager
async def _session(begin_transaction: bool = False) -> AsyncIterator[AsyncSession]:
    """As prefect.server.events.models.automations.automations_session. PostgreSQL begins its transactions as ever."""
    from prefect.server.database import provide_database_interface

    database = provide_database_interface()
    async with database.session_context(begin_transaction, with_for_update=begin_transaction) as session:
        yield session


def leave_alone_what_is_held() -> None:
    """Have workers in this process leave runs alone that they still hold."""
    from prefect.workers.base import BaseWorker

    submit = BaseWorker._submit_scheduled_flow_runs

    async def submit_others(
        self: BaseWorker[Any, Any, Any], flow_run_response: list[WorkerFlowRunResponse]
    ) -> list[FlowRun]:
        held = self._limiter.statistics().borrowers if self._limiter else ()
        return await submit(self, [each for each in flow_run_response if each.flow_run.id not in held])

    BaseWorker._submit_scheduled_flow_runs = submit_others  # type: ignore[method-assign]


if __name__ == "__main__":
    from prefect.cli import app

    leave_alone_what_is_held()
    app()

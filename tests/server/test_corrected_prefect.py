"""A fault of Prefect's worker, and that ours has it not."""

from __future__ import annotations

import asyncio
import uuid
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from flows.server.corrected_prefect import leave_alone_what_is_held


def submitted(runs: int) -> list[Any]:
    """What a worker submits that is given runs, the first of which it still holds."""
    from prefect.workers.process import ProcessWorker

    async def look() -> list[Any]:
        worker, given = ProcessWorker(work_pool_name="trainers"), [uuid.uuid4() for _ in range(runs)]
        worker._limiter = anyio.CapacityLimiter(1)
        worker._limiter.acquire_on_behalf_of_nowait(given[0])
        return await worker._submit_scheduled_flow_runs([_response(each) for each in given])

    return asyncio.run(look())


def _response(run: uuid.UUID) -> Any:
    return SimpleNamespace(flow_run=SimpleNamespace(id=run, flow_id=uuid.uuid4(), name="night", deployment_id=None))


def test_a_worker_leaves_a_run_alone_that_it_still_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.workers.base import BaseWorker

    with pytest.raises(RuntimeError, match="already holding"):
        submitted(1)
    monkeypatch.setattr(BaseWorker, "_submit_scheduled_flow_runs", BaseWorker._submit_scheduled_flow_runs)
    leave_alone_what_is_held()
    assert submitted(1) == submitted(2) == [], "and one more has no place"

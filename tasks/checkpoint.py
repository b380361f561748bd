"""Checkpoints: what the tasks of a trial have in common: propose, train, evaluate, control, decide.

A task's result is a file in the campaign's directory, named by its key: `results/<TaskKey>/train`. A task whose file
exists is not run again, whichever process or flow run asks for it. Prefect writes it when the task has ended, so a kill
before that means that the task runs again.

A trial that fails is a result, in a Failed state. Only a fault of the machine is an exception, and is retried.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from prefect import State, Task, get_run_logger, runtime
from prefect.client.schemas.objects import TaskRun
from prefect.context import FlowRunContext
from prefect.filesystems import LocalFileSystem
from prefect.futures import PrefectFuture
from prefect.results import ResultRecord  # type: ignore[attr-defined]
from prefect.states import Completed, Failed
from prefect.utilities.annotations import quote

from tasks.describe import in_short
from tasks.sandbox.program import CannotStart
from tasks.system.redact import capped
from tasks.task_key import TaskKey

T = TypeVar("T")
RETRIES = 2
RETRY_SECONDS = [5.0, 30.0]
CRASH = "Crash"
"""Name of the state of a task whose program crashed or could not be judged."""
MESSAGE, LOG = 240, 4000
"""Characters of a state's message, and of a crash in the task's log: its end, where the reason is."""


@contextmanager
def results_in(folder: Path) -> Iterator[None]:
    """Keep the results of tasks that a flow runs within the block in `folder`, so that copying it copies everything."""
    context = FlowRunContext.get()
    assert context is not None, "a flow runs"
    storage = LocalFileSystem(basepath=str(folder))
    store = context.result_store.model_copy(update={"result_storage": storage})
    with context.model_copy(update={"result_store": store}):
        yield


def failed_by(*faults: type[Exception]) -> Callable[[Task[..., Any], TaskRun, State[Any]], bool]:
    """Whether to retry a task: one of these faults has ended it, which may pass."""
    return lambda _, __, state: isinstance(state.result(raise_on_failure=False), faults)


def run_name() -> str:
    """Name of a task run in the Prefect UI: *task environment trial run*, with the campaign's name in a rerun.

    The first run of a trial is left out: it is the only one of most.
    """
    asked = runtime.flow_run.parameters
    subject = Path(asked.get("environment") or asked.get("name") or "").name
    key = runtime.task_run.parameters["key"]
    key = key.unquote() if isinstance(key, quote) else key
    return " ".join(filter(None, [runtime.task_run.task_name, subject, str(key.number), key.part]))


KEPT: dict[str, Any] = {
    "task_run_name": run_name, "retries": RETRIES, "retry_delay_seconds": RETRY_SECONDS,
    "retry_condition_fn": failed_by(CannotStart, OSError), "persist_result": True, "result_serializer": "json",
}  # fmt: skip
"""Options of a task whose result is a file, and which only a fault of the machine repeats."""


def ended(result: T, words: str, crash: str | None = None) -> State[T]:
    """The state in which a task ends with a result: Failed for a crash, which ends no campaign."""
    message = capped(" ".join((f"crash: {in_short(crash)}" if crash else words).split()), MESSAGE)
    if crash:
        get_run_logger().error(crash[-LOG:])
        return Failed(name=CRASH, message=message, data=result)
    get_run_logger().info(message)  # the pages show logs, and no messages of states
    return Completed(message=message, data=result)


def result_of(future: PrefectFuture[State[T]]) -> T:
    """The result of a task, once it has ended. Raises what the machine met."""
    future.wait()
    result: T = result_in(future.state)
    return result


def result_in(state: State[Any]) -> Any:
    """The result in the state of a task that has ended; a result that came from its file has no message."""
    if state.is_failed() and state.name != CRASH:
        state.result()  # raises
    found = state.result(raise_on_failure=False)
    return found.result if isinstance(found, ResultRecord) else found


def has_result(results: Path, key: TaskKey, task: str) -> bool:
    """Whether a task's result is stored completely; a kill may leave a part of it, which Prefect takes for none."""
    try:
        json.loads((results / f"{key}/{task}").read_bytes())
    except (FileNotFoundError, ValueError):
        return False
    return True

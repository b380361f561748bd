"""Checkpoints: the key under which a task's result is stored.

A task whose result file exists is not run again: the file is the checkpoint, not the state on a server. The key holds
everything that distinguishes two results, and nothing that may change when a campaign is resumed.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

from tasks.task_messages import TaskMessage
from tasks.trial import History

if TYPE_CHECKING:
    from prefect import Task
    from prefect.client.schemas.objects import State, TaskRun
    from prefect.context import TaskRunContext

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
RETRY_SECONDS = [5.0, 30.0]
"""The pause before each retry of a task that the machine failed."""
CRASH = "Crash"
"""Name of the state of a task whose program crashed or could not be judged."""
Message = Callable[[R, Mapping[str, Any]], TaskMessage]
"""Result and arguments of a task to its message."""


@dataclass(frozen=True)
class At:
    campaign_id: str
    digest: str
    """Digest of everything that changes a score (`spec_digest`)."""
    number: int
    attempt: int = 1
    part: str = ""
    """Name of the run; empty for the first."""
    launched: bool = False
    """Whether it runs in a deployment run (flows/trial.py), not in the campaign's process."""

    def __str__(self) -> str:
        part = f"/{self.part}" if self.part else ""
        return f"{self.campaign_id}/{self.digest}/{self.number:04d}/{self.attempt}{part}"

    @property
    def marker(self) -> str:
        """Marks the run's processes, so that a resumed campaign ends them; a launched run outlives the campaign."""
        run = f"{self.campaign_id}/{self.number:04d}/{self.attempt}/{self.part or 'run-1'}"
        return f"launched/{run}" if self.launched else run


class LazyTask(Generic[P, R]):
    """A Prefect task, made when it is first needed: checks and single runs do without Prefect, a slow import."""

    def __init__(self, fn: Callable[P, State[R]], make: Callable[[Callable[P, State[R]]], Task[P, State[R]]]) -> None:
        self.fn = fn
        self._make = make

    @functools.cached_property
    def task(self) -> Task[P, State[R]]:
        return self._make(self.fn)

    def with_options(self, **options: Any) -> LazyTask[P, R]:
        """The same task with other options of Prefect's."""
        return LazyTask(self.fn, lambda _: self.task.with_options(**options))


def stored(name: str, message: Message[R]) -> Callable[[Callable[P, R]], LazyTask[P, R]]:
    """A task whose result is a checkpoint: JSON under `key`, retried only if the machine failed. Call it by `kept`."""

    def make(function: Callable[P, State[R]]) -> Task[P, State[R]]:
        from prefect import task

        return task(
            name=name,
            task_run_name=run_name,
            persist_result=True,
            result_serializer="json",
            cache_key_fn=key,
            retries=len(RETRY_SECONDS),
            retry_delay_seconds=RETRY_SECONDS,
            retry_condition_fn=_is_infrastructure,
            log_prints=False,
        )(function)

    return lambda function: LazyTask(with_message(message)(function), make)


def with_message(message: Message[R]) -> Callable[[Callable[P, R]], Callable[P, State[R]]]:
    """Let a task return its result in a state with a message; a crash is a Failed state that ends no campaign.

    A result that is read from its file is `Cached`, without a message.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, State[R]]:
        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> State[R]:
            from prefect import get_run_logger
            from prefect.states import Completed, Failed

            result = function(*args, **kwargs)
            said = message(result, inspect.signature(function).bind(*args, **kwargs).arguments)
            if not said.crash:
                return Completed(message=said.words, data=result)
            get_run_logger().error(said.crash)
            return Failed(name=CRASH, message=said.words, data=result)

        return run

    return decorate


def run_name() -> str:
    """Name of a task run in the Prefect UI: *task environment trial run*, with the campaign's name in a rerun.

    The first run of a trial is left out: it is the only one of most.
    """
    from prefect.runtime import flow_run, task_run

    asked = flow_run.parameters
    subject = Path(asked.get("environment") or asked.get("name") or "").name
    at: At = task_run.parameters["at"]
    return " ".join(filter(None, [task_run.task_name, subject, str(at.number), at.part]))


def is_kept(results: Path, at: At, name: str) -> bool:
    """Whether a task's result is stored completely; a kill may leave a part of it."""
    try:
        json.loads((results / f"{at}/{name}").read_bytes())
    except (FileNotFoundError, ValueError):
        return False
    return True


def kept(task: LazyTask[P, R], results: Path) -> Callable[P, R]:
    """Call a task with its results in the campaign's directory, so that copying the directory copies everything."""
    placed: LazyTask[P, R] = _placed(task, results)
    return result_of(placed)


@functools.lru_cache(64)
def _placed(task: LazyTask[..., Any], results: Path) -> Any:
    """The task with its results there. Made once, since Prefect reads the task's source text to make another."""
    return task.with_options(result_storage=results)


def result_of(task: LazyTask[P, R]) -> Callable[P, R]:
    """Call a task, for the result that its state holds."""
    from prefect.client.schemas.objects import State
    from prefect.results import ResultRecord  # type: ignore[attr-defined]

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        found: object = task.task(*args, **kwargs)
        found = found.data if isinstance(found, State) else found  # from its file it comes without a state
        return cast(R, found.result if isinstance(found, ResultRecord) else found)

    return call


def whole(value: T) -> T:
    """A value that Prefect passes on unchanged, instead of traversing and copying a growing history at every call."""
    from prefect.utilities.annotations import quote

    return cast(T, quote(value))


def _is_infrastructure(_: Task[..., Any], __: TaskRun, state: State[Any]) -> bool:
    """A fault of the machine is retried; a program that crashes is a result."""
    from tasks.sandbox.program import CannotStart

    return isinstance(state.result(raise_on_failure=False), CannotStart | OSError)


def is_last_attempt() -> bool:
    """Whether the task that is running will not be retried; False outside of a task."""
    from prefect.runtime import task_run

    return (task_run.run_count or 0) > len(RETRY_SECONDS)


def key(context: TaskRunContext, parameters: Mapping[str, Any]) -> str:
    """*campaign id / spec digest / trial / attempt / task*; `decide` also depends on the history that it saw."""
    name = f"{parameters['at']}/{context.task.name}"
    if context.task.name == "decide":
        name += "-" + history_digest(parameters["history"])
    return name


def history_digest(history: History) -> str:
    """A digest of the decisions: proposals, scores and verdicts, without times."""
    return _sha(f"[{', '.join(trial.decided for trial in history)}]")


def spec_digest(parts: Mapping[str, object]) -> str:
    """A digest of everything that changes a score; `parts` must be JSON."""
    return _sha(json.dumps(parts, sort_keys=True))


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]

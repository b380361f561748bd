"""Checkpoints: under which key the result of a task is stored, in this one place.

A task whose result file exists is not run again: that file, not the state that a server shows, is the checkpoint.
The key holds all that tells two results apart, and nothing that may change between two lives of a campaign.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from tasks.sandbox.program import CannotStart
from tasks.trial import History

if TYPE_CHECKING:
    from prefect import Task
    from prefect.client.schemas.objects import State, TaskRun
    from prefect.context import TaskRunContext

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class At:
    """Which trial of which campaign a task works on."""

    campaign_id: str
    digest: str
    """What changes a score: environment, judge, program, trainer, proposer, rule, seed (see `spec_digest`)."""
    number: int
    attempt: int = 1
    part: str = ""
    """Which of its runs, where there are several; empty for the first."""
    launched: bool = False
    """Whether a run of a deployment works on it (flows/trial.py), not the campaign's own process."""

    def __str__(self) -> str:
        part = f"/{self.part}" if self.part else ""
        return f"{self.campaign_id}/{self.digest}/{self.number:04d}/{self.attempt}{part}"

    @property
    def marker(self) -> str:
        """What the run's processes are found by, and no other run's.

        It begins with the campaign's id, which another life of the campaign ends; but not where it was launched,
        since that goes on when the campaign's own process dies.
        """
        run = f"{self.campaign_id}/{self.number:04d}/{self.attempt}/{self.part or 'run-1'}"
        return f"launched/{run}" if self.launched else run


def stored(name: str) -> Callable[[Callable[P, R]], Task[P, R]]:
    """A task whose result is a checkpoint: JSON under `key`, tried again only when the machine failed."""
    from prefect import task  # here, so that whoever only reads a ledger does not load Prefect

    return task(
        name=name,
        task_run_name=run_name,
        persist_result=True,
        result_serializer="json",
        cache_key_fn=key,
        retries=2,
        retry_delay_seconds=[5, 30],
        retry_condition_fn=_is_infrastructure,
        log_prints=False,
    )


def run_name() -> str:
    """*task environment trial*: what a task's run is called in the Prefect UI. Asked for while it runs."""
    from prefect.runtime import flow_run, task_run

    environment = Path(flow_run.parameters.get("environment", "")).name
    return " ".join(filter(None, [task_run.task_name, environment, str(task_run.parameters["at"].number)]))


def is_kept(results: Path, at: At, name: str) -> bool:
    """Whether the result of a task is stored, and as a whole: a kill while it was written leaves a part of it."""
    try:
        json.loads((results / f"{at}/{name}").read_bytes())
    except (FileNotFoundError, ValueError):
        return False
    return True


def kept(task: Task[P, R], results: Path) -> Task[P, R]:
    """The task with its results in a campaign's own directory, so that copying that copies everything."""
    return task.with_options(result_storage=results)


def whole(value: T) -> T:
    """A value that Prefect hands to a task as it is. Otherwise it searches and copies it at every call, to the last
    number of a history that grows by a trial each time."""
    from prefect.utilities.annotations import quote

    return cast(T, quote(value))


def _is_infrastructure(_: Task[..., Any], __: TaskRun, state: State[Any]) -> bool:
    """What the machine failed at is worth another try; a program that crashes is a result, not a fault."""
    return isinstance(state.result(raise_on_failure=False), CannotStart | OSError)


def key(context: TaskRunContext, parameters: Mapping[str, Any]) -> str:
    """The key of a task's result: *campaign id / spec digest / trial / attempt / task*.

    `decide` also depends on the history that it saw, so its key ends in a digest of that.
    """
    name = f"{parameters['at']}/{context.task.name}"
    if context.task.name == "decide":
        name += "-" + history_digest(parameters["history"])
    return name


def history_digest(history: History) -> str:
    """A digest of what was decided: proposals, scores and verdicts, but no times."""
    return _sha(f"[{', '.join(trial.decided for trial in history)}]")


def spec_digest(parts: Mapping[str, object]) -> str:
    """A digest of everything that changes a score; `parts` must be JSON."""
    return _digest(parts)


def _digest(value: object) -> str:
    return _sha(json.dumps(value, sort_keys=True))


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]

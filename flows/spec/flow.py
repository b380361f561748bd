"""What makes a function a flow of ours: the form of a campaign in the Prefect UI, its name, and how refusals end it.

Prefect makes a form from a flow's signature, so the flow `campaign` shows another one than its function has: that takes
every option by itself too, as deployments may state them (`flows.spec.spec.spread`). Nothing in the form is "None", for
which Prefect would show a choice of types: a text without a default is empty, and a number may be left empty.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import PurePath
from typing import Annotated, Any, ParamSpec, TypeVar, get_args

from prefect import State, runtime
from prefect.exceptions import FailedRun
from prefect.states import Failed
from pydantic import Field
from pydantic.fields import FieldInfo

from environments.plugins import Refused
from flows.spec.spec import OPTIONS, Spec, declared, next_time
from tasks.store.ledger import free_name, stem_of

F = TypeVar("F", bound=Any)
P = ParamSpec("P")
R = TypeVar("R")
ANY = "campaign"
"""The deployment that takes any environment, and names its runs by it."""
STEM = 43
"""Characters of a deployment's or environment's name in that of a campaign, so that the rest fits in too."""


def form(flow: F) -> F:
    """Have a flow of a campaign take every option, and show the form: the options of a Spec, in its order."""
    *own, _ = inspect.signature(flow.fn).parameters.values()  # without **options
    others = sorted({*OPTIONS, "advanced"} - {each.name for each in own})
    vars(flow.fn)["__signature__"] = inspect.Signature([*own, *(_parameter(name, None, Any) for name in others)])
    vars(flow)["__signature__"] = inspect.Signature([_shown(name, field) for name, field in Spec.model_fields.items()])
    return flow


def _shown(name: str, field: FieldInfo) -> inspect.Parameter:
    """An option with its type, bounds, label and help."""
    kinds = get_args(field.annotation)
    kind: Any = kinds[0] if type(None) in kinds else field.annotation
    default = "" if kind is str and field.default is None else {} if name == "advanced" else field.default
    label = {"title": name.replace("_", " ").capitalize(), **declared(field)}
    annotation = Annotated[(kind, *field.metadata, Field(json_schema_extra=label))]
    return _parameter(name, inspect.Parameter.empty if field.is_required() else default, annotation)


def _parameter(name: str, default: Any, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def fails_when_refused(flow: Callable[P, State[R]]) -> Callable[P, State[R]]:
    """Have a flow's function return a Failed state where it would raise Refused; the state's result is the refusal."""

    @functools.wraps(flow)
    def run(*args: P.args, **kwargs: P.kwargs) -> State[R]:
        for name in ("prefect.flow_runs", "prefect.task_runs", "prefect.engine"):
            logging.getLogger(name).addFilter(_is_news)  # the same function is added once
        try:
            return flow(*args, **kwargs)
        except Refused as refused:
            state: State[R] = Failed(message=str(refused), data=refused)
            return state

    # With annotations as text Prefect would look for their names in this module.
    vars(run)["__signature__"] = inspect.signature(flow, eval_str=True)
    return run


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a record is none by which Prefect says once more what the row of a task says, or a returned failure."""
    error, said = (record.exc_info or (None, None))[1], record.getMessage()
    is_end = record.name == "prefect.task_runs" and said.startswith("Finished in state")
    return not is_end and not (isinstance(error, Refused | FailedRun) and "exited with unexpected exception" in said)


def named(environment: str, name: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of the flow `campaign` with a name, and with a time of day as the first one after its scheduled start.

    The name is the stated one, else one by deployment and start, else the next free one of the environment.
    """
    short, until, start = PurePath(str(environment)).name, options.get("until"), runtime.flow_run.scheduled_start_time
    name = name or _deployed_name(short) or free_name(short)
    if isinstance(until, str) and start:
        with suppress(ValueError):  # the spec says what is wrong
            until = next_time(until, start.astimezone()).isoformat()  # however late the run begins or resumes
    return {**options, "name": name, "until": until}


def flow_run_name() -> str:
    """The campaign's name; the environment's before it has one."""
    parameters = runtime.flow_run.parameters
    environment = PurePath(str(parameters["environment"])).name
    return str(parameters.get("name") or _deployed_name(environment) or environment)


def _deployed_name(environment: str) -> str | None:
    """`<deployment>-<scheduled start>-<end of the run's id>`, or by environment: the same when the run is retried, so
    that it resumes, and another one when two begin at the same second.
    """
    deployment, start = runtime.deployment.name, runtime.flow_run.scheduled_start_time
    if not deployment:
        return None
    stem = stem_of(environment if deployment == ANY else deployment, STEM)
    return f"{stem}-{start:%Y%m%d-%H%M%S}-{str(runtime.flow_run.id)[-4:]}"

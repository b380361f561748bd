"""Default names of campaigns, and the names and tags of their flow runs in the Prefect UI."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from prefect import runtime
from prefect.client.orchestration import get_client

from environments.plugins import Refused
from flows.spec.spec import TIME_OF_DAY, next_time
from tasks.store.ledger import Ledger, free_name, stem_of

if TYPE_CHECKING:
    from prefect import Flow, State
    from prefect.client.schemas.objects import FlowRun

ANY = "campaign"
"""The deployment that takes any environment, and names its runs by it."""
STEM = 48
"""Characters of a deployment's or environment's name in that of a campaign, so that its start fits in too."""


def named(environment: str, name: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of the flow `campaign` with a name, and with a time of day as the first one after its scheduled start.

    The name is the stated one, else one by deployment and start, else the next free one of the environment.
    """
    short, until, start = PurePath(str(environment)).name, options.get("until"), runtime.flow_run.scheduled_start_time
    name = name or _deployed_name(short) or free_name(short)
    if isinstance(until, str) and start and re.fullmatch(TIME_OF_DAY, until):
        with suppress(ValueError):  # the spec says what is wrong
            until = next_time(until, start.astimezone()).isoformat()  # however late the run begins or resumes
    return {**options, "name": name, "until": until}


def flow_run_name() -> str:
    """The campaign's name, followed by the environment's unless that is part of it."""
    environment, campaign = _facts(runtime.flow_run.parameters)
    if not campaign:
        return environment
    return campaign if stem_of(environment, STEM) in campaign else f"{campaign} ({environment})"


def tag(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Tag a flow run with its environment and its campaign: by a hook, since task runs would inherit the tags, and for
    each tag of a task Prefect asks its server for a concurrency slot.
    """
    if missing := [tag for tag in _facts(flow_run.parameters) if tag and tag not in flow_run.tags]:
        with get_client(sync_client=True) as client:
            client.update_flow_run(flow_run.id, tags=[*flow_run.tags, *missing])


def _facts(parameters: Mapping[str, Any]) -> tuple[str, str]:
    """The names of the environment and of the campaign; the latter is empty until a free one is found."""
    if "environment" in parameters:
        environment = PurePath(str(parameters["environment"])).name
        return environment, str(parameters.get("name") or _deployed_name(environment) or "")
    name = str(parameters["name"])  # of a campaign that exists
    with suppress(Refused):  # the flow itself says what is wrong
        return Ledger.open(name).environment.name, name
    return "", name


def _deployed_name(environment: str) -> str | None:
    """`<deployment>-<scheduled start>`, or by environment: the same when the run is retried, so that it resumes."""
    deployment, start = runtime.deployment.name, runtime.flow_run.scheduled_start_time
    if not deployment:
        return None
    return f"{stem_of(environment if deployment == ANY else deployment, STEM)}-{start:%Y%m%d-%H%M%S}"

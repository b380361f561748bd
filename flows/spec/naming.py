"""Default names of campaigns, and the names and tags of their flow runs in the Prefect UI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefect import runtime
from prefect.client.orchestration import get_client

from tasks.store.ledger import check_name, free_name

if TYPE_CHECKING:
    from prefect import Flow, State
    from prefect.client.schemas.objects import FlowRun


def campaign_name(stated: str | None, environment: str) -> str:
    """The stated name, else the deployment's, else the next free one of the environment."""
    return stated or _deployed_name() or free_name(_last(environment))


def flow_run_name() -> str:
    """The campaign's name, followed by the environment's unless that is part of it."""
    environment, campaign = _facts(runtime.flow_run.parameters)
    if not campaign:
        return environment
    return campaign if _plain(environment) in _plain(campaign) else f"{campaign} ({environment})"


def tag(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Tag a flow run with its environment and its campaign.

    A hook, so that task runs do not inherit the tags: for each tag of a task, Prefect asks its server for a
    concurrency slot, which takes longer than the task.
    """
    if missing := [fact for fact in _facts(flow_run.parameters) if fact and fact not in flow_run.tags]:
        with get_client(sync_client=True) as client:
            client.update_flow_run(flow_run.id, tags=[*flow_run.tags, *missing])


def _facts(asked: dict[str, Any]) -> tuple[str, str]:
    """The names of the environment and of the campaign; the latter is empty until a free one is found."""
    return _last(str(asked.get("environment") or "")), str(asked.get("name") or _deployed_name() or "")


def _last(environment: str) -> str:
    """The name of an environment that may be given as a path."""
    return environment.rstrip("/").rpartition("/")[2]


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")


def _deployed_name() -> str | None:
    """`<deployment>-<scheduled start>`: the same when the flow run is retried, so that it resumes its campaign."""
    deployment, start = runtime.deployment.name, runtime.flow_run.scheduled_start_time
    return check_name(f"{deployment}-{start:%Y%m%d-%H%M%S}".lower()) if deployment else None

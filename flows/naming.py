"""Names: what a campaign is called when nobody says so, and what its flow run is called in the Prefect UI."""

from __future__ import annotations

from prefect import runtime

from tasks.ledger import check_name, free_name


def campaign_name(stated: str | None, environment: str) -> str:
    """The stated name, else the deployment's, else the next free one of the environment."""
    return stated or _deployed_name() or free_name(environment.rstrip("/").rpartition("/")[2])


def flow_run_name() -> str:
    """The campaign's name, or the environment's where the campaign has yet to find a free one."""
    parameters = runtime.flow_run.parameters
    return str(parameters.get("name") or _deployed_name() or parameters.get("environment"))


def _deployed_name() -> str | None:
    """`<deployment>-<scheduled start>`: it follows from the flow run, so a Retry meets its own campaign again."""
    deployment, start = runtime.deployment.name, runtime.flow_run.scheduled_start_time
    return check_name(f"{deployment}-{start:%Y%m%d-%H%M%S}".lower()) if deployment else None

"""Names: what a campaign is called when nobody says so, and what its flow run is called in the Prefect UI."""

from __future__ import annotations

from prefect import runtime

from tasks.ledger import check_name, free_name


def campaign_name(stated: str | None, environment: str) -> str:
    """The stated name; else, in a deployment, `<deployment>-<scheduled start>`; else the next free one.

    A deployment's name follows from the flow run alone, so that a Retry meets its own campaign again.
    """
    if stated:
        return stated
    if deployment := runtime.deployment.name:
        start = runtime.flow_run.scheduled_start_time
        return check_name(f"{deployment}-{start:%Y%m%d-%H%M%S}".lower())
    return free_name(environment)


def flow_run_name() -> str:
    """The campaign's name, or the environment's until there is one."""
    parameters = runtime.flow_run.parameters
    return str(parameters.get("name") or parameters.get("environment"))

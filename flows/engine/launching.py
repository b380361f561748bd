"""Launching: run a training on another machine, as a run of a deployment of the flow `trial`.

The child run gets an idempotency key, *campaign id / trial / attempt / part / launch n*. A running or finished child
of that key is adopted, so a killed campaign finds its children again. A child that dies of its machine is launched
again as n + 1, a few times. Its results are not return values: they are files in the campaign's directory, on storage
that both machines share, and the campaign reads them like its own.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowFilter, FlowFilterName
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from environments.plugins import Refused
from flows.engine.deployment_run import FLOW, CannotLaunch, Child, Server, full_name
from tasks.store.launch_files import Launches, LaunchRequest
from tasks.store.ledger import Ledger

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.responses import DeploymentResponse

MOST_DEATHS = 3
"""Launches of one run that may die of their machines, per process of the campaign."""
ANSWER_SECONDS = 10.0
"""Time-out of one request to the server."""


def check(launch: str) -> None:
    """Refuse a deployment that does not exist or has no work pool.

    Raises:
        Refused: names the deployments that exist.
    """
    if launch == "here":
        return
    with _client() as client:
        _deployment(client, launch)


def run_elsewhere(launch: str, ledger: Ledger, asked: LaunchRequest) -> None:
    """Run a training elsewhere, and return when its results are there.

    Raises:
        Refused: there is no such deployment, or its machines do not see the campaign's directory.
        CannotLaunch: its machines died too often, or it failed there.
    """
    if asked.is_done(ledger.results):
        return
    launches = Launches.of(ledger.path, asked)
    deaths: list[str] = []
    with _client() as client:
        server = Server(client, ledger)
        deployment = server.ask(lambda: _deployment(client, launch))
        while len(deaths) < MOST_DEATHS:
            number = launches.next
            child = Child(server, deployment, launches, asked, number)
            if (death := child.follow()) is None:
                return
            deaths.append(f"launch {number}: {death}")
            child.note("died", reason=death)
    raise CannotLaunch(
        f"{full_name(launch)} could not do trial {asked.at.number}: its machines died {len(deaths)} times "
        f"({'; '.join(deaths)}). See to them, then `nightshift resume {ledger.campaign.name}`"
    )


@contextmanager
def _client() -> Iterator[SyncPrefectClient]:
    """A client without Prefect's own retries: ours last longer, and notice a request to stop."""
    quick = {"timeout": ANSWER_SECONDS}
    with (
        temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}),
        get_client(sync_client=True, httpx_settings=quick) as client,
    ):
        yield client


def _deployment(client: SyncPrefectClient, launch: str) -> DeploymentResponse:
    try:
        found = client.read_deployment_by_name(full_name(launch))
    except ObjectNotFound:
        trials = FlowFilter(name=FlowFilterName(any_=[FLOW]))
        known = sorted(one.name for one in client.read_deployments(flow_filter=trials))
        near = difflib.get_close_matches(launch, known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise Refused(
            f"launch = {launch!r}: the Prefect server at {client.api_url} has no deployment {full_name(launch)}.{hint} "
            f"Available: {', '.join(known) or 'none'}. docs/work-pools.md says how one is made"
        ) from None
    if found.work_pool_name is None:
        raise Refused(
            f"launch = {launch!r}: the deployment {full_name(launch)} has no work pool: deploy it with one"
        )
    return found

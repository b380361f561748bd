"""Launching: have one run of a trial done by a deployment of the flow `trial`, in whichever work pool that is.

The child gets an idempotency key, *campaign id / trial / attempt / part / launch n*. A child of that key which is
under way, or has come to its end, is adopted, so a campaign that was killed finds it again. One that dies of its
machine gets the next n, a few times. What it brings is never its return value: the results of its tasks lie in the
campaign's directory, on storage that both machines share, and the campaign reads them as if they were its own.
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
"""Launches of one run that may die of their machines, in one life of the campaign."""
ANSWER_SECONDS = 10.0
"""How long the server may take to answer one question."""


def check(launch: str) -> None:
    """Refuse a deployment that does not exist, or has no work pool.

    Raises:
        Refused: with what there is instead.
    """
    if launch == "here":
        return
    with _client() as client:
        _deployment(client, launch)


def run(launch: str, ledger: Ledger, asked: LaunchRequest) -> None:
    """Have a run done, and return when its results are there.

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
    """A client without Prefect's own patience: ours is longer, and hears that somebody asked to stop."""
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

"""Launching: run a training on another machine, as a run of the flow `trial`: of a deployment, or in a Slurm job.

The child run gets an idempotency key, *campaign id / trial / attempt / part / launch n*. A running or finished child
of that key is adopted, so a killed campaign finds its children again. A child that dies of its machine is launched
again as n + 1, a few times. Its results are not return values: they are files in the campaign's directory, on storage
that both machines share, and the campaign reads them like its own.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.filters import FlowFilter, FlowFilterName
from prefect.exceptions import ObjectNotFound
from prefect.utilities.annotations import quote

from environments.plugins import Refused
from flows.engine.attempt import Control, Step, Task
from flows.engine.deployment_run import FLOW, CannotLaunch, Child, DeploymentRun, Server, full_name
from flows.engine.slurm import slurm_check, slurm_job
from flows.engine.slurm.commands import SlurmAway, check_installed
from flows.engine.slurm.request import JobRequest
from flows.engine.slurm.slurm_job import SlurmJob
from flows.server.api import impatient_client
from flows.spec.slurm_options import SLURM
from tasks.bench import Bench
from tasks.checkpoint import run_name
from tasks.store.launch_files import Launches, LaunchRequest
from tasks.store.ledger import Ledger
from tasks.system import interrupt
from tasks.system.clock import clock
from tasks.task_key import TaskKey, history_digest

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.responses import DeploymentResponse

    from flows.engine.night import Terms

MOST_DEATHS = 3
"""Launches of one run that may die of their machines, per process of the campaign."""
PAUSE_SECONDS = 30.0
"""Pause after a launch that died before it began: a Docker daemon or a node that restarts would refuse the next too."""
ANSWER_SECONDS = 10.0
"""Time-out of one request to the server."""


@task(task_run_name=run_name, cache_policy=NO_CACHE, persist_result=False, retries=0)
def launch(key: TaskKey, bench: Bench, request: LaunchRequest, deployment: str) -> None:
    """Have a run of a deployment make a training and its judgement, and return when their results are there."""
    run_elsewhere(deployment, bench.ledger, request)


def launched(night: Terms, step: Step, bench: Bench, after: Sequence[Task]) -> Sequence[Task]:
    """Have another machine make a run, where the campaign asks for that; the tasks that its own tasks wait for."""
    if night.spec.launch == "here":
        return after
    request = quote(_request(night, step, bench))
    return [launch.submit(step.plan.key, bench, request, night.spec.launch, wait_for=after, return_state=False)]


def _request(night: Terms, step: Step, bench: Bench) -> LaunchRequest:
    """A step as it is sent to another machine."""
    plan, other = step.plan, bench.environment.name != night.environment.name
    return LaunchRequest(
        plan.key, "untrained" if isinstance(step, Control) else "measure", plan.proposal, plan.folder,
        len(night.history), history_digest(night.history), plan.use,
        (step.trained,) if isinstance(step, Control) else (), plan.stops_early, plan.units, plan.block,
        bench.environment.name if other else "",
    )  # fmt: skip


def check(launch: str, request: JobRequest | None = None) -> None:
    """Refuse a deployment that does not exist or has no work pool, or jobs that Slurm would not take.

    Args:
        request: The jobs, where Slurm is to run them.
    """
    if launch == "here":
        return
    with impatient_client(ANSWER_SECONDS) as client:
        if request:
            slurm_check.check(request, str(client.api_url))
        else:
            _deployment(client, launch)


def run_elsewhere(
    launch: str,
    ledger: Ledger,
    asked: LaunchRequest,
    request: JobRequest | None = None,
    queued: list[tuple[float, float]] | None = None,
) -> None:
    """Run a training elsewhere, and return when its results are there.

    CannotLaunch if its machines died too often or it failed there; Refused if they do not see the campaign's directory.

    Args:
        request: The job, where Slurm is to run it.
        queued: Gets begin and end of each wait in a queue, on the engine's clock.
    """
    if asked.is_done(ledger.results):
        return
    if request:
        check_installed()
    launches = Launches.of(ledger.path, asked)
    deaths: list[str] = []
    with impatient_client(ANSWER_SECONDS) as client:
        server = Server(client, ledger)
        deployment = None if request else server.ask(lambda: _deployment(client, launch))
        while len(deaths) < MOST_DEATHS:
            number = launches.next
            child = _child(server, launches, asked, number, deployment, request)
            began, death = clock(), child.follow()
            if queued is not None and child.waited:
                queued.append((began, began + child.waited))
            if death is None:
                return
            deaths.append(f"launch {number}: {death}")
            child.note("died", reason=death)
            if launches.answered(number) is None and len(deaths) < MOST_DEATHS:
                interrupt.wait(PAUSE_SECONDS)
    raise CannotLaunch(
        f"{child.name} could not do trial {asked.at.number}: its machines died {len(deaths)} times "
        f"({'; '.join(deaths)}). See to them, then `nightshift resume {ledger.campaign.name}`"
    )


def _child(
    server: Server,
    launches: Launches,
    asked: LaunchRequest,
    number: int,
    deployment: DeploymentResponse | None,
    request: JobRequest | None,
) -> Child:
    if request:
        return SlurmJob(server, launches, asked, number, request)
    assert deployment is not None, "what Slurm does not run, a deployment does"
    return DeploymentRun(server, launches, asked, number, deployment)


def end_left(ledger: Ledger, launch: str) -> None:
    """Cancel the Slurm jobs of an earlier life of a campaign that is not to run there any more."""
    if launch == SLURM:
        return  # they are adopted
    try:
        if ended := slurm_job.end_left(ledger.path):
            ledger.event("launch", what="called back", jobs=ended)
    except (SlurmAway, FileNotFoundError) as silent:  # without Slurm's commands nobody can tell
        raise Refused(
            f"campaign {ledger.campaign.name!r} may have jobs in Slurm, and {silent}: resume it where Slurm "
            f"answers, or delete {ledger.path}/launches/*/*.job if they are gone"
        ) from silent


def _deployment(client: SyncPrefectClient, launch: str) -> DeploymentResponse:
    try:
        deployment = client.read_deployment_by_name(full_name(launch))
    except ObjectNotFound:
        trials = FlowFilter(name=FlowFilterName(any_=[FLOW]))
        names = sorted(deployment.name for deployment in client.read_deployments(flow_filter=trials))
        near = difflib.get_close_matches(launch, names, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise Refused(
            f"launch = {launch!r}: the Prefect server at {client.api_url} has no deployment {full_name(launch)}.{hint} "
            f"Available: {', '.join(names) or 'none'}. docs/work-pools.md says how one is made"
        ) from None
    if deployment.work_pool_name is None:
        raise Refused(f"launch = {launch!r}: the deployment {full_name(launch)} has no work pool: deploy it with one")
    return deployment

"""Launching: one run of a trial on another machine, as a run of a deployment of the flow `trial`.

The child is a subflow of the campaign, under an idempotency key: *campaign id / trial-attempt-part / launch n*. A
killed campaign finds it again by that key. A child whose machine died is launched again as n + 1, a few times: Prefect
says that it is Crashed, told by its worker or for want of heartbeats (flows/server/automations.yaml). Its results are
files in the campaign's directory, on storage that both machines share, and the campaign reads them like its own.
"""

from __future__ import annotations

import itertools
import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import httpx
from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.filters import FlowFilter, FlowFilterName, FlowRunFilter, FlowRunFilterIdempotencyKey
from prefect.deployments import run_deployment
from prefect.states import Cancelling
from prefect.utilities.annotations import quote

from environments import plugins
from environments.plugins import Refused
from flows.engine.attempt import Control, Step, Task
from flows.server.api import impatient_client
from flows.server.automations import SILENT
from tasks.bench import Bench
from tasks.checkpoint import run_name
from tasks.launch_request import LaunchRequest, once_visible
from tasks.store.ledger import Ledger
from tasks.system import interrupt
from tasks.system.clock import clock
from tasks.system.redact import capped, clean
from tasks.task_key import TaskKey, history_digest

if TYPE_CHECKING:
    from prefect import State
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun

    from flows.engine.night import Terms

FLOW = "trial"
MOST_DEATHS = 3
"""Launches of one run that may die, per process of the campaign."""
PAUSE_SECONDS = 30.0
"""Pause before the next launch: what ended the last one, such as a Docker daemon or a node, may be restarting."""
POLL_SECONDS = 1.0
ANSWER_SECONDS = 10.0
"""Time-out of one request to the server."""
AWAY_SECONDS = 3600.0
"""Longest outage of the server that is waited for."""
TOO_MANY_REQUESTS = 429

T = TypeVar("T")


class CannotLaunch(OSError):
    """The machines of a work pool could not do a run: a fault of the infrastructure, or of what is installed there."""


def check(launch: str) -> None:
    """Refuse a deployment that does not exist or has no work pool; warn where nobody would notice a lost machine."""
    if launch == "here":
        return
    with impatient_client(ANSWER_SECONDS, retries=3) as client:
        deployments = client.read_deployments(flow_filter=FlowFilter(name=FlowFilterName(any_=[FLOW])))
        pools = {deployment.name: deployment.work_pool_name for deployment in deployments}
        plugins.require(launch, sorted(pools), f"deployment of the flow {FLOW}", f"launch, at {client.api_url}")
        if pools[launch] is None:
            raise Refused(f"launch = {launch!r}: the deployment {FLOW}/{launch} has no work pool: deploy it with one")
        if not client.read_automations_by_name(SILENT):
            get_run_logger().warning(
                f"the Prefect server at {client.api_url} has no automation {SILENT}, so a trial is waited for without "
                "end if its machine and its worker die together: `nightshift up --server URL` puts it there"
            )


def launched(night: Terms, step: Step, bench: Bench, after: Sequence[Task]) -> Sequence[Task]:
    """Have another machine make a run, where the campaign asks for that; what the run's own tasks wait for."""
    if night.spec.launch == "here":
        return after
    trained = step.trained if isinstance(step, Control) else None
    transfer = "" if bench.environment.name == night.environment.name else bench.environment.name
    known = len(night.history), history_digest(night.history)
    request = quote(LaunchRequest(step.plan, *known, trained, transfer, bench.budget))
    return [
        launch.submit(
            quote(step.plan.key), bench, request, quote(night.spec.launch), wait_for=after, return_state=False
        )
    ]


@task(task_run_name=run_name, cache_policy=NO_CACHE, persist_result=False)
def launch(key: TaskKey, bench: Bench, request: LaunchRequest, deployment: str) -> None:
    """Have a run of a deployment make a training and its judgement, and return when their results are there."""
    with bench.under_way(key):
        run_elsewhere(deployment, bench.ledger, request)


def run_elsewhere(deployment: str, ledger: Ledger, request: LaunchRequest) -> None:
    """Have a run done by a deployment, and return when its results are there.

    CannotLaunch if its machines died too often, if it failed there, or if they do not see the campaign's directory.
    """
    deaths: list[str] = []
    with impatient_client(ANSWER_SECONDS) as client:
        run = _LaunchedRun(client, f"{FLOW}/{deployment}", ledger, request)
        while not run.is_done:
            if not (death := run.death()):
                return
            deaths.append(death)
            if len(deaths) == MOST_DEATHS:
                raise CannotLaunch(
                    f"{run.words}: its machines died {len(deaths)} times ({'; '.join(deaths)}). See to them, then "
                    f"`nightshift resume {ledger.campaign.name}`"
                )
            interrupt.wait(PAUSE_SECONDS)


@dataclass
class _LaunchedRun:
    """One run, and its launches."""

    client: SyncPrefectClient
    deployment: str
    ledger: Ledger
    request: LaunchRequest
    launch: int = field(default=0, init=False)
    """Number of the last one."""

    @property
    def is_done(self) -> bool:
        return self.request.is_done(self.ledger.results)

    @property
    def words(self) -> str:
        return f"{self.deployment} at trial {self.request.plan.key.number}"

    def death(self) -> str:
        """Launch the run, or adopt the launch that is under way; why it died, or nothing once the results are there."""
        child = self._adopted() or self._launched()
        try:
            while not self.is_done and not _is_over(child.state):
                interrupt.wait(POLL_SECONDS)
                child = _answer(partial(self._read, child))
        except KeyboardInterrupt:
            self._note("called back")
            try:
                self.client.set_flow_run_state(child.id, Cancelling(message="the campaign called it back"))
            except httpx.HTTPError as fault:  # it trains on, and is adopted when the campaign is resumed
                get_run_logger().warning(f"the Prefect server could not be told to end {child.name!r}: {fault}")
            raise
        state = child.state
        if self.is_done or state is None:
            return ""
        if state.is_completed():
            if once_visible(lambda: self.is_done):
                return ""
            raise CannotLaunch(
                f"{self.words}: done, and its results are not in {self.ledger.results} on {platform.node()}: both "
                "machines need the same storage, mounted there under the same path or at the deployment's parameter "
                "`runs` (docs/other-machines.md)"
            )
        message = capped(" ".join(clean(state.message or "")), 2000) or "it does not say why"
        if state.is_failed():
            raise CannotLaunch(f"{self.words}: it failed: {message}")
        death = f"launch {self.launch} {state.name}: {capped(message, 200)}"
        self._note("died", reason=death)
        get_run_logger().warning(f"{self.words}: {death}")
        return death

    def _adopted(self) -> FlowRun | None:
        """The launch that is under way; without one, `launch` is the number of the next."""
        for self.launch in itertools.count(1):
            chosen = FlowRunFilter(idempotency_key=FlowRunFilterIdempotencyKey(any_=[self._key]))
            known = _answer(partial(self.client.read_flow_runs, flow_run_filter=chosen))
            if not known:
                break
            if not _is_over(known[0].state):
                self._note("adopted", flow_run_id=str(known[0].id))
                get_run_logger().info(f"{self.words}: goes on with the run {known[0].name!r}")
                return known[0]
        return None

    def _launched(self) -> FlowRun:
        """Create the child as a subflow of this flow run; the server gives the one of this key if there is one."""
        campaign = self.ledger.campaign
        self.request.write(self.ledger.path)
        parameters = {
            "folder": str(self.ledger.path),
            "request": self.request.file,
            "campaign_id": campaign.campaign_id,
        }
        child = cast("FlowRun", _answer(lambda: run_deployment(
            self.deployment, parameters=parameters, flow_run_name=f"{campaign.name} {self.request.name}", timeout=0,
            idempotency_key=self._key, tags=[campaign.environment, campaign.name], as_subflow=True,
        )))  # fmt: skip
        self._note("asked", deployment=self.deployment, flow_run_id=str(child.id))
        get_run_logger().info(f"{self.words}: launched as the run {child.name!r}")
        self._look_at_pool(child)
        return child

    def _look_at_pool(self, child: FlowRun) -> None:
        """Say that a child has to wait since its pool has no worker."""
        with suppress(httpx.HTTPError):
            pool = self.client.read_work_pool(child.work_pool_name or "")
            if pool.status is not None and pool.status.value != "READY":
                reason = f"work pool {pool.name!r} {'is paused' if pool.is_paused else 'has no worker'}"
                self._note("waits", reason=reason)
                get_run_logger().warning(f"{self.words}: {reason}; waiting for it")

    def _read(self, child: FlowRun) -> FlowRun:
        """The child as it is now; once the results are there, which can be seen without the server, as it was."""
        return child if self.is_done else self.client.read_flow_run(child.id)

    @property
    def _key(self) -> str:
        return f"{self.request.plan.key.campaign_id}/{self.request.name}/launch {self.launch}"

    def _note(self, what: str, **facts: object) -> None:
        where = {"trial": self.request.plan.key.number, "run": self.request.name, "launch": self.launch}
        self.ledger.event("launch", what=what, **where, **facts)


def _answer(question: Callable[[], T]) -> T:
    """Ask the Prefect server until it answers. CannotLaunch if it was away for AWAY_SECONDS."""
    deadline = clock() + AWAY_SECONDS
    while True:
        try:
            return question()
        except (httpx.TransportError, httpx.HTTPStatusError) as fault:
            status = fault.response.status_code if isinstance(fault, httpx.HTTPStatusError) else 500
            if status < 500 and status != TOO_MANY_REQUESTS:
                raise
            if clock() > deadline:
                raise CannotLaunch(f"the Prefect server did not answer for {AWAY_SECONDS / 60:g} min") from fault
        interrupt.wait(POLL_SECONDS)


def _is_over(state: State[Any] | None) -> bool:
    """Whether nothing more can be expected of a child. One that is being cancelled may never end, if it died before."""
    return state is not None and (state.is_final() or state.is_cancelling())

"""Launching: one run of a trial on another machine, as a run of a deployment of the flow `trial`.

The child is a subflow of the campaign, under an idempotency key: *campaign id / trial-attempt-part / launch n*. A
killed campaign finds it again by that key. A child whose machine died is launched again as n + 1, a few times: Prefect
says that it is Crashed, told by its worker or for want of heartbeats (flows/server/automations.yaml). Its results are
files in the campaign's directory, on storage that both machines share, and the campaign reads them like its own.
"""

from __future__ import annotations

import difflib
import itertools
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import httpx
from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.filters import FlowFilter, FlowFilterName, FlowRunFilter, FlowRunFilterIdempotencyKey
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelling
from prefect.utilities.annotations import quote

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
    from uuid import UUID

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
POOL_SECONDS = 15.0
"""Interval of checks whether a pool has a worker."""
CANCEL_SECONDS = 45.0
"""Time for a cancelled child to end."""
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
        try:
            deployment = client.read_deployment_by_name(f"{FLOW}/{launch}")
        except ObjectNotFound:
            raise Refused(_unknown(client, launch)) from None
        if deployment.work_pool_name is None:
            raise Refused(f"launch = {launch!r}: the deployment {FLOW}/{launch} has no work pool: deploy it with one")
        if not client.read_automations_by_name(SILENT):
            get_run_logger().warning(
                f"the Prefect server at {client.api_url} has no automation {SILENT}, so a trial is waited for without "
                "end if its machine and its worker die together: `nightshift server setup` puts it there"
            )


def launched(night: Terms, step: Step, bench: Bench, after: Sequence[Task]) -> Sequence[Task]:
    """Have another machine make a run, where the campaign asks for that; what the run's own tasks wait for."""
    if night.spec.launch == "here":
        return after
    trained = step.trained if isinstance(step, Control) else None
    transfer = "" if bench.environment.name == night.environment.name else bench.environment.name
    known = len(night.history), history_digest(night.history)
    request = quote(LaunchRequest(step.plan, *known, trained, transfer, bench.budget))
    return [launch.submit(step.plan.key, bench, request, night.spec.launch, wait_for=after, return_state=False)]


@task(task_run_name=run_name, cache_policy=NO_CACHE, persist_result=False)
def launch(key: TaskKey, bench: Bench, request: LaunchRequest, deployment: str) -> None:
    """Have a run of a deployment make a training and its judgement, and return when their results are there."""
    with bench.under_way(key):
        run_elsewhere(deployment, bench.ledger, request)


def run_elsewhere(launch: str, ledger: Ledger, asked: LaunchRequest) -> None:
    """Have a run done by a deployment, and return when its results are there.

    CannotLaunch if its machines died too often, if it failed there, or if they do not see the campaign's directory.
    """
    deaths: list[str] = []
    with impatient_client(ANSWER_SECONDS) as client:
        launches = _Launches(client, f"{FLOW}/{launch}", ledger, asked)
        while not launches.are_done:
            if (death := launches.death_of_next()) is None:
                return
            deaths.append(death)
            if len(deaths) == MOST_DEATHS:
                raise CannotLaunch(
                    f"{FLOW}/{launch} could not do trial {asked.plan.key.number}: its machines died "
                    f"{len(deaths)} times ({'; '.join(deaths)}). See to them, then "
                    f"`nightshift resume {ledger.campaign.name}`"
                )
            interrupt.wait(PAUSE_SECONDS)


@dataclass
class _Launches:
    """The launches of one run."""

    client: SyncPrefectClient
    deployment: str
    ledger: Ledger
    asked: LaunchRequest
    _number: int = field(default=0, init=False)
    """Of the last launch."""
    _pool_seen: float | None = field(default=None, init=False)
    """When the pool was last looked at, on the engine's clock."""
    _has_warned: bool = field(default=False, init=False)

    @property
    def are_done(self) -> bool:
        return self.asked.is_done(self.ledger.results)

    def death_of_next(self) -> str | None:
        """Launch the run, or adopt the launch that is under way; why it died, or None once the results are there."""
        child = self._begin()
        try:
            state = self._end_of(child)
        except KeyboardInterrupt:
            self._note("called back")
            self._call_back(child)
            raise
        if state is None:
            return None
        if state.is_completed():
            if once_visible(lambda: self.are_done):
                return None
            raise CannotLaunch(
                f"{self.deployment} has done trial {self.asked.plan.key.number}, and its results are not in "
                f"{self.ledger.results} on {platform.node()}: both machines need the same storage, mounted there under "
                "the same path or at the deployment's parameter `runs` (docs/work-pools.md)"
            )
        message = capped(" ".join(clean(state.message or "")), 2000) or "it does not say why"
        if state.is_failed():
            raise CannotLaunch(f"{self.deployment} failed at trial {self.asked.plan.key.number}: {message}")
        death = f"launch {self._number} {state.name}: {capped(message, 200)}"
        self._note("died", reason=death)
        get_run_logger().warning(f"trial {self.asked.plan.key.number}: {death}")
        return death

    def _begin(self) -> UUID:
        """Adopt the child that is under way, or create the next one; its id."""
        for number in itertools.count(1):
            self._number = number
            key = f"{self.asked.plan.key.campaign_id}/{self.asked.name}/launch {number}"
            known = self._ask(partial(self._find, key))
            if known is None:
                break
            if known.state is None or not _is_over(known.state):
                self._note("adopted", flow_run_id=str(known.id))
                get_run_logger().info(f"trial {self.asked.plan.key.number}: goes on with the run {known.name!r}")
                return known.id
        self.asked.write(self.ledger.path)
        child = self._ask(partial(self._launch, key))
        self._note("asked", deployment=self.deployment, flow_run_id=str(child.id))
        get_run_logger().info(
            f"trial {self.asked.plan.key.number}: launched as the run {child.name!r} of {self.deployment}"
        )
        return child.id

    def _find(self, key: str) -> FlowRun | None:
        chosen = FlowRunFilter(idempotency_key=FlowRunFilterIdempotencyKey(any_=[key]))
        return next(iter(self.client.read_flow_runs(flow_run_filter=chosen)), None)

    def _launch(self, key: str) -> FlowRun:
        """Create the child as a subflow of this flow run; the server gives the one of this key if there is one."""
        campaign = self.ledger.campaign
        parameters = {"folder": str(self.ledger.path), "request": self.asked.file, "campaign_id": campaign.campaign_id}
        child = run_deployment(
            self.deployment, parameters=parameters, flow_run_name=f"{campaign.name} {self.asked.name}", timeout=0,
            idempotency_key=key, tags=[campaign.environment, campaign.name], as_subflow=True,
        )  # fmt: skip
        return cast("FlowRun", child)

    def _end_of(self, child: UUID) -> State[Any] | None:
        """The state in which the child ended; None once the results are there."""
        while run := self._ask(partial(self._read, child)):
            if run.state and _is_over(run.state):
                return run.state
            interrupt.wait(POLL_SECONDS)
        return None

    def _read(self, child: UUID) -> FlowRun | None:
        """The child; None once the results are there, which can be seen without the server."""
        if self.are_done:
            return None
        run = self.client.read_flow_run(child)
        if run.state and (run.state.is_scheduled() or run.state.is_pending()):
            self._look_at_pool(run)
        return run

    def _look_at_pool(self, run: FlowRun) -> None:
        """Say once that a child has not begun since its pool has no worker."""
        if self._has_warned or (self._pool_seen and clock() - self._pool_seen < POOL_SECONDS):
            return
        self._pool_seen = clock()
        pool = self.client.read_work_pool(run.work_pool_name or "")
        if pool.status is not None and pool.status.value != "READY":
            self._has_warned = True
            reason = f"work pool {pool.name!r} {'is paused' if pool.is_paused else 'has no worker'}"
            self._note("waits", reason=reason)
            get_run_logger().warning(f"trial {self.asked.plan.key.number}: {reason}; waiting for it")

    def _call_back(self, child: UUID) -> None:
        """Cancel the child, and wait for its end."""
        deadline = clock() + CANCEL_SECONDS
        cancelling: State[Any] = Cancelling(message="the campaign called it back")
        try:
            self.client.set_flow_run_state(child, cancelling)
            while (state := self.client.read_flow_run(child).state) and not state.is_final() and clock() < deadline:
                time.sleep(POLL_SECONDS)
        except httpx.HTTPError as fault:  # it trains on, and is adopted when the campaign is resumed
            get_run_logger().warning(f"the Prefect server could not be told to end {child}: {fault}")

    def _ask(self, question: Callable[[], T]) -> T:
        """Ask the Prefect server until it answers. CannotLaunch if it was away for AWAY_SECONDS."""
        began = clock()
        while True:
            try:
                return question()
            except (httpx.TransportError, httpx.HTTPStatusError) as fault:
                status = fault.response.status_code if isinstance(fault, httpx.HTTPStatusError) else 500
                if status < 500 and status != TOO_MANY_REQUESTS:
                    raise
                if clock() - began > AWAY_SECONDS:
                    raise CannotLaunch(f"the Prefect server did not answer for {AWAY_SECONDS / 60:g} min") from fault
            interrupt.wait(POLL_SECONDS)

    def _note(self, what: str, **facts: object) -> None:
        where = {"trial": self.asked.plan.key.number, "run": self.asked.name, "launch": self._number}
        self.ledger.event("launch", what=what, **where, **facts)


def _is_over(state: State[Any]) -> bool:
    """Whether nothing more can be expected of a child. One that is being cancelled may never end, if it died before."""
    return state.is_final() or state.is_cancelling()


def _unknown(client: SyncPrefectClient, launch: str) -> str:
    trials = FlowFilter(name=FlowFilterName(any_=[FLOW]))
    names = sorted(deployment.name for deployment in client.read_deployments(flow_filter=trials))
    near = difflib.get_close_matches(launch, names, n=1)
    return (
        f"launch = {launch!r}: the Prefect server at {client.api_url} has no deployment {FLOW}/{launch}."
        f"{f' Did you mean {near[0]!r}?' if near else ''} "
        f"Available: {', '.join(names) or 'none'}. docs/work-pools.md says how one is made"
    )

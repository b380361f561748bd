"""Launching: one run of a trial on another machine, as a run of a deployment of the flow `trial`.

The child is a subflow of the campaign, under an idempotency key by which a killed campaign finds it again. One whose
machine died is launched again, by Prefect's retries: its worker, or the want of heartbeats, makes it Crashed. Request
and results are files in the campaign's directory, on storage that both machines share.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import httpx
from prefect import State, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import FlowFilter, FlowFilterName, FlowRunFilter, FlowRunFilterIdempotencyKey
from prefect.client.schemas.objects import FlowRun
from prefect.deployments import run_deployment
from prefect.states import Cancelling
from prefect.utilities.annotations import quote
from pydantic import TypeAdapter

from environments import plugins
from environments.plugins import Refused
from flows.engine.attempt import Future
from flows.server.server_process import impatient_client
from flows.server.setup import SILENT
from tasks.bench import Bench, RunPlan
from tasks.checkpoint import failed_by, has_result, run_name
from tasks.store.ledger import Ledger
from tasks.system import interrupt
from tasks.system.files import write_atomic
from tasks.system.redact import capped, clean
from tasks.system.retrying import retrying
from tasks.task_key import TaskKey

if TYPE_CHECKING:
    from flows.engine.night import Night

FLOW = "trial"
RETRIES, RETRY_SECONDS = 2, 30.0
"""Launches after a death, per process of the campaign, and the pause before each: what ended the last one, such as a
Docker daemon or a node, may be restarting."""
POLL_SECONDS = 1.0
AWAY_SECONDS = 3600.0
"""Longest outage of the server that is waited for."""
VISIBLE_SECONDS = 90.0
"""How long a file may take to become visible on another machine: NFS caches directories for up to 60 s."""

SHARE = (
    "both machines need the same storage, mounted there under the same path, or at the directory that the deployment's "
    "parameter `runs` names (docs/other-machines.md)"
)
T = TypeVar("T")


class CannotLaunch(OSError):
    """The machines of a work pool could not do a run."""


class LaunchDied(CannotLaunch):
    """A launch ended without results and without an error of its own; the next one may succeed."""


@dataclass(frozen=True)
class LaunchRequest:
    """One run to be made on another machine, as a file in that run's directory: plain arguments of its tasks."""

    plan: RunPlan
    seen: int
    """Number of trials of the history that it may know."""
    transfer: str = ""
    """Another environment than the campaign's own, one of those frozen with its certificates."""
    budget: float = 1.0
    """Training budget, in that of the environment."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks whose stored results complete it."""
        return ("control",) if self.plan.control_of else ("train", "evaluate")

    @property
    def name(self) -> str:
        """The run within the campaign: trial, attempt, part and step, such as `0007-1-run-2`."""
        key, step = self.plan.key, "control" if self.plan.control_of else ""
        return "-".join(filter(None, (f"{key.number:04d}", str(key.attempt), key.part, step)))

    @property
    def file(self) -> str:
        return f"{self.plan.folder}/launch-{self.tasks[-1]}.json"

    def is_done(self, results: Path) -> bool:
        return all(has_result(results, self.plan.key, task) for task in self.tasks)


REQUEST = TypeAdapter(LaunchRequest)


def once_visible(look: Callable[[], T | None]) -> T | None:
    """What another machine has written, once it can be seen here; nothing if it cannot within VISIBLE_SECONDS."""
    deadline = time.monotonic() + VISIBLE_SECONDS
    while not (seen := look()) and time.monotonic() < deadline:
        interrupt.wait(POLL_SECONDS)
    return seen


def check(launch: str) -> None:
    """Refuse a deployment that does not exist or has no work pool; warn where nobody would notice a lost machine."""
    if launch == "here":
        return
    with impatient_client(retries=3) as client:
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


def launched(night: Night, plan: RunPlan, bench: Bench, after: Sequence[Future]) -> Future:
    """Have another machine make a run; what the run's own tasks wait for."""
    transfer = "" if bench.environment.name == night.environment.name else bench.environment.name
    request = quote(LaunchRequest(plan, len(night.history), transfer, bench.budget))
    key, deployment = quote(plan.key), quote(night.spec.launch)
    return launch.submit(key, bench, request, deployment, wait_for=after, return_state=False)


@task(
    task_run_name=run_name, retries=RETRIES, retry_delay_seconds=RETRY_SECONDS,
    retry_condition_fn=failed_by(LaunchDied), cache_policy=NO_CACHE, persist_result=False,
)  # fmt: skip
def launch(key: TaskKey, bench: Bench, request: LaunchRequest, deployment: str) -> None:
    """Have a run of a deployment make a run, and return when its results are there. Raises LaunchDied, CannotLaunch."""
    results = bench.ledger.results
    if not request.is_done(results):
        interrupt.check()  # the night may have ended in the pause before a retry
        with impatient_client() as client:
            Launch(client, f"{FLOW}/{deployment}", bench.ledger, request).follow(bench.timed(key))


class Launch:
    """One launch of a run: the one that is under way, or the next."""

    def __init__(self, client: SyncPrefectClient, deployment: str, ledger: Ledger, request: LaunchRequest) -> None:
        self.client, self.deployment, self.ledger, self.request = client, deployment, ledger, request
        launches = [event for event in ledger.events() if event["event"] == "launch" and event["run"] == request.name]
        self.number = 1 + sum(event["what"] in ("died", "called back") for event in launches)
        self.name = f"{deployment} at trial {request.plan.key.number}"

    @property
    def is_done(self) -> bool:
        return self.request.is_done(self.ledger.results)

    def follow(self, timed: AbstractContextManager[None]) -> None:
        """Return when the results are there. Raises LaunchDied or CannotLaunch. (timed: entered while it runs)"""
        child = self._child()
        try:
            child = self._until(child, lambda state: state.is_running())
            with timed:
                child = self._until(child, lambda state: False)
        except KeyboardInterrupt:
            self._call_back(child)
            raise
        state = child.state
        if self.is_done or state is None or (state.is_completed() and once_visible(lambda: self.is_done)):
            return
        message = capped(" ".join(clean(state.message or "")), 2000) or "it does not say why"
        self._note("died", reason=f"launch {self.number} {state.name}: {capped(message, 200)}")
        if state.is_completed():
            raise CannotLaunch(
                f"{self.name}: done, and its results are not in {self.ledger.results} on {platform.node()}: {SHARE}"
            )
        if state.is_failed():
            raise CannotLaunch(f"{self.name}: it failed: {message}")
        raise LaunchDied(
            f"{self.name}: its machine died, launch {self.number} is {state.name}: {message}. See to the machines, "
            f"then `nightshift resume {self.ledger.campaign.name}`"
        )

    def _until(self, child: FlowRun, holds: Callable[[State[Any]], bool]) -> FlowRun:
        """The child once that holds of its state, nothing more is to be expected of it, or the results are there."""
        while not (self.is_done or _is_over(child.state) or (child.state and holds(child.state))):
            interrupt.wait(POLL_SECONDS)
            child = self._read(child)
        return child

    def _child(self) -> FlowRun:
        """The flow run of this launch, which is a subflow of this one; one that an earlier process began is adopted."""
        key = f"{self.request.plan.key.campaign_id}/{self.request.name}/launch {self.number}"
        same_key = FlowRunFilter(idempotency_key=FlowRunFilterIdempotencyKey(any_=[key]))
        if existing := _answer(lambda: self.client.read_flow_runs(flow_run_filter=same_key)):
            self._note("adopted", flow_run_id=str(existing[0].id))
            return existing[0]
        campaign = self.ledger.campaign
        write_atomic(self.ledger.path / self.request.file, REQUEST.dump_json(self.request, indent=2) + b"\n")
        parameters = {
            "folder": str(self.ledger.path), "request": self.request.file, "campaign_id": campaign.campaign_id,
        }  # fmt: skip
        child = cast(FlowRun, _answer(lambda: run_deployment(
            self.deployment, parameters=parameters, flow_run_name=f"{campaign.name} {self.request.name}", timeout=0,
            idempotency_key=key, tags=[campaign.environment, campaign.name], as_subflow=True,
        )))  # fmt: skip
        self._note("asked", deployment=self.deployment, flow_run_id=str(child.id))
        return child

    def _read(self, child: FlowRun) -> FlowRun:
        """The child as it is now; once the results are there, which can be seen without the server, as it was."""
        return _answer(lambda: child if self.is_done else self.client.read_flow_run(child.id))

    def _call_back(self, child: FlowRun) -> None:
        try:
            self.client.set_flow_run_state(child.id, Cancelling(message="the campaign called it back"))
            self._note("called back")
        except httpx.HTTPError as fault:  # it trains on, and is adopted when the campaign is resumed
            get_run_logger().warning(f"the Prefect server could not be told to end {child.name!r}: {fault}")

    def _note(self, what: str, **facts: object) -> None:
        key = self.request.plan.key
        where = {"trial": key.number, "part": key.part, "run": self.request.name, "launch": self.number}
        self.ledger.event("launch", what=what, **where, **facts)


def _answer(question: Callable[[], T]) -> T:
    """Ask the Prefect server until it answers. CannotLaunch if it was away for AWAY_SECONDS."""
    try:
        return retrying(AWAY_SECONDS)(question)
    except httpx.HTTPError as fault:
        raise CannotLaunch(f"the Prefect server does not answer: {fault}") from fault


def _is_over(state: State[Any] | None) -> bool:
    """Whether nothing more can be expected of a child. One that is being cancelled may never end, if it died before."""
    return state is not None and (state.is_final() or state.is_cancelling())

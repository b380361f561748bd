"""A run of the flow `trial` elsewhere: created or adopted, and followed until its results are there.

It is watched in two places: its state at the Prefect server, and its heartbeat on the shared storage. The heartbeat
goes on while the server is away, and stops when the machine dies, which the server may never notice.
"""

from __future__ import annotations

import logging
import platform
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import httpx
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterIdempotencyKey
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelling, Crashed

from environments.plugins import Refused
from tasks.store.launch_files import VISIBLE_SECONDS, Launches, LaunchRequest
from tasks.store.ledger import Ledger
from tasks.system import interrupt
from tasks.system.clock import clock
from tasks.system.redact import capped, clean

if TYPE_CHECKING:
    from uuid import UUID

    from prefect import State
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun, WorkPool
    from prefect.client.schemas.responses import DeploymentResponse

FLOW = "trial"
NOT_SHARED = "NotShared"
"""Name of the state of a run whose machine does not see the campaign's directory."""
POLL_SECONDS = 1.0
POOL_SECONDS = 15.0
"""Interval of checks whether a pool has a worker."""
LOST_SECONDS = 90.0
"""A running child without a sign of life for this long is lost, and its machine with it."""
PENDING_SECONDS = 300.0
"""The same for a child that a worker picked up and never started."""
CANCEL_SECONDS = 45.0
"""Time for a cancelled child to end."""
LOST_CANCEL_SECONDS = 15.0
"""The same for a lost child, which most likely nobody ends."""
BUSY_SECONDS = 15.0
"""A server that is silent for less than this is only busy."""
AWAY_SECONDS = 3600.0
"""Longest outage of the server that is waited for."""

log = logging.getLogger(__name__)
T = TypeVar("T")


class CannotLaunch(OSError):
    """The machines of a work pool could not run the trial: a fault of the infrastructure."""


def full_name(launch: str) -> str:
    """`gpu-pair` is the deployment `trial/gpu-pair`."""
    return f"{FLOW}/{launch}"


def key(asked: LaunchRequest, number: int) -> str:
    """The idempotency key of a launch."""
    at, step = asked.at, "" if asked.step == "measure" else asked.step
    return "/".join(
        filter(None, [at.campaign_id, f"{at.number:04d}", str(at.attempt), at.part, step, f"launch {number}"])
    )


class Away(Exception):
    """The Prefect server does not answer now."""


AWAY = (429, 500, 502, 503, 504)
"""HTTP statuses of a server, or a proxy before it, that may answer later."""


@dataclass
class Server:
    """The Prefect server, which may be away for a while."""

    client: SyncPrefectClient
    ledger: Ledger
    _since: float | None = field(default=None, init=False)
    _said: bool = field(default=False, init=False)

    def ask(self, question: Callable[[], T]) -> T:
        """Ask until there is an answer."""
        while True:
            try:
                return self.hear(question)
            except Away:
                interrupt.wait(POLL_SECONDS)

    def hear(self, question: Callable[[], T]) -> T:
        """Ask once. Raises Away if there is no answer now, CannotLaunch if there was none for AWAY_SECONDS."""
        try:
            answer = question()
        except (httpx.TransportError, httpx.HTTPStatusError) as fault:
            if isinstance(fault, httpx.HTTPStatusError) and fault.response.status_code not in AWAY:
                raise
            self._since = self._since or clock()
            away = clock() - self._since
            if away > BUSY_SECONDS and not self._said:
                self._said = True
                self.ledger.event("launch", what="waits", reason="the Prefect server does not answer")
                log.warning("the Prefect server does not answer; waiting for it")
            if away > AWAY_SECONDS:
                raise CannotLaunch(f"the Prefect server did not answer for {AWAY_SECONDS / 60:g} min") from fault
            raise Away from fault
        self._since, self._said = None, False
        return answer


@dataclass
class Child(ABC):
    """One launch: a run of the flow `trial` for a LaunchRequest. What starts it, a subclass says."""

    server: Server
    launches: Launches
    asked: LaunchRequest
    number: int
    waited: float = field(default=0.0, init=False)
    """Seconds in a queue, as far as they are known."""
    _seen: tuple[str, float] = field(default=("", 0.0), init=False)
    """The state last seen, and since when."""
    _began: bool = field(default=False, init=False)

    @property
    @abstractmethod
    def name(self) -> str:
        """What starts it, for people."""

    @abstractmethod
    def _create(self, parameters: dict[str, Any]) -> UUID:
        """Create the flow run, or find the one of this key; its id."""

    @abstractmethod
    def _never_begun(self, run: FlowRun) -> str | None:
        """Why a child that has not begun will not; None while it may."""

    def _end(self, child: UUID) -> None:  # noqa: B027 (a worker ends most)
        """End what no worker ends, whose Prefect state says Cancelling. Raises httpx.HTTPError at most."""

    @property
    def _facts(self) -> dict[str, object]:
        """What the event of its beginning says besides."""
        return {}

    @property
    def client(self) -> SyncPrefectClient:
        return self.server.client

    def note(self, what: str, **facts: object) -> None:
        """Add an event about this launch to the campaign's events."""
        at = self.asked.at
        where = {"trial": at.number, "run": self.launches.name, "launch": self.number}
        self.server.ledger.event("launch", what=what, **where, **facts)

    def follow(self) -> str | None:
        """Wait until the results are there (None), or until the child is dead (the reason)."""
        child = self._begun()
        self._seen = ("", clock())
        try:
            while not self.asked.is_done(self.server.ledger.results):
                with suppress(Away):  # its results can be seen without the server
                    if death := self._death(self.server.hear(lambda: self._read(child))):
                        self.launches.close(self.number)
                        return death
                interrupt.wait(POLL_SECONDS)
        except KeyboardInterrupt:
            self.call_back(child)
            raise
        return None

    def _begun(self) -> UUID:
        """Adopt the child of this key, or create it."""
        chosen = FlowRunFilter(idempotency_key=FlowRunFilterIdempotencyKey(any_=[key(self.asked, self.number)]))
        if runs := self.server.ask(lambda: self.client.read_flow_runs(flow_run_filter=chosen)):
            self.note("adopted", flow_run_id=str(runs[0].id))
            return runs[0].id
        token, campaign = self.launches.ask(self.number, self.asked), self.server.ledger.campaign
        parameters = {
            "campaign": campaign.name, "folder": str(self.launches.campaign), "run": self.launches.name,
            "launch": self.number, "token": token,
        }  # fmt: skip
        # The server returns the existing run if its first answer was lost.
        made = self.server.ask(lambda: self._create(parameters))
        self.note("asked", deployment=self.name, flow_run_id=str(made))
        return made

    @property
    def _tags(self) -> list[str]:
        campaign = self.server.ledger.campaign
        return [campaign.environment, campaign.name]

    def _read(self, child: UUID) -> FlowRun | None:
        try:
            return self.client.read_flow_run(child)
        except ObjectNotFound:
            return None

    def _death(self, run: FlowRun | None) -> str | None:
        """Why nothing more can be expected of the child; None while something can.

        A failure there would repeat itself, so it ends the campaign: Refused or CannotLaunch.
        """
        if run is None or run.state is None:
            return "the Prefect server does not know it any more"
        state = run.state
        if state.is_completed():
            self._wait_for_results()
            return None
        if state.is_failed():
            said = _in_a_line(state.message, 2000)
            if state.name == NOT_SHARED:
                self._refuse(f"{self.name} does not see it: {said}")
            self.launches.close(self.number)
            raise CannotLaunch(f"{self.name} failed at trial {self.asked.at.number}: {said}")
        if state.is_crashed() or state.is_cancelled():
            return f"{state.name}: {_in_a_line(state.message, 200)}"
        return self._silence(run) if state.is_running() else self._never_begun(run)

    def _wait_for_results(self) -> None:
        """The child is done; wait until its results are visible here."""
        deadline = clock() + VISIBLE_SECONDS
        while not self.asked.is_done(self.server.ledger.results):
            if clock() > deadline:
                answer = self.launches.answered(self.number)
                there = f"{answer.folder} on {answer.host}" if answer else "the other machine"
                self._refuse(f"{self.name} ended well, and left its results in {there}")
            interrupt.wait(POLL_SECONDS)

    def _refuse(self, fact: str) -> NoReturn:
        self.launches.close(self.number)
        raise Refused(
            f"the campaign is in {self.launches.campaign} on {platform.node()}, and {fact}. Both need the same "
            "storage: mount it there under the same path, or set the deployment's parameter `runs` to the directory "
            "that holds the campaigns there (docs/work-pools.md)"
        )

    def _silence(self, run: FlowRun) -> str | None:
        """Why a running child is taken for dead; None while it shows signs of life."""
        answer, beat = self.launches.answered(self.number), self.launches.beat()
        if answer and not self._began:
            self._began = True
            self.note("began", host=answer.host, folder=answer.folder, home=answer.home, **self._facts)
        heard = answer is not None or bool(beat)
        if self._for(f"running {heard} {beat}") < LOST_SECONDS + (0 if heard else VISIBLE_SECONDS):
            return None
        self.call_back(run.id, lost=True)
        host = f" on {answer.host}" if answer else ""
        return f"no sign of life{host} for {LOST_SECONDS:g} s"

    def _for(self, shown: str) -> float:
        """Seconds since the state last changed."""
        if shown != self._seen[0]:
            self._seen = shown, clock()
        return clock() - self._seen[1]

    def call_back(self, child: UUID, lost: bool = False) -> None:
        """Cancel the child and wait for its end; a lost child is then marked Crashed."""
        self.launches.close(self.number)
        self.note("called back", lost=lost)
        deadline = clock() + (LOST_CANCEL_SECONDS if lost else CANCEL_SECONDS)
        try:
            asked: State[None] = Cancelling(message="the campaign called it back")
            try:
                self.client.set_flow_run_state(child, asked)
            finally:
                self._end(child)
            while (run := self._read(child)) and run.state and not run.state.is_final():
                if clock() > deadline:
                    break
                time.sleep(POLL_SECONDS)
            else:
                return
            if lost:
                crashed: State[None] = Crashed(message="no sign of life: its machine is taken for lost")
                self.client.set_flow_run_state(child, crashed, force=True)
        except httpx.HTTPError as fault:
            log.warning("the Prefect server could not be told to end %s: %s", child, fault)


@dataclass
class DeploymentRun(Child):
    """A run of a deployment, which a worker of its pool starts."""

    deployment: DeploymentResponse
    _looked: float = field(default=float("-inf"), init=False)
    _warned: bool = field(default=False, init=False)

    @property
    def name(self) -> str:
        return full_name(self.deployment.name)

    def _create(self, parameters: dict[str, Any]) -> UUID:
        made = self.client.create_flow_run_from_deployment(
            self.deployment.id, parameters=parameters, idempotency_key=key(self.asked, self.number), tags=self._tags
        )
        return made.id

    def _never_begun(self, run: FlowRun) -> str | None:
        """Why a child that a worker picked up will not start; None while it may."""
        taken = run.state is not None and run.state.is_pending()
        waited = self._for("taken" if taken else "waits")
        if clock() - self._looked < POOL_SECONDS:
            return None
        self._looked = clock()
        pool = self.server.hear(lambda: self.client.read_work_pool(self.deployment.work_pool_name or ""))
        is_ready = pool.status is None or pool.status.value == "READY"
        if not is_ready and not self._warned:
            self._warned = True
            why = f"work pool {pool.name!r} {'is paused' if pool.is_paused else 'has no worker'}"
            self.note("waits", reason=why)
            log.warning("%s: %s; waiting for it", self.name, why)
        # A worker with a command, such as Slurm's srun, may have put it into a queue. One of Docker says when it has
        # started the container; before that it may have an image to fetch.
        is_at_once = (pool.type == "process" and not _command(self.deployment, pool)) or (
            pool.type == "docker" and run.infrastructure_pid is not None
        )
        if not taken or waited < PENDING_SECONDS or (is_ready and not is_at_once):
            return None
        self.call_back(run.id, lost=True)
        return f"a worker took it, and did not begin it for {PENDING_SECONDS:g} s"


def _command(deployment: DeploymentResponse, pool: WorkPool) -> str | None:
    """The command that starts a deployment's runs, if one is set."""
    variables = pool.base_job_template.get("variables", {}).get("properties", {})
    stated = (deployment.job_variables or {}).get("command") or variables.get("command", {}).get("default")
    return str(stated) if stated else None


def _in_a_line(text: str | None, limit: int) -> str:
    """Text from another machine, redacted and capped, on one line."""
    return capped(" ".join(clean(text or "")), limit) or "it does not say why"

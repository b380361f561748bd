"""One training on another machine: sent, followed, stopped at its end, fetched, and removed in whatever way it ends.

The endpoint keeps the budget, by its own clock; the engine checks it, asks for an early stop, and ends what goes on
beyond it. A trial of a process that died is adopted with its key, so nothing is started twice (tasks/remote/jobs.py).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from string import Formatter
from typing import ClassVar, Literal

from environments import FILE, Environment
from environments.plugins import Refused
from environments.remote import RemoteSettings
from tasks.cancellers._early_stop import EarlyStopCheck
from tasks.remote import files, jobs
from tasks.remote.endpoint import (
    PROGRESS_BYTES,
    PROTOCOL,
    EndpointAway,
    EndpointFault,
    Gone,
    RemoteEndpoint,
    Status,
    TrialRefused,
)
from tasks.remote.files import NotTaken
from tasks.remote.jobs import OpenJob
from tasks.remote.places import NotReady
from tasks.sandbox import outputs
from tasks.sandbox.program import CannotStart
from tasks.sandbox.progress import BadProgress, Failure, Progress
from tasks.store.workspace import TrialDir
from tasks.system import interrupt
from tasks.system.clock import clock
from tasks.system.redact import clean
from tasks.trial import TWENTIETHS, Proposal, ResourceSample

ISOLATION = "remote"
"""What a run records as its isolation: it ran on another machine."""
LOCAL = ("data", "init", "out", "resume")
"""Keys of config.json that mean something on this machine only."""
SLACK_SECONDS = 10.0
"""Beyond all that a trial is given, before it counts as one that does not end."""
PROGRAM_BYTES = 4 * 2**20
"""Most bytes of a program that is sent."""
TAIL_LINES = 20


def check(environment: Environment) -> None:
    """Refuse a command line with paths that mean something on this machine only."""
    named = {name for _, name, _, _ in Formatter().parse(environment.train_cmd) if name}
    if local := sorted(named & {"environment", "prepared"}):
        raise Refused(
            f"{environment.folder / FILE}: train_cmd: {{{local[0]}}} is a folder of this machine, and trainer "
            f"{environment.trainer!r} trains on another: leave it out, and have its files in program"
        )


@dataclass
class RemoteSession:
    """One run of a proposal on another machine."""

    environment: Environment
    place: TrialDir
    proposal: Proposal
    seed: int
    startup_seconds: float
    cut_seconds: float | None
    """Training time after which it is stopped without having been told; None: its whole budget."""
    early: EarlyStopCheck
    seconds: float = 0.0
    ran: float = 0.0
    startup: float | None = None
    error: str | None = None
    failure: Failure | None = None
    usd: float = 0.0
    """Cost of this run, with that of tries that failed on their machines."""
    _said_usd: float | None = field(default=None, init=False)
    """Cost of this try, where the endpoint says it."""
    _runs_since: float | None = field(default=None, init=False)
    """When it was first seen to run."""
    _over: float | None = field(default=None, init=False)
    """When it was asked to stop."""

    level: ClassVar[str] = ISOLATION
    out: ClassVar[str] = "{out}"
    """Stands in its command for its output folder, whose name only the other machine knows."""
    peak_memory: ClassVar[int | None] = None
    gpu_memory: ClassVar[tuple[int, ...] | None] = None
    resources: ClassVar[tuple[ResourceSample, ...]] = ()

    def __post_init__(self) -> None:
        self.progress = Progress(self.place.progress, self.environment.metric, self.environment.budget_steps)

    @property
    def rented_gpus(self) -> int:
        return self.settings.rented_gpus or (self.environment.gpus if self.environment.device == "cuda" else 0)

    @property
    def settings(self) -> RemoteSettings:
        assert self.environment.remote is not None, "a local environment has a local session"
        return self.environment.remote

    @property
    def status(self) -> Literal["finished", "cancelled", "crash"]:
        if self.early.is_carried_out:
            return "cancelled"
        return "crash" if self.error else "finished"

    def run(self, command: list[str], marker: str) -> None:
        """Train once. Raises CannotStart if the other machine, or the way to it, is at fault."""
        try:
            request = self._request(command)
            with self._job(f"{marker}/{self.place.path.name}", request) as job:
                self._train(job, request)
        except (NotTaken, BadProgress) as wrong:
            self.error = str(wrong)
        except TrialRefused as refused:
            self.error = f"the endpoint refused the trial: {refused}"
        except Gone as gone:
            raise CannotStart(f"the endpoint lost the trial: {gone}") from gone
        except (NotReady, EndpointAway, EndpointFault) as fault:
            raise CannotStart(str(fault)) from fault

    def _job(self, run: str, request: bytes) -> OpenJob:
        settings, budget = self.settings, self.environment.budget_seconds + self.environment.grace_seconds
        longest = settings.ready_seconds + self.startup_seconds + budget + settings.away_seconds
        return jobs.begin(
            run, self.environment.trainer, settings, hashlib.sha256(request).hexdigest(), longest,
            costs=self.place.path / jobs.COSTS, adopt=self.cut_seconds is None,
            gpus=self.rented_gpus,
        )  # fmt: skip

    def _train(self, job: OpenJob, request: bytes) -> None:
        began = clock()
        try:
            address = job.job.place.reach(job.job.key, job.job.seconds + self.settings.lease_seconds)
            with RemoteEndpoint(address, self.settings.away_seconds, self.settings.answer_seconds) as endpoint:
                try:
                    self._follow(endpoint, job, request)
                    self._keep(endpoint, job.job.key)
                finally:
                    self.ran = clock() - began
        except EndpointAway:  # it may run on there: the next try adopts it, or a sweep removes it
            raise
        except BaseException:
            self._end(job)
            raise
        self._end(job)

    def _end(self, job: OpenJob) -> None:
        """Remove it there, and sum up what this run has cost."""
        if why := job.end(usd=self._said_usd):
            self._note(f"nightshift: {why}; it is removed later\n")
        self.usd = jobs.paid(self.place.path / jobs.COSTS).usd

    def _follow(self, endpoint: RemoteEndpoint, job: OpenJob, request: bytes) -> None:
        """Start it, and return when it is over; its reports are in out/ then."""
        key, poll, began = job.job.key, self.settings.poll_seconds, clock()
        status = endpoint.start(key, request)
        while True:
            self._said_usd = status.usd
            if status.state == "queued" and clock() - began > self.settings.ready_seconds:
                raise NotReady(f"no machine took the trial within ready_seconds = {self.settings.ready_seconds:g}")
            if status.state != "queued":
                self._runs_since = self._runs_since or clock()
                self._read_progress(endpoint, key, status, 0 if status.is_over else poll)
            if status.is_over:
                break
            if self._runs_since and self._check_time(status, clock() - self._runs_since):
                if self.early.is_carried_out:
                    return
                if self._over is None:
                    self._over = clock()
                    endpoint.stop(key)
            looked = clock()
            if status.state == "queued":
                interrupt.wait(poll)
            interrupt.check()
            status = endpoint.status(key)
            interrupt.wait(max(0.0, min(poll, 0.05) - (clock() - looked)))
        self._conclude(endpoint, key, status)

    def _check_time(self, status: Status, since: float) -> bool:
        """Whether it is to end now: stopped early, cut short, or beyond its time. Raises NotTaken if it does not end.

        Args:
            since: Seconds since it was first seen to run, by the engine's clock.
        """
        environment = self.environment
        if self._over is not None:
            if clock() - self._over > environment.grace_seconds + SLACK_SECONDS:
                raise NotTaken(f"did not stop within {environment.grace_seconds:g} s of being asked to")
            return True
        if self.early.ask(self.progress.curve):
            return True
        if self.cut_seconds is not None and status.seconds >= self.cut_seconds:
            return True
        most = self.startup_seconds + environment.budget_seconds + environment.grace_seconds
        return since > most + SLACK_SECONDS + 2 * self.settings.poll_seconds

    def _read_progress(self, endpoint: RemoteEndpoint, key: str, status: Status, wait: float) -> None:
        """Append new reports to out/progress.jsonl, and read them; all there are when it is over."""
        began, path = clock(), self.place.progress
        while True:
            new = endpoint.progress(key, path.stat().st_size if path.exists() else 0, wait)
            with path.open("ab") as file:
                file.write(new)
            self.progress.read()
            if not status.is_over or not new:
                break
        if self.progress.ready and self.startup is None and self._runs_since:
            self.startup = max(clock() - self._runs_since, 0.0)
        self.seconds = status.seconds
        budget = self.environment.budget_seconds
        over = status.seconds >= budget
        self.progress.passed(TWENTIETHS if over else int(status.seconds * TWENTIETHS / budget))
        if not status.is_over and len(new) < PROGRESS_BYTES:
            interrupt.wait(max(0.0, wait - (clock() - began)))

    def _conclude(self, endpoint: RemoteEndpoint, key: str, status: Status) -> None:
        """Note how it ended there. Raises CannotStart if its machine was at fault."""
        log = "\n".join(clean(endpoint.log(key).decode(errors="replace")))
        self._note(log + "\n" * bool(log))
        self.failure = self.progress.failure
        reason = f"said: {self.failure.reason}" if self.failure else None
        if status.state == "failed":
            said = " ".join(" ".join(clean(status.error)).split())[:500] or "failed, and gave no reason"
            if status.retry:
                raise CannotStart(f"the machine of {endpoint.address.shown} failed: {said}")
            reason = reason or said
        environment = self.environment
        most = environment.budget_seconds + environment.grace_seconds + SLACK_SECONDS
        most += 0 if self.progress.ready else self.startup_seconds
        if not reason and status.seconds > most:
            reason = f"trained {status.seconds:g} s, and its budget is {environment.budget_seconds:g} s"
        if reason:
            tail = "\n".join(log.splitlines()[-TAIL_LINES:])
            self.error = f"{reason}\n{tail}".rstrip()

    def _keep(self, endpoint: RemoteEndpoint, key: str) -> None:
        """Fetch what a finished training has left, and check it as a local program's."""
        if self.error or self.status == "cancelled":
            return
        out, limits = self.place.out, self.environment.limits
        files.fetch(endpoint, key, out, limits)
        if why := outputs.fault(out) or outputs.excess(out, limits):
            raise NotTaken(why)
        if outputs.checkpoint(out) is None:
            raise NotTaken("left no checkpoint in out/")

    def _request(self, command: list[str]) -> bytes:
        """What is sent: the configuration without this machine's paths, the program, and the times."""
        config = json.loads(self.place.config.read_text())
        settings, environment = self.settings, self.environment
        asked = {
            **{key: value for key, value in config.items() if key not in LOCAL},
            "protocol": PROTOCOL, "edit": self.proposal.edit, "command": command, "program": self._program(),
            "startup_seconds": environment.startup_seconds, "grace_seconds": environment.grace_seconds,
            "lease_seconds": settings.lease_seconds,
        }  # fmt: skip
        return json.dumps(asked, sort_keys=True, allow_nan=False).encode()

    def _program(self) -> Mapping[str, str]:
        """The files of the program with the edit applied, by name. Raises NotTaken if they cannot be sent."""
        found, size = {}, 0
        for path in sorted(self.place.workspace.rglob("*")):
            if not path.is_file() or path == self.place.config:
                continue
            name = path.relative_to(self.place.workspace).as_posix()
            size += path.stat().st_size
            if size > PROGRAM_BYTES:
                raise NotTaken(
                    f"the program has more than {PROGRAM_BYTES >> 20} MiB, which is not sent: leave data out"
                )
            try:
                found[name] = path.read_bytes().decode()
            except UnicodeDecodeError:
                raise NotTaken(f"{name} of the program is no UTF-8 text, which is not sent: leave it out") from None
        return found

    def _note(self, text: str) -> None:
        with self.place.log.open("a") as file:
            file.write(text)

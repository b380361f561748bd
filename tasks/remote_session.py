"""A training, and one on another machine: sent, followed, stopped at its end, fetched, and removed however it ends.

The endpoint keeps the budget, by its own clock; the engine checks it, asks for an early stop, and removes what goes on
beyond it. A trial of a process that died is adopted with its key, so nothing is started twice (tasks/remote/jobs.py).
"""

from __future__ import annotations

import errno
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from environments import Environment
from environments.judges import Misbehaved
from environments.limits import Limits
from environments.remote import RemoteSettings
from tasks.cancellers import ReasonToStop
from tasks.remote import jobs
from tasks.remote.endpoint import PROTOCOL, EndpointAway, EndpointFault, RemoteEndpoint, Status, TrialFault
from tasks.remote.jobs import RemoteJob
from tasks.sandbox import outputs
from tasks.sandbox.program import CannotStart
from tasks.sandbox.progress import Failure, Progress
from tasks.store.workspace import TrialDir
from tasks.system import interrupt
from tasks.system.redact import capped, clean, one_line
from tasks.trial import TWENTIETHS, EarlyStop, Proposal, ResourceSample

ISOLATION = "remote"
"""What a run records as its isolation: it ran on another machine."""
LOCAL = ("data", "out")
"""Keys of config.json that mean something on this machine only."""
SLACK_SECONDS = 10.0
"""Beyond all that a trial is given, before it counts as one that does not end."""
TAIL_LINES = 20
PROGRESS = outputs.PROGRESS.decode()


@dataclass(frozen=True)
class Cut:
    """Limits in seconds that replace the environment's own budget."""

    startup_seconds: float
    budget_seconds: float


@dataclass
class TrainingSession:
    """One run of a proposal, on this machine or another, and what is known of it."""

    environment: Environment
    place: TrialDir
    reason_to_stop: ReasonToStop | None
    """Asked at every twentieth of the budget; its first reason cancels the run."""
    cut: Cut | None
    """Where it ends without having been told; None: its whole budget."""
    due: EarlyStop | None = None
    seconds: float = 0.0
    startup: float | None = None
    peak_memory: int | None = None
    resources: tuple[ResourceSample, ...] = ()
    error: str | None = None
    failure: Failure | None = None
    """By its own report, if the engine did not have to stop it."""
    usd: float = 0.0
    """Cost of a rented machine, with that of tries that failed on theirs."""

    def __post_init__(self) -> None:
        self.progress = Progress(self.place.progress, self.environment.metric, self.environment.budget_steps)
        self._asked = 0

    @property
    def times(self) -> Cut:
        return self.cut or Cut(self.environment.startup_seconds, self.environment.budget_seconds)

    def passed(self, seconds: float) -> None:
        """Take in that it has trained for so long."""
        self.seconds, budget = seconds, self.times.budget_seconds
        self.progress.passed(TWENTIETHS if seconds >= budget else int(seconds * TWENTIETHS / budget))

    def is_to_stop(self) -> bool:
        """Whether to end it now; asked at every twentieth but the last, where nothing is left to save."""
        curve = self.progress.curve
        lengths = range(self._asked + 1, min(len(curve), TWENTIETHS - 1) + 1)
        self._asked = len(curve)
        for length in lengths:
            so_far = curve[:length]
            if self.due or self.reason_to_stop is None or all(value is None for value in so_far):
                continue
            if reason := self.reason_to_stop(so_far):
                self.due = EarlyStop(length / TWENTIETHS, reason)
        return self.due is not None

    @property
    def status(self) -> Literal["finished", "cancelled", "crash"]:
        if self.due:
            return "cancelled"
        return "crash" if self.error else "finished"


@dataclass(kw_only=True)
class RemoteSession(TrainingSession):
    """One on another machine."""

    proposal: Proposal

    level: ClassVar[str] = ISOLATION
    out: ClassVar[str] = "{out}"
    """Stands in its command for its output folder, whose name only the other machine knows."""

    @property
    def settings(self) -> RemoteSettings:
        assert self.environment.remote is not None, "a local environment has a local session"
        return self.environment.remote

    @property
    def _longest(self) -> float:
        """Seconds from its start there to its end at the latest."""
        return self.times.startup_seconds + self.environment.budget_seconds + self.environment.grace_seconds

    def run(self, command: list[str], marker: str) -> None:
        """Train once. Raises CannotStart if the other machine, or the way to it, is at fault."""
        settings = self.settings
        longest = settings.ready_seconds + self._longest + settings.away_seconds
        try:
            request = self._request(command)
            with jobs.begin(
                f"{marker}/{self.place.path.name}", self.environment.trainer, settings, longest,
                self.place.path / jobs.COSTS, adopt=self.cut is None, gpus=self.environment.rented_gpus,
            ) as job:  # fmt: skip
                self._train(job, request)
        except (TrialFault, Misbehaved) as wrong:
            self.error = str(wrong)
        except EndpointFault as fault:
            raise CannotStart(str(fault)) from fault

    def _train(self, job: RemoteJob, request: bytes) -> None:
        """Have it trained, fetch what it has left, and remove it there whatever has happened."""
        settings, is_lost = self.settings, False
        try:
            address = job.place.reach(job.key, job.token, job.until - job.started + settings.lease_seconds)
            with RemoteEndpoint(address, settings.away_seconds, settings.answer_seconds) as endpoint:
                if status := self._follow(endpoint, job.key, request):
                    self._conclude(endpoint, job.key, status)
                if self.status == "finished":
                    fetch(endpoint, job.key, self.place.out, self.environment.limits)
                    if not outputs.newest(self.place.out):
                        raise TrialFault("left no checkpoint in out/")
        except EndpointAway:
            is_lost = True  # it may run on there: the next try adopts it, or a sweep removes it
            raise
        finally:
            if not is_lost:
                if why := job.end():
                    self._note(f"nightshift: {why}; it is removed later\n")
                self.usd, _ = jobs.paid(self.place.path / jobs.COSTS)

    def _follow(self, endpoint: RemoteEndpoint, key: str, request: bytes) -> Status | None:
        """Start it, and return its state when it is over, or None once it is to end early; its reports are in out/."""
        began, running_since, is_stopped = time.monotonic(), None, False
        status = endpoint.start(key, request)
        while not status.is_over:
            if status.state == "running":
                running_since = running_since or time.monotonic()
                self._read_progress(endpoint, key, status, running_since)
                if not is_stopped and self.is_to_stop():
                    return None
                if time.monotonic() - running_since > self._longest + 2 * SLACK_SECONDS:
                    raise TrialFault(f"did not end within {self._longest:g} s")
                if not is_stopped and self.cut and status.seconds >= self.cut.budget_seconds:
                    is_stopped = True
                    endpoint.stop(key)
            elif time.monotonic() - began > self.settings.ready_seconds:
                raise EndpointFault(f"no machine took the trial within ready_seconds = {self.settings.ready_seconds:g}")
            interrupt.wait(self.settings.poll_seconds)
            status = endpoint.status(key)
        while self._read_progress(endpoint, key, status, running_since):
            pass
        return status

    def _read_progress(self, endpoint: RemoteEndpoint, key: str, status: Status, running_since: float | None) -> bool:
        """Append new reports to out/progress.jsonl, and read them; whether there were any."""
        path = self.place.progress
        new = endpoint.progress(key, path.stat().st_size if path.exists() else 0)
        with path.open("ab") as file:
            file.write(new)
            if file.tell() > self.environment.limits.file_gb * 2**30:  # an endpoint may repeat itself for ever
                raise TrialFault("its reports are larger than limits.file_gb")
        self.progress.read_all()
        if self.progress.ready and self.startup is None and running_since:
            self.startup = time.monotonic() - running_since
        self.passed(status.seconds)
        return bool(new)

    def _conclude(self, endpoint: RemoteEndpoint, key: str, status: Status) -> None:
        """Note how it ended there. Raises CannotStart if its machine was at fault."""
        log = "\n".join(clean(endpoint.log(key).decode(errors="replace")))
        self._note(log + "\n" * bool(log))
        self.failure = self.progress.failure
        longest = self._longest - (self.times.startup_seconds if self.progress.ready else 0.0) + SLACK_SECONDS
        reason = ""
        if status.state == "failed":
            reason = one_line(status.error, 500) or "failed, and gave no reason"
            if status.retry:
                raise CannotStart(f"the machine of {endpoint.url} failed: {reason}")
        elif status.seconds > longest:
            reason = f"trained {status.seconds:g} s, and its budget is {self.environment.budget_seconds:g} s"
        if self.failure:
            reason = f"said: {self.failure.reason}"
        if reason:
            tail = "\n".join(log.splitlines()[-TAIL_LINES:])
            self.error = f"{reason}\n{tail}".rstrip()

    def _request(self, command: list[str]) -> bytes:
        """What is sent: the configuration without this machine's paths, the program, and the times."""
        config = json.loads(self.place.config.read_text())
        environment = self.environment
        request = {
            **{key: value for key, value in config.items() if key not in LOCAL},
            "protocol": PROTOCOL, "edit": self.proposal.edit, "command": command, "program": self._program(),
            "startup_seconds": environment.startup_seconds, "grace_seconds": environment.grace_seconds,
            "lease_seconds": self.settings.lease_seconds,
        }  # fmt: skip
        return json.dumps(request, sort_keys=True, allow_nan=False).encode()

    def _program(self) -> Mapping[str, str]:
        """The files of the program with the edit applied, by name. Raises TrialFault if they cannot be sent."""
        program = {}
        for path in sorted(self.place.workspace.rglob("*")):
            if not path.is_file() or path == self.place.config:
                continue
            name = path.relative_to(self.place.workspace).as_posix()
            try:
                program[name] = path.read_bytes().decode()
            except UnicodeDecodeError:
                raise TrialFault(f"{name} of the program is no UTF-8 text, which is not sent: leave it out") from None
        return program

    def _note(self, text: str) -> None:
        with self.place.log.open("a") as file:
            file.write(text)


def fetch(endpoint: RemoteEndpoint, key: str, out: Path, limits: Limits) -> None:
    """Bring every file of a trial into `out`, under the limits of a local program's.

    The endpoint is trusted no more than a program is: nothing outside is written, nothing is overwritten, and no more
    is fetched than was listed. Raises TrialFault, EndpointFault; OSError: a full disk.
    """
    files = [file for file in endpoint.files(key) if file.path != PROGRESS]
    size = sum(file.bytes for file in files)
    largest = max((file.bytes for file in files), default=0)
    if len(files) > limits.out_files or size > limits.out_gb * 2**30 or largest > limits.file_gb * 2**30:
        most = f"{limits.out_files:,} files, {limits.out_gb:g} GiB, and {limits.file_gb:g} GiB a file"
        raise TrialFault(f"left more in out/ than the [limits] of {most} allow")
    for file in files:
        target, shown = out / file.path, capped(repr(file.path), 100)
        if not target.resolve().is_relative_to(out.resolve()):
            raise TrialFault(f"left {shown} in out/, which leads out of it")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            opened = target.open("x+b")
        except OSError as fault:  # it is there already, is a file and a folder, or has too long a name
            if fault.errno == errno.ENOSPC:
                raise
            raise TrialFault(f"left {shown} in out/, which cannot be written: {fault.strerror}") from fault
        with opened:
            endpoint.download(key, file, opened)
    if reason := outputs.fault(out):
        raise TrialFault(reason)

"""Jobs: what was started on other machines, each in a file that is there before it is started.

    runs/.remote/KEY.json

The file names the trainer, its settings and the key, which is all that a teardown needs; logins are in blocks. The
process that follows a job holds a lock on its file. So a file that nobody locks belongs to a process that has died:
the same run adopts the job, and `sweep` removes the others. A file goes when the teardown is confirmed, and never
before. Where an endpoint is gone for good, KEY.given-up stands beside it after GIVE_UP_DAYS and a last try: campaigns
no longer wait for it then, while `nightshift doctor` goes on to name it and `prune` and `down` to try.
"""

from __future__ import annotations

import fcntl
import json
import logging
import math
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from environments.plugins import Refused
from environments.remote import RemoteSettings
from tasks.remote import places
from tasks.remote.endpoint import EndpointAway, EndpointFault, Gone, TrialRefused
from tasks.system.clock import clock
from tasks.system.files import append_line
from tasks.system.home import home

FOLDER = ".remote"
COSTS = "remote.jsonl"
"""In a run's directory: the jobs that it has had, a line each, with their cost."""
PATIENCE_SECONDS = 15.0
"""How long a teardown waits for an endpoint that does not answer, before it is left to the next sweep."""
GIVE_UP_DAYS = 3
"""So long after its time a job that still cannot be removed is no longer tried at every start of a campaign."""
log = logging.getLogger(__name__)
LEAST_SECONDS = 0.5
DAY = 86_400.0
WHOLE = re.compile(r"[^A-Za-z0-9._-]+")


class RemoteJob(BaseModel):
    """One started trial."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    """Names it at the endpoint; the idempotency key of its start."""
    run: str
    """The run that it is for."""
    request: str
    """Digest of what was asked for."""
    trainer: str
    settings: dict[str, Any]
    """The section of the environment."""
    started: float
    """Unix time."""
    until: float
    """Unix time after which its result is of no use to anybody."""
    costs: Path
    """The file to which its cost is added, relative to the home, which may be moved; or absolute."""
    gpus: int = 0

    @property
    def seconds(self) -> float:
        """Longest time that it may take."""
        return self.until - self.started

    @property
    def lease_seconds(self) -> float:
        return float(self.settings["lease_seconds"])

    @property
    def usd_per_second(self) -> float:
        return float(self.settings["usd_per_second"])

    @property
    def place(self) -> places.RemotePlace:
        return places.load(self.trainer, self.settings)


class OpenJob:
    """A job with its file, locked. As a `with` block it frees the lock; the file stays until `end`."""

    def __init__(self, job: RemoteJob, path: Path, descriptor: int, adopted: bool) -> None:
        self.job, self.path, self.adopted = job, path, adopted
        self._descriptor = descriptor

    def __enter__(self) -> OpenJob:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def given_up(self) -> Path:
        """The mark that campaigns no longer try to remove it."""
        return self.path.with_suffix(".given-up")

    def give_up(self) -> str:
        """Mark it, if it is time and it was not; what to say then, or nothing."""
        if time.time() < self.job.until + GIVE_UP_DAYS * DAY or self.given_up.exists():
            return ""
        self.given_up.touch()
        return (
            f"; after {GIVE_UP_DAYS} days campaigns no longer try: it may still cost money, so see what runs there, "
            f"and remove {self.path} or run `nightshift prune` once it answers"
        )

    def close(self) -> None:
        """Free the lock: from now on this process does not follow it."""
        os.close(self._descriptor)

    def end(self, patience: float = PATIENCE_SECONDS, usd: float | None = None) -> str | None:
        """Remove what was started, note its cost, and remove the file; why that failed, or None.

        It never raises for what is wrong there: the file stays, its cost so far counts, and a later sweep tries again.

        Args:
            usd: Its cost, where the endpoint says it.
        """
        job = self.job
        try:
            job.place.tear_down(job.key, patience)
        except (EndpointAway, EndpointFault, TrialRefused, Gone, Refused, OSError) as fault:
            self._note_cost(usd, removed=False)
            return f"{job.key} at {job.trainer} is not removed: {fault}"
        self._note_cost(usd, removed=True)
        self.path.unlink(missing_ok=True)
        self.given_up.unlink(missing_ok=True)
        return None

    def _note_cost(self, usd: float | None, removed: bool) -> None:
        job = self.job
        ended = min(time.time(), job.until + job.lease_seconds)  # nobody has followed it for longer than it may run
        spent = job.usd_per_second * max(ended - job.started, 0.0) if usd is None else usd
        facts = {
            "key": job.key, "run": job.run, "trainer": job.trainer, "started": job.started, "ended": ended,
            "usd": spent, "gpus": job.gpus, "removed": removed,
        }  # fmt: skip
        costs = home() / job.costs
        if costs.parent.is_dir():
            append_line(costs, json.dumps(facts))


class Paid(NamedTuple):
    """What the jobs of a run have cost so far."""

    usd: float
    seconds: float
    """Of the other machine."""
    gpus: int
    """The most that a job had."""
    run: str
    """As in `RemoteJob`; empty without a job."""


def paid(path: Path) -> Paid:
    """What a run's jobs have cost so far, by its file of costs."""
    found: dict[str, dict[str, Any]] = {}
    for line in path.read_text().splitlines() if path.is_file() else ():
        with suppress(ValueError):  # a line that a full disk cut short
            fact = json.loads(line)
            if not found.get(fact["key"], {"removed": False}).get("removed", True):
                found[fact["key"]] = fact  # the first teardown that succeeded counts, which may have been repeated
    jobs = found.values()
    return Paid(
        round(math.fsum(job["usd"] for job in jobs), 6),
        math.fsum(job["ended"] - job["started"] for job in jobs),
        max((job.get("gpus", 0) for job in jobs), default=0),
        next((job.get("run", "") for job in jobs), ""),
    )


def begin(
    run: str, trainer: str, settings: RemoteSettings, request: str, seconds: float, costs: Path, adopt: bool,
    gpus: int = 0,
) -> OpenJob:  # fmt: skip
    """The job of a run: one that a dead process has left, or a new one, of which nothing is started yet.

    Args:
        request: Digest of what is asked for; a job with another one is removed.
        seconds: Longest time that it may take.
        costs: File to which its cost is added.
        adopt: Whether a job that is there may be used.
    """
    stated = settings.model_dump(mode="json")  # as it is read again
    adopted: OpenJob | None = None
    for left in list(_left(lambda job: job.run == run)):
        job = left.job
        if adopt and adopted is None and (job.request, job.trainer, job.settings) == (request, trainer, stated):
            adopted = left
            continue
        with left:
            left.end()
    if adopted:
        return adopted
    now = time.time()
    key = f"{WHOLE.sub('-', run.replace('/', '.'))[:150]}.{secrets.token_hex(4)}"
    job = RemoteJob(
        key=key, run=run, request=request, trainer=trainer, settings=stated, started=now,
        until=now + seconds, costs=_below_home(costs.absolute()), gpus=gpus,
    )  # fmt: skip
    folder = home() / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    path, temporary = folder / f"{key}.json", folder / f".{key}"
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # before anybody can see it
        os.write(descriptor, job.model_dump_json(indent=2).encode() + b"\n")
        os.fsync(descriptor)
        temporary.rename(path)
    except BaseException:
        os.close(descriptor)
        temporary.unlink(missing_ok=True)
        raise
    return OpenJob(job, path, descriptor, adopted=False)


def _below_home(path: Path) -> Path:
    """A path relative to the home, if it lies there."""
    return path.relative_to(home()) if path.is_relative_to(home()) else path


def sweep(
    wanted: Callable[[RemoteJob], bool], patience: float = PATIENCE_SECONDS, given_up: bool = True
) -> tuple[str, ...]:
    """Remove the wanted jobs that no live process follows; a line for each, also where that failed.

    Args:
        patience: Seconds for endpoints that do not answer, all together.
        given_up: Whether to try those that were given up, too.
    """
    said, until = [], clock() + patience
    for left in _left(wanted):
        with left:
            if left.given_up.exists() and not given_up:
                continue
            if failed := left.end(max(until - clock(), LEAST_SECONDS)):
                failed += left.give_up()
            said.append(failed or f"removed {left.job.key} at {left.job.trainer}, which nobody followed")
    return tuple(said)


def unfollowed() -> tuple[RemoteJob, ...]:
    """The jobs that no live process follows."""
    found = []
    for left in _left(lambda job: True):
        with left:
            found.append(left.job)
    return tuple(found)


def is_over(job: RemoteJob) -> bool:
    """Whether its result is of no use any more."""
    return time.time() > job.until


def is_of(campaign_id: str) -> Callable[[RemoteJob], bool]:
    """Whether a job belongs to a campaign's runs."""
    return lambda job: campaign_id in job.run.split("/")


def _left(wanted: Callable[[RemoteJob], bool]) -> Iterator[OpenJob]:
    """The wanted jobs that no live process follows, each locked; who takes one closes it."""
    for path in sorted((home() / FOLDER).glob("*.json")):
        if left := _taken(path):
            if wanted(left.job):
                yield left
            else:
                left.close()


def _taken(path: Path) -> OpenJob | None:
    """The job in a file, locked; None if a process follows it, or it was removed meanwhile."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return OpenJob(RemoteJob.model_validate_json(path.read_bytes()), path, descriptor, adopted=True)
    except (BlockingIOError, FileNotFoundError):
        pass
    except ValidationError as wrong:
        log.warning("%s is no job of this version (%s): see what runs there, and remove the file", path, wrong)
    os.close(descriptor)
    return None

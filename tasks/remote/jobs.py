"""Jobs: what was started on other machines, each in a file that is there before it is started.

    runs/.remote/KEY.json, and KEY.lock

The file names the trainer, its settings and the key, which is all that a teardown needs; logins are in blocks. The
process that follows a job holds its lock. So a job that nobody locks belongs to a process that has died: the same run
adopts it, and `sweep` removes the others. A file goes when the teardown is confirmed, and never before.
"""

from __future__ import annotations

import json
import logging
import math
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, Timeout
from pydantic import BaseModel, Field, ValidationError

from environments.plugins import Refused
from environments.remote import RemoteSettings
from tasks.remote import places
from tasks.remote.endpoint import EndpointFault, TrialFault
from tasks.system.files import append_line, read_lines, write_atomic
from tasks.system.home import home

FOLDER = ".remote"
COSTS = "remote.jsonl"
"""In a run's directory: the jobs that it has had, a line each, with their cost."""
PATIENCE_SECONDS, LEAST_SECONDS = 15.0, 0.5
"""How long a teardown waits for an endpoint that does not answer, before it is left to the next sweep; and each of a
sweep's at least."""
log = logging.getLogger(__name__)


class RemoteJob(BaseModel, frozen=True):
    """One started trial. As a `with` block it frees its lock, which this process holds; the file stays until `end`."""

    key: str
    """Names it at the endpoint; the idempotency key of its start."""
    run: str
    trainer: str
    settings: dict[str, Any]
    """The section of the environment."""
    started: float
    until: float
    """Unix times, of its start, and after which its result is of no use to anybody."""
    costs: Path
    """The file to which its cost is added."""
    gpus: int = 0
    token: str = Field(default_factory=partial(secrets.token_hex, 32))
    """What a container that is deployed for it takes for a login."""

    @property
    def place(self) -> places.RemotePlace:
        return places.load(self.trainer, self.settings)

    @property
    def path(self) -> Path:
        return home() / FOLDER / f"{self.key}.json"

    @cached_property
    def lock(self) -> FileLock:
        return FileLock(self.path.with_suffix(".lock"), thread_local=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.lock.release()

    def end(self, patience: float = PATIENCE_SECONDS) -> str | None:
        """Remove what was started, note its cost, and remove the file.

        Returns why that failed, or None: the file stays then, its cost so far counts, and a later sweep tries again.
        """
        fault = None
        try:
            self.place.tear_down(self.key, patience)
        except (EndpointFault, TrialFault, Refused, OSError) as error:
            fault = error
        # Nobody has followed it for longer than it may run.
        ended = min(time.time(), self.until + float(self.settings["lease_seconds"]))
        usd = float(self.settings["usd_per_second"]) * max(ended - self.started, 0.0)
        facts = self.model_dump(include={"key", "run", "trainer", "started", "gpus"})
        if self.costs.parent.is_dir():
            append_line(self.costs, json.dumps({**facts, "ended": ended, "usd": usd, "removed": fault is None}))
        if fault:
            return f"{self.key} at {self.trainer} is not removed: {fault}"
        Path(self.lock.lock_file).unlink(missing_ok=True)  # before the job: a kill in between leaves it to a sweep
        self.path.unlink(missing_ok=True)
        return None


def paid(path: Path) -> tuple[float, float]:
    """The USD and the GPU seconds of a run's jobs so far, by its file of costs."""
    jobs: dict[str, dict[str, Any]] = {}
    for cost in read_lines(path):
        if not jobs.get(cost["key"], {}).get("removed"):  # a kill may have had a teardown repeated
            jobs[cost["key"]] = cost
    usd = round(math.fsum(job["usd"] for job in jobs.values()), 6)
    return usd, math.fsum(job["gpus"] * (job["ended"] - job["started"]) for job in jobs.values())


def begin(
    run: str, trainer: str, settings: RemoteSettings, seconds: float, costs: Path, adopt: bool, gpus: int = 0
) -> RemoteJob:
    """The job of a run, which may take so many seconds: with `adopt` one that a dead process has left, or a new one,
    of which nothing is started yet. Its cost is added to the file `costs`.
    """
    stated = settings.model_dump(mode="json")  # as it is read again
    adopted = None
    for left in unfollowed(lambda job: job.run == run):
        if adopt and adopted is None and left.settings == stated:
            adopted = left
            adopted.lock.acquire()  # once more, to hold it beyond this loop
        else:
            left.end()
    if adopted:
        return adopted
    key, now = f"{re.sub(r'[^A-Za-z0-9._-]+', '.', run)[:150]}.{secrets.token_hex(4)}", time.time()
    job = RemoteJob(
        key=key, run=run, trainer=trainer, settings=stated, started=now, until=now + seconds,
        costs=costs.absolute(), gpus=gpus,
    )  # fmt: skip
    job.path.parent.mkdir(mode=0o700, exist_ok=True)
    job.lock.acquire()  # before anybody can see the job
    write_atomic(job.path, job.model_dump_json(indent=2) + "\n", lasting=True, mode=0o600)
    return job


def sweep(wanted: Callable[[RemoteJob], bool], patience: float = PATIENCE_SECONDS) -> tuple[str, ...]:
    """Remove the wanted jobs that no live process follows; a line for each, also where that failed.

    Args:
        patience: Seconds for endpoints that do not answer, all together.
    """
    lines, until = [], time.monotonic() + patience
    for left in unfollowed(wanted):
        failed = left.end(max(until - time.monotonic(), LEAST_SECONDS))
        lines.append(failed or f"removed {left.key} at {left.trainer}, which nobody followed")
    return tuple(lines)


def is_over(job: RemoteJob) -> bool:
    """Whether its result is of no use any more."""
    return time.time() > job.until


def is_of(campaign_id: str) -> Callable[[RemoteJob], bool]:
    """Whether a job belongs to a campaign's runs."""
    return lambda job: campaign_id in job.run.split("/")


def unfollowed(wanted: Callable[[RemoteJob], bool] = lambda job: True) -> Iterator[RemoteJob]:
    """The wanted jobs that no live process follows, each locked until the next one is asked for."""
    for path in sorted((home() / FOLDER).glob("*.json")):
        if not (job := _read(path)) or not wanted(job):
            continue
        with suppress(Timeout), job.lock.acquire(timeout=0):
            if path.exists():
                yield job
            else:  # it was removed meanwhile, and the lock came back
                Path(job.lock.lock_file).unlink(missing_ok=True)


def _read(path: Path) -> RemoteJob | None:
    with suppress(FileNotFoundError):
        try:
            return RemoteJob.model_validate_json(path.read_bytes())
        except ValidationError as wrong:
            log.warning("%s is no job of this version (%s): see what runs there, and remove the file", path, wrong)
    return None

"""What a campaign asks of another machine: one run of a trial, as a file in that run's directory on shared storage.

Results come back as the tasks' results in the campaign's directory. Seeds and keys are read from the ledger there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from filelock import FileLock, Timeout
from pydantic import TypeAdapter

from tasks.bench import RunPlan
from tasks.checkpoint import has_result
from tasks.system import interrupt
from tasks.system.clock import clock
from tasks.system.files import write_atomic
from tasks.trial import Run

VISIBLE_SECONDS = 90.0
"""How long a file may take to become visible on another machine: NFS caches directories for up to 60 s."""
POLL_SECONDS = 0.5

T = TypeVar("T")


@dataclass(frozen=True)
class LaunchRequest:
    """One run to be made on another machine: the arguments of its tasks as plain values."""

    plan: RunPlan
    seen: int
    """Number of trials of the history that it may know."""
    history: str
    """Digest of these trials, to be checked there."""
    trained: Run | None = None
    """The run that is to be controlled; None: a run is to be trained and judged."""
    transfer: str = ""
    """Another environment than the campaign's own, one of those frozen with its certificates."""
    budget: float = 1.0
    """Training budget, in that of the environment."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks whose stored results complete it."""
        return ("control",) if self.trained else ("train", "evaluate")

    @property
    def name(self) -> str:
        """The run within the campaign: trial, attempt, part and step, such as `0007-1-run-2`."""
        key, step = self.plan.key, "control" if self.trained else ""
        return "-".join(filter(None, (f"{key.number:04d}", str(key.attempt), key.part, step)))

    @property
    def file(self) -> str:
        """Its file, relative to the campaign's directory."""
        return f"{self.plan.folder}/launch-{self.tasks[-1]}.json"

    def is_done(self, results: Path) -> bool:
        return all(has_result(results, self.plan.key, task) for task in self.tasks)

    def write(self, campaign: Path) -> None:
        write_atomic(campaign / self.file, REQUEST.dump_json(self, indent=2).decode() + "\n")


REQUEST = TypeAdapter(LaunchRequest)


def once_visible(look: Callable[[], T | None]) -> T | None:
    """What another machine has written, once it can be seen here; nothing if it cannot within VISIBLE_SECONDS."""
    deadline = clock() + VISIBLE_SECONDS
    while not (found := look()) and clock() < deadline:
        interrupt.wait(POLL_SECONDS)
    return found


def alone(run: Path) -> AbstractContextManager[object]:
    """Hold the lock of a run's directory while the block runs, once no other launch is at it.

    A launch taken for dead may live. The file system carries the lock to other machines: docs/other-machines.md.
    """
    while True:
        with suppress(Timeout):
            return FileLock(run / "launch.lock").acquire(timeout=0)
        interrupt.wait(POLL_SECONDS)

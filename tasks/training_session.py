"""What is known of a training while it runs, on this machine (tasks/train.py) or another (tasks/remote_session.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from environments import Environment
from tasks.cancellers import EarlyStopCheck
from tasks.sandbox.progress import Failure, Progress
from tasks.store.workspace import TrialDir
from tasks.trial import ResourceSample


@dataclass(kw_only=True)
class TrainingSession:
    """One run of a proposal, on this machine or another, and what is known of it."""

    environment: Environment
    place: TrialDir
    early: EarlyStopCheck
    seconds: float = 0.0
    startup: float | None = None
    peak_memory: int | None = None
    gpu_memory: tuple[int, ...] | None = None
    resources: tuple[ResourceSample, ...] = ()
    error: str | None = None
    failure: Failure | None = None
    """By its own report, if the engine did not have to stop it."""
    usd: float = 0.0
    """Cost of a rented machine, with that of tries that failed on theirs."""

    def __post_init__(self) -> None:
        self.progress = Progress(self.place.progress, self.environment.metric, self.environment.budget_steps)

    @property
    def status(self) -> Literal["finished", "cancelled", "crash"]:
        if self.early.due:
            return "cancelled"
        return "crash" if self.error else "finished"

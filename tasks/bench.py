"""The bench: what all runs of a campaign share, and the plan of one run. Arguments of train, evaluate and control.

A bench is no dataclass on purpose: Prefect would look through all of it for results of other tasks.
"""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from environments import Environment
from environments.judges import ComparisonBlock, Use
from tasks.machine.slots import Slot, Slots
from tasks.sandbox.isolation import Isolation
from tasks.store.ledger import Ledger, frozen_elsewhere
from tasks.store.workspace import TrialDir
from tasks.system import interrupt
from tasks.system.spans import covered
from tasks.task_key import TaskKey
from tasks.trial import Proposal, Run

POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Units:
    """What a run is judged on, where that is not its own draw."""

    of: TaskKey
    """The run or block whose units they are."""
    block: ComparisonBlock | None = None
    """The block of a comparison, whose units a finite pool gives to no other block."""


@dataclass(frozen=True)
class RunPlan:
    """One training and its judgement. Plain values, so that it can be sent to another machine."""

    key: TaskKey
    proposal: Proposal
    folder: str
    """Its directory, relative to the campaign's."""
    use: Use = "search"
    stops_early: bool = False
    """Whether it may be stopped early."""
    units: Units | None = None
    """What it is judged on; None: its own draw."""
    echo: Units | None = None
    """What another run was judged on, where this one is judged too: equal results show that it ignores its seed."""
    control_of: Run | None = None
    """The run that is only controlled: what its program scores without this training (tasks/control.py)."""


class Bench:
    """Where and how the runs of a campaign are made."""

    def __init__(
        self, ledger: Ledger, isolation: Isolation, slots: Slots, parallel: int,
        transfer: Environment | None = None, budget: float = 1.0, usd_per_hour: float = 0.0, launched: bool = False,
    ) -> None:  # fmt: skip
        """
        Args:
            transfer: Another environment than the campaign's own, frozen with its certificates.
            budget: Training budget of each run, in that of the environment.
            usd_per_hour: Price of an hour of a slot.
            launched: Whether this is in a run of the deployment `trial`, and not in the campaign's process.
        """
        self.ledger, self.isolation, self.slots = ledger, isolation, slots
        self.environment = (transfer or ledger.environment).at(budget)
        self.program = (frozen_elsewhere(ledger.path, transfer.name) if transfer else ledger.path) / "program"
        self.budget, self.launched = budget, launched
        self._price = usd_per_hour
        self._turns = threading.Semaphore(parallel)
        self._spans: list[tuple[int, float, float]] = []

    def dir(self, plan: RunPlan) -> TrialDir:
        return TrialDir(self.ledger.path / plan.folder)

    @contextmanager
    def slot(self, key: TaskKey) -> Iterator[Slot]:
        """Hold a slot of this machine while the block runs. Raises KeyboardInterrupt where the campaign is to end."""
        ledger = self.ledger
        interrupt.check()
        while not self._turns.acquire(timeout=POLL_SECONDS):
            interrupt.check()
        try:
            with self.slots.hold(lambda words: ledger.event("waiting", number=key.number, who=words)) as slot:
                where = {"number": key.number, "part": key.part, "slot": slot.name}
                where |= {"on": platform.node()} if self.launched else {}
                ledger.event("slot", **where, **({"usd_per_hour": self._price} if self._price else {}))
                try:
                    with self.timed(key):
                        yield slot
                finally:
                    ledger.event("slot free", **where, **slot.use)
        finally:
            self._turns.release()

    @contextmanager
    def timed(self, key: TaskKey) -> Iterator[None]:
        """Count the block as time of the trial."""
        since = time.monotonic()
        try:
            yield
        finally:
            self._spans.append((key.number, since, time.monotonic()))

    def busy(self, number: int) -> float:
        """Seconds for which runs of a trial held a slot, or were launched; those at the same time count once."""
        return covered((begin, end) for one, begin, end in self._spans if one == number)

"""The month's account of runs outside of campaigns: `try`, `duel` and `calibrate`.

Nothing is promised for them: before each run the month must have enough left, and afterwards what it cost is noted. A
run that is killed is not noted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from environments import Environment
from environments.plugins import Refused
from flows.spec.campaign_spec import besides_training
from tasks.spending import month
from tasks.spending.prices import prices
from tasks.spending.spent import HourlyRate
from tasks.system.clock import clock
from tasks.trial import Run


@dataclass(frozen=True)
class OutsideAccount:
    """What the runs of one command cost."""

    home: Path
    what: str
    """The verb, such as `duel`."""
    key: str
    """Names the command among all."""

    def check(self, environment: Environment) -> None:
        """Refuse a run that the month does not pay for."""
        stated = prices(self.home)
        if stated.usd_per_month is None:
            return
        found = month.month(self.home)
        rented = environment.remote.usd_per_second if environment.remote else 0.0
        seconds = environment.budget_seconds + besides_training(environment, ())
        need = HourlyRate(stated.of("here")).of(seconds).usd + rented * seconds
        if found.left is not None and need > found.left:
            raise Refused(month.short(found, f"a run may cost {need:.2f} USD", self.home))

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Note the cost of the slot that is held within the block."""
        rate, began = HourlyRate(prices(self.home).of("here")), clock()
        try:
            yield
        finally:
            month.note(self.home, self.what, self.key, rate.of(clock() - began).usd)

    def rented(self, run: Run) -> None:
        """Note what a run paid for a rented machine."""
        month.note(self.home, self.what, self.key, run.usd or 0.0, unknown=run.usd is None)

"""What a campaign spent: on slots by its events, on rented machines by the files of their runs, on language models by
its proposals.

    slot, slot free   a slot was held, at which price of an hour; its name has its GPUs
    bought            model calls that led to no proposal

A hold that a kill left open ends with the process that held it; on another machine when that one gives it back, or is
taken for lost.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from tasks.store import campaign_lock
from tasks.store.ledger import Ledger
from tasks.trial import CONTROLS, NOTHING_BOUGHT, History, Usage

HOUR = 3600.0
BOUGHT = "bought"


@dataclass(frozen=True)
class MachineCost:
    """USD and GPU hours of machines; for an hour of one, its price and its GPUs."""

    usd: float = 0.0
    gpu_hours: float = 0.0

    def __add__(self, other: MachineCost) -> MachineCost:
        return MachineCost(self.usd + other.usd, self.gpu_hours + other.gpu_hours)

    def of(self, seconds: float) -> MachineCost:
        """What so many seconds cost, where this is the cost of an hour."""
        hours = max(seconds, 0.0) / HOUR
        return MachineCost(self.usd * hours, self.gpu_hours * hours)

    def beyond(self, other: MachineCost) -> MachineCost:
        """What is left of it after `other`; never below 0."""
        return MachineCost(max(self.usd - other.usd, 0.0), max(self.gpu_hours - other.gpu_hours, 0.0))


FREE = MachineCost()


@dataclass(frozen=True)
class Spent:
    """What a campaign spent until one moment."""

    models: Usage = NOTHING_BOUGHT
    lost: Usage = NOTHING_BOUGHT
    """The part of `models` that led to no proposal."""
    machines: MachineCost = FREE
    gpus: int = 0
    """Of the largest slot that was held."""
    rented_hour: MachineCost = FREE
    """An hour of the dearest machine that a trainer rented."""
    slots: Mapping[int, MachineCost] = field(default_factory=dict)
    """What the slots of each trial cost in its current attempt."""

    @property
    def usd(self) -> float | None:
        """Everything together in USD; None if the price of a language model is unknown."""
        return None if self.models.usd is None else self.models.usd + self.machines.usd

    @property
    def anything(self) -> bool:
        """Whether something was bought at all, at whatever price."""
        return bool(self.models.calls or self.machines.usd)


NOTHING_SPENT = Spent()


def spent(ledger: Ledger, history: History, now: float | None = None) -> Spent:
    """What a campaign spent.

    Args:
        now: Unix time until which open holds count; None: until the end of the campaign's last process.
    """
    events = _events(ledger, now)
    models = sum((proposal.usage for proposal in ledger.proposals(history)), events.bought)
    rented, dearest = _rented(ledger)
    return Spent(models, events.bought, events.total + rented, events.gpus, dearest, events.slots)


def slots_usd(ledger: Ledger, number: int) -> float:
    """What the slots of a trial have cost in its current attempt, rented machines aside."""
    return _events(ledger, time.time()).slots.get(number, FREE).usd


def note_bought(ledger: Ledger, usage: Usage) -> None:
    """Note model calls that led to no proposal."""
    if usage.calls:
        ledger.event(BOUGHT, usage=asdict(usage))


class _Hold(NamedTuple):
    number: int
    since: float
    hour: MachineCost


class _Events:
    """The fold of a campaign's events, in their order."""

    def __init__(self) -> None:
        self.bought = NOTHING_BOUGHT
        self.total = FREE
        self.gpus = 0
        self.slots: dict[int, MachineCost] = {}
        self._price = 0.0  # version 0.6 noted it in an event of its own
        self._holds: dict[tuple[str, str], _Hold] = {}  # by machine (empty: the campaign's) and slot
        self._life = 0.0, 0.0  # start, and seconds of all lives before

    def add(self, event: Mapping[str, Any]) -> None:
        where, now = (event.get("on", ""), event.get("slot", "")), event["time"]
        match event["event"]:
            case "life":
                before = float(event.get("spent_before", 0.0))
                self.count([where for where in self._holds if not where[0]], self.end_of_life(before))
                self._life = now, before
            case "slot":
                self.count([where], now)  # should its machine have been lost, and be back
                kind, *indices = event["slot"].split("-")  # such as gpu-0-1
                gpus = len(indices) if kind == "gpu" else 0
                self.gpus = max(self.gpus, gpus)
                hour = MachineCost(event.get("usd_per_hour", self._price), gpus)
                self._holds[where] = _Hold(event["number"], now, hour)
            case "slot free":
                self.count([where], now)
            case "launch" if event["what"] in ("died", "called back"):
                lost = (where for where, hold in self._holds.items() if where[0] and hold.number == event["trial"])
                self.count([*lost], now)
            case "rerun":
                self.slots.pop(event["trial"], None)
            case "price":
                self._price = float(event["usd_per_hour"])
            case "bought":
                self.bought += Usage(**event["usage"])

    def end_of_life(self, seconds: float) -> float:
        """Unix time until which the last life ran, given the seconds of all lives."""
        return self._life[0] + seconds - self._life[1]

    def count(self, slots: Iterable[tuple[str, str]], until: float) -> None:
        """Count what is held of these slots until then, and hold it no longer."""
        for hold in (self._holds.pop(where) for where in slots if where in self._holds):
            cost = hold.hour.of(until - hold.since)
            self.total += cost
            self.slots[hold.number] = self.slots.get(hold.number, FREE) + cost

    def count_all(self, until: float) -> None:
        self.count([*self._holds], until)


def _events(ledger: Ledger, now: float | None) -> _Events:
    found = _Events()
    for event in ledger.events():
        found.add(event)
    found.count_all(found.end_of_life(campaign_lock.spent(ledger)) if now is None else now)
    return found


def _rented(ledger: Ledger) -> tuple[MachineCost, MachineCost]:
    """What rented machines cost so far, and an hour of the dearest one, by the files of costs beside their runs."""
    from tasks.remote import jobs  # whoever reads what was spent rents nothing

    total = dearest = FREE
    of_controls = (f"trials/*/{control}" for control in CONTROLS)
    for folder in (path for runs in ("trials/*", *of_controls, "certificates/*") for path in ledger.path.glob(runs)):
        paid = jobs.paid(folder / jobs.COSTS)
        if hours := paid.seconds / HOUR:
            total += MachineCost(paid.usd, paid.gpus * hours)
            dearest = MachineCost(max(dearest.usd, paid.usd / hours), max(dearest.gpu_hours, paid.gpus))
    return total, dearest

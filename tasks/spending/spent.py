"""What a campaign spent, derived from its events and its proposals.

    price      USD of a slot's hour from here on              slot, slot free   a slot was held; its name has its GPUs
    rented     a trainer paid for a machine of its own        bought            model calls that led to no proposal

A hold that a kill left open ends with the process that held it, or, on another machine, when that one gives it back.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from tasks.store import campaign_lock
from tasks.store.ledger import Ledger
from tasks.store.workspace import TrialDir
from tasks.task_key import TaskKey
from tasks.trial import CONTROLS, NOTHING_BOUGHT, History, Run, Usage

HOUR = 3600.0
PRICE, RENTED, BOUGHT = "price", "rented", "bought"


@dataclass(frozen=True)
class MachineCost:
    """USD and GPU hours of machines."""

    usd: float = 0.0
    gpu_hours: float = 0.0

    def __add__(self, other: MachineCost) -> MachineCost:
        return MachineCost(self.usd + other.usd, self.gpu_hours + other.gpu_hours)

    def beyond(self, other: MachineCost) -> MachineCost:
        """What is left of it after `other`; never below 0."""
        return MachineCost(max(self.usd - other.usd, 0.0), max(self.gpu_hours - other.gpu_hours, 0.0))


@dataclass(frozen=True)
class HourlyRate:
    """What an hour of a run's machine costs."""

    usd: float = 0.0
    gpus: int = 0

    def of(self, seconds: float) -> MachineCost:
        hours = max(seconds, 0.0) / HOUR
        return MachineCost(hours * self.usd, hours * self.gpus)


@dataclass(frozen=True)
class Spent:
    """What a campaign spent until one moment."""

    models: Usage = NOTHING_BOUGHT
    slots: MachineCost = MachineCost()
    rented: MachineCost = MachineCost()
    unpriced: str = ""
    """A rented machine without a known price, in words; empty if there is none."""
    slot_rate: HourlyRate = HourlyRate()
    """As of now: the stated price, and the GPUs of the largest slot that was held."""
    rented_rate: HourlyRate = HourlyRate()
    """The dearest machine that a trainer rented so far."""
    trials: Mapping[int, MachineCost] = field(default_factory=dict)
    """Machines by trial, in its current attempt."""

    @property
    def unknown(self) -> str:
        """What has no known price, in words; empty if all has."""
        return "; ".join(filter(None, ("a language model" if self.models.usd is None else "", self.unpriced)))

    @property
    def machines(self) -> MachineCost:
        return self.slots + self.rented

    @property
    def known_usd(self) -> float:
        """The sum of what has a known price."""
        return self.machines.usd + (self.models.usd or 0.0)

    @property
    def usd(self) -> float | None:
        """Everything together in USD; None if a price is unknown."""
        return None if self.unknown else self.known_usd

    @property
    def anything(self) -> bool:
        """Whether something was bought at all, at whatever price."""
        return bool(self.models.calls or self.unknown or self.machines.usd)


NOTHING_SPENT = Spent()


@dataclass(frozen=True)
class _Hold:
    number: int
    since: float
    rate: HourlyRate


class _Events:
    """The fold of a campaign's events, in their order."""

    def __init__(self) -> None:
        self.price = 0.0
        self.gpus = 0
        self.bought = NOTHING_BOUGHT
        self.slots = self.rented = MachineCost()
        self.unpriced = ""
        self.rented_rate = HourlyRate()
        self.by_slots: dict[int, MachineCost] = {}
        self.by_rented: dict[int, MachineCost] = {}
        self.open: dict[tuple[str, str], _Hold] = {}
        self._ended: dict[tuple[str, str], tuple[_Hold, float]] = {}  # on other machines, which may still be at it
        self._rented: dict[str, MachineCost] = {}
        self._life: tuple[float, float] | None = None  # start, and seconds of all lives before

    def add(self, event: Mapping[str, Any]) -> None:
        match event["event"]:
            case "life":
                before = float(event.get("spent_before", 0.0))
                if self._life:
                    self._close(dict(self.open), self._life[0] + before - self._life[1])
                self._life = event["time"], before
            case "slot":
                self._take(event)
            case "slot free":
                self._free(event)
            case "launch" if event["what"] in ("died", "called back"):
                lost = {where: hold for where, hold in self.open.items() if where[0] and hold.number == event["trial"]}
                self._close(lost, event["time"])
            case "rerun":
                self.by_slots.pop(event["trial"], None)
                self.by_rented.pop(event["trial"], None)
            case "price":
                self.price = float(event["usd_per_hour"])
            case "rented":
                self._rent(event)
            case "bought":
                self.bought += Usage(**event["usage"])

    def end_of_life(self, spent: float) -> float | None:
        """Unix time until which the last life ran, given the seconds of all lives."""
        return self._life[0] + spent - self._life[1] if self._life else None

    def _take(self, event: Mapping[str, Any]) -> None:
        gpus = _gpus(event["slot"])
        self.gpus = max(self.gpus, gpus)
        where = event.get("on", ""), event["slot"]
        self._ended.pop(where, None)
        if earlier := self.open.get(where):  # of a machine that was lost
            self._count(earlier, event["time"] - earlier.since)
        self.open[where] = _Hold(event["number"], event["time"], HourlyRate(self.price, gpus))

    def _free(self, event: Mapping[str, Any]) -> None:
        where = event.get("on", ""), event["slot"]
        if hold := self.open.pop(where, None):
            self._count(hold, event["time"] - hold.since)
        elif where in self._ended:
            hold, until = self._ended.pop(where)
            self._count(hold, event["time"] - until)

    def _close(self, holds: Mapping[tuple[str, str], _Hold], until: float) -> None:
        """Count holds that nobody gave back until then."""
        for where, hold in holds.items():
            end = max(until, hold.since)
            self._count(hold, end - hold.since)
            del self.open[where]
            if where[0]:
                self._ended[where] = hold, end

    def _count(self, hold: _Hold, seconds: float) -> None:
        cost = hold.rate.of(seconds)
        self.slots += cost
        self.by_slots[hold.number] = self.by_slots.get(hold.number, MachineCost()) + cost

    def _rent(self, event: Mapping[str, Any]) -> None:
        usd, hours, gpus = event["usd"], event["seconds"] / HOUR, int(event["gpus"])
        if usd is None:
            self.unpriced = f"the machine of trial {event['number']}"
        elif hours > 0:
            dearest = max(self.rented_rate.usd, usd / hours), max(self.rented_rate.gpus, gpus)
            self.rented_rate = HourlyRate(*dearest)
        so_far = MachineCost(usd or 0.0, hours * gpus)  # of the run, which may have been cut off before
        more = so_far.beyond(self._rented.get(event["key"], MachineCost()))
        self._rented[event["key"]] = so_far
        self.rented += more
        self.by_rented[event["number"]] = self.by_rented.get(event["number"], MachineCost()) + more

    def held(self, now: float | None) -> dict[int, MachineCost]:
        """The slots of each trial, open holds included until `now`."""
        found = dict(self.by_slots)
        for hold in self.open.values():
            cost = hold.rate.of((hold.since if now is None else now) - hold.since)
            found[hold.number] = found.get(hold.number, MachineCost()) + cost
        return found


def _gpus(slot: str) -> int:
    """How many GPUs a slot has, by its name, such as gpu-0-1."""
    kind, *indices = slot.split("-")
    return len(indices) if kind == "gpu" else 0


class SpendingReader:
    """Reads what a campaign spent; each time only the events that were added since."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._seen, self._events = 0, _Events()
        self._lock = threading.Lock()

    def read(self, history: History, now: float | None) -> Spent:
        """What was spent.

        Args:
            now: Unix time until which open holds count; None: until the end of the campaign's last process.
        """
        with self._lock:
            self._catch_up()
            found = self._events
            now = found.end_of_life(campaign_lock.spent(self._ledger)) if now is None else now
            open_now = (hold.rate.of((now or hold.since) - hold.since) for hold in found.open.values())
            slots, trials = sum(open_now, found.slots), found.held(now)
            for number, cost in found.by_rented.items():
                trials[number] = trials.get(number, MachineCost()) + cost
            models = sum((each.usage for each in self._ledger.proposals(history)), found.bought)
            rate = HourlyRate(found.price, found.gpus)
            return Spent(models, slots, found.rented, found.unpriced, rate, found.rented_rate, trials)

    @property
    def lost(self) -> Usage:
        """Use of models that led to no proposal, as of the last reading."""
        return self._events.bought

    def slots_usd(self, number: int, now: float) -> float:
        """What the slots of a trial cost in its current attempt, rented machines aside."""
        with self._lock:
            self._catch_up()
            return self._events.held(now).get(number, MachineCost()).usd

    def note_price(self, usd_per_hour: float) -> None:
        """Note the price of a slot's hour from now on, if it has changed: what was spent is not priced again."""
        with self._lock:
            self._catch_up()
            changed = self._events.price != usd_per_hour
        if changed:
            self._ledger.event(PRICE, usd_per_hour=usd_per_hour)

    def _catch_up(self) -> None:
        """Add the events since the last time."""
        for event in islice(self._ledger.events(), self._seen, None):
            self._events.add(event)
            self._seen += 1


def spent(ledger: Ledger, history: History, now: float | None = None) -> Spent:
    """What a campaign spent; `now` as in SpendingReader.read."""
    return SpendingReader(ledger).read(history, now)


def note_rented(ledger: Ledger, key: TaskKey, place: TrialDir, run: Run | None = None) -> None:
    """Note what a run has paid so far for rented machines. Counted once, however often it is noted.

    Args:
        run: None where it was cut off.
    """
    from tasks.remote import jobs  # whoever reads what was spent rents nothing

    paid = jobs.paid(place.path / jobs.COSTS)
    if run is None:
        run = Run("", 0, 0.0, "crash", usd=paid.usd, rented_gpus=paid.gpus)
    if run.usd != 0 or run.rented_gpus:
        ledger.event(
            RENTED, key=f"{key.number}/{key.attempt}/{key.part}", number=key.number,
            seconds=paid.seconds or run.wall_seconds, usd=run.usd, gpus=run.rented_gpus,
        )  # fmt: skip


def note_removed_late(ledger: Ledger) -> None:
    """Note what was paid for machines that were removed after their run had been noted, or cut off."""
    from tasks.remote import jobs

    for costs in sorted(ledger.path.rglob(jobs.COSTS)) if ledger.environment.remote else ():
        _, own, run = jobs.paid(costs).run.partition(f"{ledger.campaign.campaign_id}/")
        if own:
            number, attempt, part, folder = run.split("/")  # TaskKey.marker, and the run's folder
            part = folder if folder in CONTROLS else "" if part == "run-1" else part
            note_rented(ledger, TaskKey("", "", int(number), int(attempt), part), TrialDir(costs.parent))


def note_bought(ledger: Ledger, usage: Usage) -> None:
    """Note model calls that led to no proposal."""
    if usage.calls:
        ledger.event(BOUGHT, usage=asdict(usage))

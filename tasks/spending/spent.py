"""What a campaign spent: on slots by its events, on rented machines by the files of their runs, on language models by
its proposals.

    slot, slot free   a slot was held, at which price of an hour; its name has its GPUs
    bought            model calls that led to no proposal

A hold that a kill left open ends with the process that held it; on another machine when that one gives it back, or is
taken for lost.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass

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


FREE = MachineCost()


@dataclass(frozen=True)
class Spent:
    """What a campaign spent until one moment."""

    models: Usage = NOTHING_BOUGHT
    machines: MachineCost = FREE
    gpus: int = 0
    """Of the largest slot that was held."""
    rented_hour: MachineCost = FREE
    """An hour of the dearest machine that a trainer rented."""

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
    """What a campaign spent. Open holds count until `now` (Unix time); None: until the end of its last process."""
    lost = sum((Usage(**event["usage"]) for event in ledger.events() if event["event"] == BOUGHT), NOTHING_BOUGHT)
    models = sum((proposal.usage for proposal in ledger.proposals(history)), lost)
    holds, (rented, dearest) = _holds(ledger, now), _rented(ledger)
    machines = sum((hold.cost for hold in holds), rented)
    return Spent(models, machines, max((int(hold.hour.gpu_hours) for hold in holds), default=0), dearest)


def slots_usd(ledger: Ledger, number: int) -> float:
    """What the slots of a trial have cost in its current attempt, rented machines aside."""
    holds = _holds(ledger, time.time())
    return math.fsum(hold.cost.usd for hold in holds if hold.number == number and hold.is_current)


def note_bought(ledger: Ledger, usage: Usage) -> None:
    """Note model calls that led to no proposal."""
    if usage.calls:
        ledger.event(BOUGHT, usage=asdict(usage))


@dataclass
class _Hold:
    """A slot that a run of a trial held."""

    number: int
    hour: MachineCost
    since: float
    cost: MachineCost = FREE
    is_current: bool = True
    """Whether it is of the trial's current attempt."""


def _holds(ledger: Ledger, now: float | None) -> list[_Hold]:
    """Every slot that was held, by a campaign's events; those still held, until `now`."""
    holds: list[_Hold] = []
    held: dict[tuple[str, str], _Hold] = {}  # by machine, empty for the campaign's own, and slot
    pid, last = None, 0.0  # of the present life, and when it was heard of last

    def end(slots: Iterable[tuple[str, str]], until: float) -> None:
        for hold in [held.pop(slot) for slot in slots if slot in held]:
            hold.cost = hold.hour.of(until - hold.since)

    for event in ledger.events():
        moment, slot = event["time"], (event.get("on", ""), event.get("slot", ""))
        match event["event"]:
            case "life":
                end([slot for slot in held if not slot[0]], last)
                pid = event.get("pid")
            case "slot":
                end([slot], moment)  # its machine was lost, and is back
                kind, *indices = event["slot"].split("-")  # such as gpu-0-1
                hour = MachineCost(event.get("usd_per_hour", 0.0), len(indices) if kind == "gpu" else 0)
                held[slot] = _Hold(event["number"], hour, moment)
                holds.append(held[slot])
            case "slot free":
                end([slot], moment)
            case "launch" if event["what"] in ("died", "called back"):
                end([slot for slot, hold in held.items() if slot[0] and hold.number == event["trial"]], moment)
            case "rerun":
                for hold in holds:
                    hold.is_current &= hold.number != event["trial"]
        last = moment if event.get("pid", pid) == pid else last
    end([*held], now or (time.time() if campaign_lock.is_running(ledger) else last))
    return holds


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

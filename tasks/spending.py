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
from dataclasses import asdict, dataclass
from typing import Any

from tasks.machine.slots import Work
from tasks.store import campaign_lock
from tasks.store.ledger import Ledger
from tasks.trial import NOTHING_BOUGHT, History, Usage

HOUR = 3600.0
BOUGHT = "bought"
WORK: dict[Work, str] = {"train": "training", "start": "start-up", "judge": "judging"}
"""Its names in a report."""


@dataclass(frozen=True)
class MachineCost:
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
    models: Usage = NOTHING_BOUGHT
    machines: MachineCost = FREE

    @property
    def usd(self) -> float | None:
        """Everything together in USD; None if the price of a language model is unknown."""
        return None if self.models.usd is None else self.models.usd + self.machines.usd

    @property
    def anything(self) -> bool:
        """Whether something was bought at all, at whatever price."""
        return bool(self.models.calls or self.machines.usd)


def spent(ledger: Ledger, history: History, now: float | None = None) -> Spent:
    """What a campaign spent. Open holds count until `now` (Unix time); None: until the end of its last process."""
    lost = sum((Usage(**event["usage"]) for event in ledger.events() if event["event"] == BOUGHT), NOTHING_BOUGHT)
    models = sum((proposal.usage for proposal in ledger.proposals(history)), lost)
    return Spent(models, _slots(ledger, now) + _rented(ledger))


def note_bought(ledger: Ledger, usage: Usage) -> None:
    if usage.calls:
        ledger.event(BOUGHT, usage=asdict(usage))


def money(ledger: Ledger, history: History) -> dict[str, Any]:
    so_far = spent(ledger, history)
    bought = so_far.models
    return {
        # None when nothing was bought, or a price is unknown.
        "usd": so_far.usd if so_far.anything else None,
        "calls": bought.calls,
        "tokens": bought.tokens,
        "models_usd": bought.usd if bought.calls else None,
        "machines_usd": round(so_far.machines.usd, 6),
        "gpu_hours": round(so_far.machines.gpu_hours, 6),
        "unknown": None if so_far.usd is not None else "a language model",
    }


def slot_use(events: Iterable[Mapping[str, Any]], seconds: float) -> dict[str, float]:
    """What the slots of a campaign were used for, by its events: shares of their time together, which is `seconds`.

    `other` is the rest: proposing, deciding, waiting for others' slots, runs that a kill cut off or that are under way.
    Empty before a run has ended.
    """
    ends = [event for event in events if event["event"] == "slot free"]
    use = {name: sum(event.get(work, 0.0) for event in ends) for work, name in WORK.items()}
    if not (used := sum(use.values())):
        return {}
    use["other"] = max(seconds - used, 0.0)
    return {name: round(spent / (used + use["other"]), 4) for name, spent in use.items()}


def parts(document: Mapping[str, Any]) -> list[str]:
    """Money, GPU hours and model calls in a status document, with their limits; only those that there were any of."""
    costs, limits, found = document["spent"], document["spec"].get("advanced", {}), []
    most = {name: f" of {limits[name]:g}" if name in limits else "" for name in ("max_usd", "max_gpu_hours")}
    if costs["unknown"]:
        found.append(f"an unknown sum{most['max_usd']} USD, since {costs['unknown']} has no known price")
    elif costs["usd"] is not None or most["max_usd"]:
        found.append(f"{costs['usd'] or 0.0:.2f}{most['max_usd']} USD")
    if costs["gpu_hours"] or most["max_gpu_hours"]:
        found.append(f"{costs['gpu_hours']:.3g}{most['max_gpu_hours']} GPU hours")
    if costs["calls"]:
        found.append(f"{costs['calls']} model calls with {costs['tokens']:,} tokens")
    return found


def _slots(ledger: Ledger, now: float | None) -> MachineCost:
    """What slots have cost, by a campaign's events; those still held, until `now`."""
    total = FREE
    held = dict[tuple[str, str], tuple[tuple[int, str], MachineCost, float]]()
    """Trial and run of it, cost of an hour and begin, by machine (empty for the campaign's own) and slot."""
    pid, last = None, 0.0  # of the present life, and when it was heard of last

    def end(slots: Iterable[tuple[str, str]], until: float) -> None:
        nonlocal total
        for _, hour, since in [held.pop(slot) for slot in slots if slot in held]:
            total += hour.of(until - since)

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
                held[slot] = (event["number"], event.get("part", "")), hour, moment
            case "slot free":
                end([slot], moment)
            case "launch" if event["what"] in ("died", "called back"):
                run = event["trial"], event.get("part", "")
                end([slot for slot, (of, *_) in held.items() if slot[0] and of == run], moment)
        last = moment if event.get("pid", pid) == pid else last
    end([*held], now or (time.time() if campaign_lock.is_running(ledger) else last))
    return total


def _rented(ledger: Ledger) -> MachineCost:
    """What rented machines cost so far, by the files of costs beside their runs."""
    from tasks.remote import jobs  # whoever reads what was spent rents nothing

    total = FREE
    for run in ("trials/*", "trials/*/untrained*", "certificates/*", "ablations/*"):
        for usd, gpu_seconds in map(jobs.paid, ledger.path.glob(f"{run}/{jobs.COSTS}")):
            total += MachineCost(usd, gpu_seconds / HOUR)
    return total

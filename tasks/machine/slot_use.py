"""Slot use: what a campaign's slots were used for, derived from its events.

A campaign has its slots while a process of it runs. A process that was killed ended with its last heartbeat, which the
next one states as `spent_before`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class SlotUse:
    """Seconds of all slots of a campaign together."""

    seconds: float = 0.0
    train: float = 0.0
    start: float = 0.0
    """Programs that were not ready yet, or were ending."""
    judge: float = 0.0
    """Programs under judgement, and controls."""
    proof: float = 0.0
    """Of `train`: the fresh runs of certificates, and runs for an ablation."""

    @property
    def idle(self) -> float:
        """No program ran to its end: proposing, deciding, waiting for others' slots, runs that a kill cut off."""
        return max(self.seconds - self.train - self.start - self.judge, 0.0)

    @property
    def shares(self) -> dict[str, float]:
        """Shares by name; empty before a run has ended."""
        if not self.train + self.start + self.judge:
            return {}
        parts = {"training": self.train, "start-up": self.start, "judging": self.judge, "idle": self.idle}
        return {name: round(seconds / self.seconds, 4) for name, seconds in parts.items()}


def in_words(shares: Mapping[str, float]) -> str:
    """Such as `slots: 90.1% training, 4.0% start-up, 3.9% judging, 2.0% idle`; empty for none."""
    return f"slots: {', '.join(f'{share:.1%} {name}' for name, share in shares.items())}" if shares else ""


def slot_use(events: Iterable[Mapping[str, Any]], spent: float) -> SlotUse:
    """The use of a campaign's slots; nothing of a campaign that an earlier version ran.

    Args:
        events: In their order.
        spent: Seconds that its processes have run, until now.
    """
    seconds, slots, begun, before = 0.0, 0.0, 0.0, 0.0
    used = {"train": 0.0, "start": 0.0, "judge": 0.0, "proof": 0.0}
    taken: dict[tuple[str, str], float] = {}  # by machine and slot, since when
    for event in events:
        slot = event.get("on", ""), event.get("slot", "")
        match event["event"]:
            case "life":
                now = event.get("spent_before", 0.0)
                seconds += slots * (now - before)
                slots, begun, before = 0.0, event["time"], now
                taken.clear()
            case "slots":
                here = len(event["locks"])  # none where trials run on other machines
                slots = min(event.get("parallel", here), here or math.inf)
            case "slot":
                taken[slot] = event["time"]
            case "slot free":
                taken.pop(slot, None)
                for work in ("train", "start", "judge"):
                    used[work] += event.get(work, 0.0)
                used["proof"] += event.get("train", 0.0) if event.get("proof") else 0.0
    seconds += slots * (spent - before)
    under_way = sum(max(begun + spent - before - since, 0.0) for since in taken.values())  # its use is not known yet
    return SlotUse(max(seconds - under_way, used["train"] + used["start"] + used["judge"]), **used)

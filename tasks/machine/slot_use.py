"""Slot use: what a campaign's slots were used for, derived from its events.

Time is counted while the campaign holds a slot, and from when it gives one back until it takes the next, without the
time for which others held all, and without the time between two processes of the campaign.
"""

from __future__ import annotations

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

    @property
    def idle(self) -> float:
        """No program ran: proposing, deciding, recording, and what the engine does around a program."""
        return max(self.seconds - self.train - self.start - self.judge, 0.0)

    @property
    def shares(self) -> dict[str, float]:
        """The parts by name; empty where nothing was counted."""
        parts = {"training": self.train, "start-up": self.start, "judging": self.judge, "idle": self.idle}
        return {name: round(seconds / self.seconds, 4) for name, seconds in parts.items()} if self.seconds else {}


def in_words(shares: Mapping[str, float]) -> str:
    """Such as `slots: 90.1% training, 4.0% start-up, 3.9% judging, 2.0% idle`; empty for none."""
    return f"slots: {', '.join(f'{share:.1%} {name}' for name, share in shares.items())}" if shares else ""


def slot_use(events: Iterable[Mapping[str, Any]]) -> SlotUse:
    """The use of a campaign's slots; nothing of a campaign that an earlier version ran."""
    taken: dict[tuple[str, str], float] = {}  # by machine and slot, since when
    free: list[float] = []  # since when the campaign has not used a slot that it had, whichever it gets next
    waits: dict[int, float] = {}  # by trial, since when it waits for a slot that others hold
    parts = {"seconds": 0.0, "train": 0.0, "start": 0.0, "judge": 0.0}
    for event in events:
        slot = event.get("on", ""), event.get("slot", "")
        if event["event"] == "life":
            taken, free, waits = {}, [], {}
        elif event["event"] == "waiting":
            waits[event["number"]] = event["time"]
        elif event["event"] == "slot":
            until = waits.pop(event["number"], event["time"])
            parts["seconds"] += max(until - free.pop(), 0.0) if free else 0.0
            taken[slot] = event["time"]
        elif event["event"] == "slot free" and slot in taken:
            free.append(event["time"])
            parts["seconds"] += event["time"] - taken.pop(slot)
            for work in ("train", "start", "judge"):
                parts[work] += event.get(work, 0.0)
    return SlotUse(**parts)

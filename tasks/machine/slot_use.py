"""Slot use: what a campaign's slots were used for, derived from its events.

A campaign has its slots from the event `slots` of a process until that process ends, less the time for which others
held them. A process that was killed ended with its last heartbeat, which the next one states as `spent_before`.
"""

from __future__ import annotations

import math
from collections import defaultdict
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
    cut_off: float = 0.0
    """Runs that ended with their process, and left nothing."""
    proof: float = 0.0
    """Of `train`: the fresh runs of certificates, and runs for an ablation."""

    @property
    def idle(self) -> float:
        """No program ran: nothing to run beside the others, proposing, deciding, recording."""
        return max(self.seconds - self.train - self.start - self.judge - self.cut_off, 0.0)

    @property
    def parts(self) -> dict[str, float]:
        """Seconds by name."""
        cut_off = {"cut off": self.cut_off} if self.cut_off else {}
        return {"training": self.train, "start-up": self.start, "judging": self.judge, **cut_off, "idle": self.idle}

    @property
    def shares(self) -> dict[str, float]:
        """Shares by name; empty before a run has ended."""
        if not self.train + self.start + self.judge:
            return {}
        return {name: round(seconds / self.seconds, 4) for name, seconds in self.parts.items()}


def in_words(shares: Mapping[str, float]) -> str:
    """Such as `slots: 90.1% training, 4.0% start-up, 3.9% judging, 2.0% idle`; empty for none."""
    return f"slots: {', '.join(f'{share:.1%} {name}' for name, share in shares.items())}" if shares else ""


class Waits:
    """The runs that wait for a slot: of a trial's, the first to wait gets its first slot."""

    def __init__(self) -> None:
        self._runs = defaultdict[int, list[Mapping[str, Any]]](list)  # by trial

    def begin(self, event: Mapping[str, Any]) -> None:
        """An event `waiting`."""
        self._runs[event["number"]].append(event)

    def end(self, event: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The event with which the wait began that an event `slot` ends; None if the run did not wait."""
        runs = self._runs[event["number"]]
        return runs.pop(0) if runs else None

    @property
    def left(self) -> list[Mapping[str, Any]]:
        """The events of those that still wait."""
        return [event for runs in self._runs.values() for event in runs]


def slot_use(events: Iterable[Mapping[str, Any]], spent: float) -> SlotUse:
    """The use of a campaign's slots; nothing of a campaign that an earlier version ran.

    Args:
        events: In their order.
        spent: Seconds that its processes have run, until now.
    """
    lives: list[_Life] = []
    for event in events:
        if event["event"] == "life":
            if lives:
                lives[-1].close(event.get("spent_before", 0.0), killed=True)
            lives.append(_Life(event["time"], event.get("spent_before", 0.0)))
        elif lives:
            lives[-1].add(event)
    if lives:
        lives[-1].close(spent, killed=False)
    every = [(life.seconds, *life.used.values(), life.cut_off, life.proof) for life in lives]
    return SlotUse(*(sum(values) for values in zip(*every, strict=True)))


class _Life:
    """The slots of one process of the campaign."""

    def __init__(self, begun: float, before: float) -> None:
        self.seconds = self.cut_off = self.proof = 0.0
        self.used = {"train": 0.0, "start": 0.0, "judge": 0.0}
        self._begun, self._before = begun, before
        self._since, self._slots = begun, 0.0
        self._ended: float | None = None
        self._taken: dict[tuple[str, str], float] = {}  # by machine and slot, since when
        self._waits = Waits()

    def add(self, event: Mapping[str, Any]) -> None:
        slot = event.get("on", ""), event.get("slot", "")
        match event["event"]:
            case "slots" if self._ended is None:  # versions until 0.6 wrote one before a certificate's process began
                here = len(event["locks"])  # none where trials run on other machines
                self._since, self._slots = event["time"], min(event.get("parallel", here), here or math.inf)
            case "waiting":
                self._waits.begin(event)
            case "slot":
                if began := self._waits.end(event):
                    self.seconds -= event["time"] - began["time"]
                self._taken[slot] = event["time"]
            case "slot free" if slot in self._taken:
                since = self._taken.pop(slot)
                for work in self.used:
                    self.used[work] += event.get(work, 0.0)
                self.proof += event.get("train", 0.0) if event.get("proof") else 0.0
                if not any(event.get(work) for work in self.used):
                    self.cut_off += event["time"] - since
            case "end":
                self._ended = event["time"]

    def close(self, spent: float, *, killed: bool) -> None:
        """Count until its end, `spent` being the seconds of the campaign until then."""
        if not self._slots:
            return
        end = self._ended or max(self._begun + spent - self._before, self._since, *self._taken.values())
        open_runs = sum(end - since for since in self._taken.values())
        waiting = sum(end - began["time"] for began in self._waits.left)
        self.seconds += self._slots * (end - self._since) - waiting
        if killed or self._ended:
            self.cut_off += open_runs
        else:  # under way: what of it is training is not known yet
            self.seconds -= open_runs
        self.seconds = max(self.seconds, sum(self.used.values()) + self.cut_off)

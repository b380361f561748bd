"""What the time of a campaign's slots went to, and its classes in the style sheet."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.machine.slot_use import SlotUse


@dataclass(frozen=True)
class TimePart:
    name: str
    seconds: float
    style: str
    """A class of the style sheet."""


def time_split(use: SlotUse) -> tuple[TimePart, ...]:
    """The parts of the slots' time that are not empty."""
    parts = (
        TimePart("training in the search", use.train - use.proof, "training"),
        TimePart("training for certificates and ablations", use.proof, "certifying"),
        TimePart("start-up of the programs: interpreter and imports", use.start, "starting"),
        TimePart("judging and controls", use.judge, "judging"),
        TimePart("no program ran, waits and runs that were cut off", use.idle, "rest"),
    )
    return tuple(part for part in parts if part.seconds > 0)

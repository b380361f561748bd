"""What the time of a campaign's slots went to, and its classes in the style sheet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PARTS = {
    "training": ("training, certificates included", "training"),
    "start-up": ("start-up of the programs: interpreter and imports", "starting"),
    "judging": ("judging and controls", "judging"),
    "other": ("no program ran, waits and runs that were cut off", "rest"),
}


@dataclass(frozen=True)
class TimePart:
    name: str
    style: str
    """A class of the style sheet."""
    seconds: float


def time_split(shares: Mapping[str, float], seconds: float) -> tuple[TimePart, ...]:
    """The parts of the slots' time that are not empty; `seconds` of all slots together."""
    return tuple(TimePart(*PARTS[name], share * seconds) for name, share in shares.items() if share)

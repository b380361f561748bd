"""What the time of a campaign's slots went to, and its classes in the style sheet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.certifying.certificate import Certificate
from tasks.machine.slot_use import SlotUse


@dataclass(frozen=True)
class TimePart:
    name: str
    seconds: float
    style: str
    """A class of the style sheet."""


def time_split(use: SlotUse, certificates: Sequence[Certificate]) -> tuple[TimePart, ...]:
    """The parts of the slots' time that are not empty."""
    certified = min(sum(fresh.run.seconds for one in certificates for fresh in one.runs[one.carried :]), use.train)
    parts = (
        TimePart("training in the search", use.train - certified, "training"),
        TimePart("training for certificates", certified, "certifying"),
        TimePart("start-up of the programs: interpreter and imports", use.start, "starting"),
        TimePart("judging and controls", use.judge, "judging"),
        TimePart("runs that ended with the campaign's process", use.cut_off, "proposing"),
        TimePart("no program ran", use.idle, "rest"),
    )
    return tuple(part for part in parts if part.seconds > 0)

"""Slots: where trainings may run at the same time, on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Slot:
    """A part of this machine that one training at a time may use, with all that belongs to it."""

    name: str
    """Such as `cpu-0`, or `gpu-0-1` for two GPUs that are used together."""
    gpus: tuple[str, ...] = ()
    """UUIDs of its GPUs; empty for a slot of the CPU."""
    fence: int | None = None
    """A descriptor that its programs inherit: as long as one of them has it open, nobody else gets the slot."""


NOWHERE = Slot("none")
"""For what needs no slot."""


@dataclass(frozen=True)
class Slots:
    """The slots of a machine, and who waits for one."""

    home: Path

    @contextmanager
    def hold(self) -> Iterator[Slot]:
        """One slot that nobody else has, for as long as the block runs; waits until there is one."""
        yield NOWHERE

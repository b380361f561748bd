"""Slot: the part of a machine that a program is started in, as its walls see it."""

from __future__ import annotations

from dataclasses import dataclass

VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Slot:
    """A part of this machine that one training at a time may use, with all that belongs to it."""

    name: str
    """Such as `cpu-0`, or `gpu-0-1` for two GPUs that are used together."""
    gpus: tuple[str, ...] = ()
    """UUIDs of its GPUs; empty for a slot of the CPU."""
    fences: tuple[int, ...] = ()
    """Descriptors that its programs inherit: as long as one of them has them open, nobody else gets the slot."""

    def variables(self, gpu: bool) -> dict[str, str]:
        """What its programs find in their environment; `gpu` says whether they may use one at all."""
        if not gpu:
            return {VISIBLE: ""}
        return {VISIBLE: ",".join(self.gpus)} if self.gpus else {}


NOWHERE = Slot("none")
"""For what needs no slot."""

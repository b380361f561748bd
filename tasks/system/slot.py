"""The part of a machine that a program runs on, as its sandbox needs it."""

from __future__ import annotations

from dataclasses import dataclass

VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Slot:
    """A part of this machine that one training at a time may use."""

    name: str
    """Such as `cpu-0`, or `gpu-0-1` for two GPUs that are used together."""
    gpus: tuple[str, ...] = ()
    """UUIDs of its GPUs; empty for a CPU slot."""
    fences: tuple[int, ...] = ()
    """Descriptors that its programs inherit: while one of them has these open, nobody else gets the slot."""
    cores: tuple[int, ...] = ()
    """The processor cores that its programs are kept on; empty: those of the engine."""

    def variables(self, gpu: bool) -> dict[str, str]:
        """Environment variables of its programs; `gpu` says whether they may use one at all."""
        if not gpu:
            return {VISIBLE: ""}
        return {VISIBLE: ",".join(self.gpus)} if self.gpus else {}


NOWHERE = Slot("none")
"""For programs that need no slot."""

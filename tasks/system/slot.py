"""The part of a machine that a program runs on, as its sandbox needs it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Slot:
    name: str
    """Such as `cpu-0`, `cpu-0-1` for two cores, or `gpu-0-1` for two GPUs that are used together."""
    gpus: tuple[str, ...] = ()
    """UUIDs of its GPUs, in the order in which programs see them; empty for a CPU slot."""
    cores: tuple[int, ...] = ()
    """The processor cores that its programs are kept on; empty: those of the engine."""
    locks: tuple[str, ...] = ()
    """Names of its locks, in the order in which every process takes them."""

    @contextmanager
    def on_its_cores(self) -> Iterator[None]:
        """Keep the calling thread, and the processes that it starts, on the slot's cores while the block runs."""
        if not self.cores:
            yield
            return
        before = os.sched_getaffinity(0)  # to the kernel, 0 is this thread and not the whole process
        os.sched_setaffinity(0, self.cores)
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)

    def variables(self, gpu: bool) -> dict[str, str]:
        """Environment variables of its programs; `gpu` says whether they may use one at all."""
        if not gpu:
            return {VISIBLE: ""}
        return {VISIBLE: ",".join(self.gpus)} if self.gpus else {}


NOWHERE = Slot("none")

"""The part of a machine that a program runs on, as its sandbox needs it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from tasks.system.clock import clock

VISIBLE = "CUDA_VISIBLE_DEVICES"


Work = Literal["start", "train", "judge"]
"""What programs do in a slot: they start (interpreter, imports), train, or are judged, for which controls count too."""


@dataclass
class Use:
    """Seconds for which programs ran in a slot while it was held, by what they did."""

    seconds: dict[Work, float] = field(default_factory=dict)

    def add(self, work: Work, seconds: float) -> None:
        self.seconds[work] = self.seconds.get(work, 0.0) + seconds

    def ran(self, seconds: float, trained: float | None) -> None:
        """Add a program that ran so long and trained in a part of it; None: a control, which counts as judging."""
        if trained is None:
            self.add("judge", seconds)
        else:
            self.add("train", trained)
            self.add("start", max(seconds - trained, 0.0))

    @property
    def rounded(self) -> dict[str, float]:
        return {work: round(seconds, 3) for work, seconds in self.seconds.items()}

    @contextmanager
    def timed(self, work: Work) -> Iterator[None]:
        began = clock()
        try:
            yield
        finally:
            self.add(work, clock() - began)


@dataclass(frozen=True)
class Slot:
    """A part of this machine that one training at a time may use."""

    name: str
    """Such as `cpu-0`, `cpu-0-1` for two cores, or `gpu-0-1` for two GPUs that are used together."""
    gpus: tuple[str, ...] = ()
    """UUIDs of its GPUs; empty for a CPU slot."""
    fences: tuple[int, ...] = ()
    """Descriptors that its programs inherit: while one of them has these open, nobody else gets the slot."""
    cores: tuple[int, ...] = ()
    """The processor cores that its programs are kept on; empty: those of the engine."""
    use: Use = field(default_factory=Use, compare=False, repr=False, kw_only=True)
    """How it was used since it was taken."""

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
"""For programs that need no slot."""

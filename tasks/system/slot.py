"""The part of a machine that a program runs on, as its sandbox needs it."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

VISIBLE = "CUDA_VISIBLE_DEVICES"

Work = Literal["start", "train", "judge"]
"""What programs do in a slot: they start (interpreter, imports), train, or are judged, for which controls count too."""
WORK: dict[Work, str] = {"train": "training", "start": "start-up", "judge": "judging"}
"""Its names in a report."""


@dataclass(frozen=True)
class Slot:
    """A part of this machine that one training at a time may use."""

    name: str
    """Such as `cpu-0`, `cpu-0-1` for two cores, or `gpu-0-1` for two GPUs that are used together."""
    gpus: tuple[str, ...] = ()
    """UUIDs of its GPUs, in the order in which programs see them; empty for a CPU slot."""
    names: tuple[str, ...] = ()
    """The same as programs see them: by number, since prime-rl and vLLM fail at UUIDs; a part of a GPU by its UUID."""
    cores: tuple[int, ...] = ()
    """The processor cores that its programs are kept on; empty: those of the engine."""
    locks: tuple[str, ...] = ()
    """Names of its locks, in the order in which every process takes them."""
    use: dict[Work, float] = field(default_factory=dict, init=False, compare=False, repr=False)
    """Seconds for which programs ran in it since it was taken, by what they did."""

    def used(self, work: Work, seconds: float) -> None:
        self.use[work] = max(round(self.use.get(work, 0.0) + seconds, 3), 0.0)

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
        # The order in which the driver counts.
        return {VISIBLE: ",".join(self.names), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if self.gpus else {}


NOWHERE = Slot("none")
"""For programs that need no slot."""


def slot_use(events: Iterable[Mapping[str, Any]], seconds: float) -> dict[str, float]:
    """What the slots of a campaign were used for, by its events: shares of their time together, which is `seconds`.

    `other` is the rest: proposing, deciding, waiting for others' slots, runs that a kill cut off or that are under way.
    Empty before a run has ended.
    """
    ends = [event for event in events if event["event"] == "slot free"]
    use = {name: sum(event.get(work, 0.0) for event in ends) for work, name in WORK.items()}
    if not (used := sum(use.values())):
        return {}
    use["other"] = max(seconds - used, 0.0)
    return {name: round(spent / (used + use["other"]), 4) for name, spent in use.items()}

"""GPU memory in use while a program runs, from NVIDIA's management library (NVML).

The package `nvidia-ml-py` (module `pynvml`) and the driver are optional: without them nothing is measured.
The figure is that of the whole GPU, the driver's part included: a slot's GPUs belong to one training.
Calls: nvmlDeviceGetHandleByUUID, which accepts MIG instances too, and nvmlDeviceGetMemoryInfo, in bytes.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Sequence
from types import TracebackType

SECONDS = 1.0
"""Between two samples. A shorter peak may be missed."""
END_SECONDS = 2.0
"""How long the last sample may take; a driver that hangs is not waited for."""

Reader = Callable[[], tuple[int, ...]]
"""Reads the memory in use on each GPU, in bytes; raises OSError when it cannot."""


def nvml(uuids: Sequence[str]) -> Reader | None:
    """A reader of these GPUs; None without the package, or without a driver that knows them all."""
    try:
        pynvml = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids]
    except pynvml.NVMLError:
        return None

    def read() -> tuple[int, ...]:
        try:
            return tuple(int(pynvml.nvmlDeviceGetMemoryInfo(handle).used) for handle in handles)
        except pynvml.NVMLError as fault:
            raise OSError(f"NVML: {fault}") from fault

    return read


class Sampler:
    """Peak memory of each GPU, sampled in a thread so that a slow driver does not delay the training's clock."""

    def __init__(
        self, uuids: Sequence[str], find: Callable[[Sequence[str]], Reader | None] = nvml, seconds: float = SECONDS
    ) -> None:
        self._uuids, self._find, self._seconds = tuple(uuids), find, seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="gpu-memory", daemon=True)
        self.peaks: tuple[int, ...] | None = None
        """Bytes per GPU, in the order of the UUIDs; None while nothing was measured."""
        self.now: tuple[int, ...] = ()
        """The last sample; empty while nothing was measured."""

    def __enter__(self) -> Sampler:
        if self._uuids:
            self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._over.set()
        if self._uuids:
            self._thread.join(END_SECONDS)

    def _watch(self) -> None:
        read = self._find(self._uuids)
        while read is not None:
            try:
                now = read()
            except OSError:  # a GPU that fell off the bus: keep the peaks so far
                return
            self.now = now
            self.peaks = tuple(map(max, now, self.peaks or now))
            if self._over.wait(self._seconds):
                return

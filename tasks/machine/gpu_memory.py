"""GPU memory in use while a program runs, from NVIDIA's management library (NVML).

The package `nvidia-ml-py` (module `pynvml`) and the driver are optional: without them nothing is measured.
The figure is that of the whole GPU, the driver's part included: a slot's GPUs belong to one training.
Calls: nvmlDeviceGetHandleByUUID, which accepts MIG instances too, and nvmlDeviceGetMemoryInfo, in bytes.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any


class GpuMemory:
    """The memory of some GPUs, and the most of it that was in use whenever it was asked for."""

    def __init__(self, uuids: Sequence[str]) -> None:
        self._uuids = tuple(uuids)
        self._handles: tuple[Any, ...] = ()
        self._nvml: Any = None
        with suppress(ImportError):
            self._nvml = importlib.import_module("pynvml") if uuids else None
        self.peaks: tuple[int, ...] | None = None
        """Bytes per GPU, in the order of the UUIDs; None while nothing was measured."""

    def now(self) -> tuple[int, ...]:
        """Bytes in use on each GPU; empty where that cannot be measured."""
        if self._nvml is None:
            return ()
        try:
            if not self._handles:
                self._nvml.nvmlInit()
                self._handles = tuple(self._nvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in self._uuids)
            used = tuple(int(self._nvml.nvmlDeviceGetMemoryInfo(handle).used) for handle in self._handles)
        except self._nvml.NVMLError:  # no driver, or a GPU that fell off the bus: the peaks so far stay
            self._nvml = None
            return ()
        self.peaks = tuple(map(max, used, self.peaks or used))
        return used

"""The GPUs of this machine and the processes that compute on them, by NVIDIA's management library (NVML).

A MIG instance has a UUID of its own, and what is asked by UUID is answered for it as for a GPU. Sizes are in bytes.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import pynvml

GpuError = pynvml.NVMLError


@dataclass(frozen=True)
class Gpu:
    index: int
    uuid: str
    name: str
    memory: int | None = None
    """None where the driver reports none, as for memory that it shares with the processor."""


def find() -> tuple[list[Gpu], list[str]]:
    """The GPUs of this machine, and what the driver says of those that fail. Neither without a driver."""
    found: list[Gpu] = []
    faults: list[str] = []
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError_LibraryNotFound:
        return [], []
    except GpuError as fault:
        return [], [str(fault)]
    for index in range(count):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            memory = None
            with suppress(pynvml.NVMLError_NotSupported):
                memory = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
            found.append(Gpu(index, pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetName(handle), memory))
        except GpuError as fault:
            faults.append(f"GPU {index}: {fault}")
    return found, faults


def visible(found: Sequence[Gpu], stated: str | None) -> list[Gpu]:
    """The GPUs that CUDA_VISIBLE_DEVICES (`stated`) leaves visible, in its order; None leaves all. Read as CUDA does:
    numbers or UUID prefixes, up to the first that matches nothing. MIG instances are kept as named.
    """
    if stated is None:
        return list(found)
    chosen: list[Gpu] = []
    for word in map(str.strip, stated.split(",")):
        named = [gpu for gpu in found if word == str(gpu.index) or (word[:4] == "GPU-" and gpu.uuid.startswith(word))]
        if word.startswith("MIG-"):
            named = [Gpu(len(chosen), word, "a part of a GPU")]
        if not named:
            break
        chosen.append(named[0])
    return chosen


def processes_on(uuid: str) -> list[int]:
    """The ids of the processes that compute on a GPU; in a container they may be those of its host. Raises GpuError."""
    processes = pynvml.nvmlDeviceGetComputeRunningProcesses(pynvml.nvmlDeviceGetHandleByUUID(uuid))
    return [int(process.pid) for process in processes]


def memory_in_use(uuids: Sequence[str]) -> tuple[int, ...]:
    """Bytes in use on each GPU, the driver's part included; empty where that cannot be measured."""
    try:
        handles = [pynvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids]
        return tuple(int(pynvml.nvmlDeviceGetMemoryInfo(handle).used) for handle in handles)
    except GpuError:  # such as a GPU that fell off the bus
        return ()

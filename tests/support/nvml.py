"""NVIDIA's management library as a test has it: its functions are replaced, its errors are the real ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pynvml
import pytest

Users = Callable[[str], Sequence[int]]
"""The processes that compute on a GPU, by its UUID."""
Memory = Callable[[str], SimpleNamespace]


def idle(uuid: str) -> Sequence[int]:
    return ()


def whole(uuid: str) -> SimpleNamespace:
    return SimpleNamespace(total=143771 * 2**20, used=0)


def nvml(
    patch: pytest.MonkeyPatch, uuids: Sequence[str] = (), users: Users = idle, memory: Memory = whole,
    fault: type[pynvml.NVMLError] | None = None,
) -> None:  # fmt: skip
    """Let this process see these GPUs; `fault`: what the driver answers instead."""

    def start() -> None:
        if fault:
            raise fault

    def by_uuid(uuid: str) -> str:
        if uuid not in uuids:
            raise pynvml.NVMLError_NotFound
        return uuid

    patch.setattr(pynvml, "nvmlInit", start)
    patch.setattr(pynvml, "nvmlDeviceGetCount", lambda: len(uuids))
    patch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: uuids[index])
    patch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", by_uuid)
    patch.setattr(pynvml, "nvmlDeviceGetUUID", lambda handle: handle)
    patch.setattr(pynvml, "nvmlDeviceGetName", lambda handle: "NVIDIA H200")
    patch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", memory)
    patch.setattr(
        pynvml, "nvmlDeviceGetComputeRunningProcesses",
        lambda handle: [SimpleNamespace(pid=pid, usedGpuMemory=None) for pid in users(handle)],
    )  # fmt: skip

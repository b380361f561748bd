"""Checks of the GPUs and slots: which there are, and which processes use them."""

from __future__ import annotations

from pathlib import Path

from flows.cli.doctor.machine import Check, gib
from tasks.machine.gpus import Gpu, GpuError, find, processes_on
from tasks.machine.slots import Slots, describe, holder


def gpus() -> Check:
    """Each GPU with its memory and the processes that use it; another program would slow training down."""
    found, faults = find()
    if not found and not faults:
        remedy = "if the machine has a GPU, install NVIDIA's driver"
        return Check("gpus", "note", "no GPU with NVIDIA's driver: programs train on the CPU", remedy, {"gpus": []})
    users: dict[str, list[int]] = {}
    for gpu in found:
        try:
            users[gpu.uuid] = processes_on(gpu.uuid)
        except GpuError as fault:
            faults.append(f"GPU {gpu.index}: {fault}")
    remedies = ["wait for the programs, or choose a free GPU with CUDA_VISIBLE_DEVICES"] * any(users.values())
    remedies += ["run `nvidia-smi`"] * bool(faults)
    fact = "; ".join([*(_described(gpu, users.get(gpu.uuid, [])) for gpu in found), *faults])
    details = [
        {"index": gpu.index, "uuid": gpu.uuid, "name": gpu.name, "memory_bytes": gpu.memory, "used_bytes": gpu.used,
         "used_by": users.get(gpu.uuid, [])}
        for gpu in found
    ]  # fmt: skip
    return Check(
        "gpus", "bad" if not found else "note" if remedies else "ok", fact, "; ".join(remedies), {"gpus": details}
    )


def slots(home: Path) -> Check:
    """Slots that are held: GPUs of this machine, and the cores of this home."""
    every = {**Slots.of_gpus(find()[0]).locks, **Slots.of_cores(home).locks}
    held = {name: pid for name, (lock,) in every.items() if (pid := holder(lock))}
    fact = "; ".join(f"{name} is held by {describe(pid)}" for name, pid in held.items()) or "none is held"
    return Check("slots", "ok", fact, details={"slots": [{"name": name, "held_by": pid} for name, pid in held.items()]})


def _described(gpu: Gpu, users: list[int]) -> str:
    size = gib(gpu.memory) if gpu.memory is not None else "memory unknown"
    used = f"used by {', '.join(map(describe, users))}" if users else "free"
    return f"{gpu.index}: {gpu.name}, {size}, {used}"

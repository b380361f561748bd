"""Which GPUs and slots this machine has and who holds them, as `nightshift doctor` tells it."""

from __future__ import annotations

import os
from pathlib import Path

from flows.cli.doctor.machine import Check, gib
from tasks.machine import file_locks
from tasks.machine.gpus import COMMAND, GIB, Gpu, GpuProcess, ask_gpus, ask_holders, can_be_asked, known
from tasks.machine.slots import cpu_prefix
from tasks.system import orphans
from tasks.system.commands import Unanswered, command_of


def gpus() -> Check:
    """Each GPU with its memory and who holds it."""
    if not can_be_asked():
        fact = f"no GPU, for there is no {COMMAND}: programs train on the CPU"
        return Check("gpus", "note", fact, "if there is one, install NVIDIA's driver", {"gpus": []})
    try:
        (found, words), (named, more) = ask_gpus(), ask_holders()
    except (Unanswered, OSError) as silent:
        remedy = f"run `{COMMAND}` yourself; if it is only slow, `{COMMAND} -pm 1` keeps the driver loaded"
        return Check("gpus", "bad", str(silent), remedy, {"gpus": []})
    return judged(found, [known(holder) for holder in named], [*words, *more])


def judged(found: list[Gpu], holders: list[GpuProcess], words: list[str]) -> Check:
    """What that means for a campaign: a GPU that somebody else computes on is slower for us."""
    details = {"gpus": [_document(gpu, holders) for gpu in found]}
    said = f"{COMMAND} says: {'; '.join(words)}" if words else ""
    if not found:
        fact = said or f"{COMMAND} lists no GPU: programs train on the CPU"
        return Check("gpus", "bad" if said else "note", fact, f"run `{COMMAND}` yourself", details)
    uuids = {gpu.uuid for gpu in found}
    apart = [holder for holder in holders if holder.gpu not in uuids]
    facts = [_described(gpu, [one for one in holders if one.gpu == gpu.uuid]) for gpu in found]
    facts += [f"on {holder.gpu}: {_holder(holder)}" for holder in apart]
    strangers = any(not holder.trial for holder in holders)
    remedies = ["wait for the others, or choose a free GPU with CUDA_VISIBLE_DEVICES"] * strangers
    remedies += [f"run `{COMMAND}` yourself"] * bool(said)
    fact = "; ".join([*facts, said] if said else facts)
    return Check("gpus", "note" if remedies else "ok", fact, "; ".join(remedies), details)


def slots(home: Path) -> Check:
    """Which slots are held: GPUs of this machine, and CPU slots of this home; a held one is as it should be."""
    facts: list[str] = []
    remedies: list[str] = []
    details: list[dict[str, object]] = []
    for lock in sorted(file_locks.folder().glob("*.lock")):
        prefix = cpu_prefix(home)
        if not lock.stem.startswith((prefix, "gpu-")):
            continue
        name = lock.stem.replace(prefix, "cpu-")
        held = file_locks.is_held(lock)
        left = [] if held else _left(lock.with_suffix(".fence"))
        holder = file_locks.noted(lock) if held else None
        details.append({"name": name, "held_by": holder and holder.pid, "left": left})
        if held:
            facts.append(f"{name} is held by {file_locks.describe(lock)}")
        elif left:
            facts.append(f"{name} is not held, but used by {', '.join(map(_called, left))}")
            remedies.append(
                "the next training there ends what an earlier one left; end yourself what is not ours"
            )
    fact = "; ".join(facts) or "none is held"
    return Check("slots", "note" if remedies else "ok", fact, "".join(remedies[:1]), {"slots": details})


def _left(fence: Path) -> list[int]:
    """Processes behind a fence whose lock is free."""
    if not fence.exists():
        return []
    descriptor = file_locks.open_fence(fence)
    try:
        return [process.pid for process in orphans.having_open(descriptor)]
    finally:
        os.close(descriptor)


def _called(pid: int) -> str:
    return f"process {pid} ({command_of(pid) or 'a program'})"


def _described(gpu: Gpu, holders: list[GpuProcess]) -> str:
    size = gib(gpu.memory) if gpu.memory is not None else "memory not told"
    if holders:
        held = f"held by {', '.join(_holder(holder) for holder in holders)}"
    elif gpu.used is not None and gpu.used > GIB:  # the driver keeps less than that for itself
        held = f"{gib(gpu.used)} held by what cannot be seen from here"
    else:
        held = "free"
    return f"{gpu.index}: {gpu.name}, {size}, {held}"


def _holder(holder: GpuProcess) -> str:
    what = f"trial {holder.trial}" if holder.trial else holder.command or "a program without a name"
    pid = f"pid {holder.pid}" if holder.pid is not None else "pid not told"
    return f"{what} ({pid}{f', {gib(holder.memory)}' if holder.memory is not None else ''})"


def _document(gpu: Gpu, holders: list[GpuProcess]) -> dict[str, object]:
    return {
        "index": gpu.index, "uuid": gpu.uuid, "name": gpu.name,
        "memory_bytes": gpu.memory, "used_bytes": gpu.used,
        "held_by": [
            {"pid": one.pid, "command": one.command, "memory_bytes": one.memory, "trial": one.trial or None}
            for one in holders
            if one.gpu == gpu.uuid
        ],
    }  # fmt: skip

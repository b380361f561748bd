"""Checks of the GPUs and slots: which there are, and which processes use them."""

from __future__ import annotations

from pathlib import Path

from flows.cli.doctor.machine import Check, gib
from tasks.machine.gpus import COMMAND, GIB, Gpu, GpuProcess, ask_gpus, ask_holders, can_be_asked, known
from tasks.machine.slots import cpu_prefix, describe, locks_folder, noted
from tasks.system import orphans
from tasks.system.commands import Unanswered, command_of


def gpus() -> Check:
    """Each GPU with its memory and the processes that use it."""
    if not can_be_asked():
        fact = f"no GPU: {COMMAND} is not installed, programs train on the CPU"
        return Check("gpus", "note", fact, "if the machine has a GPU, install NVIDIA's driver", {"gpus": []})
    try:
        (listed, words), (processes, more) = ask_gpus(), ask_holders()
    except (Unanswered, OSError) as silent:
        remedy = f"run `{COMMAND}`; if it is only slow, `{COMMAND} -pm 1` keeps the driver loaded"
        return Check("gpus", "bad", str(silent), remedy, {"gpus": []})
    return judged(listed, [known(process) for process in processes], [*words, *more])


def judged(listed: list[Gpu], holders: list[GpuProcess], words: list[str]) -> Check:
    """Judge what nvidia-smi printed; a GPU that another program uses slows training down."""
    details = {"gpus": [_document(gpu, holders) for gpu in listed]}
    warnings = f"{COMMAND} says: {'; '.join(words)}" if words else ""
    if not listed:
        fact = warnings or f"{COMMAND} lists no GPU: programs train on the CPU"
        return Check("gpus", "bad" if warnings else "note", fact, f"run `{COMMAND}`", details)
    uuids = {gpu.uuid for gpu in listed}
    facts = [_described(gpu, [holder for holder in holders if holder.gpu == gpu.uuid]) for gpu in listed]
    facts += [f"on {holder.gpu}: {_holder(holder)}" for holder in holders if holder.gpu not in uuids]
    others = any(not holder.trial for holder in holders)
    remedies = ["wait for the other programs, or choose a free GPU with CUDA_VISIBLE_DEVICES"] * others
    remedies += [f"run `{COMMAND}`"] * bool(warnings)
    fact = "; ".join([*facts, warnings] if warnings else facts)
    return Check("gpus", "note" if remedies else "ok", fact, "; ".join(remedies), details)


def slots(home: Path) -> Check:
    """Slots that are held: GPU slots of this machine, and CPU slots of this home."""
    facts: list[str] = []
    details: list[dict[str, object]] = []
    prefix = cpu_prefix(home)
    for note in sorted(locks_folder().glob("*.holder")):
        if not note.stem.startswith((prefix, "gpu-")):
            continue
        name, engine = note.stem.replace(prefix, "cpu-"), noted(note)
        is_held = orphans.is_alive(engine)
        left = [] if is_held else [process.pid for process in orphans.left_by(engine)]
        details.append({"name": name, "held_by": int(engine.split()[0]) if is_held else None, "left": left})
        if is_held:
            facts.append(f"{name} is held by {describe(engine)}")
        elif left:
            used_by = ", ".join(f"process {pid} ({command_of(pid) or 'a program'})" for pid in left)
            facts.append(f"{name} is free, but still used by {used_by}, of an engine that was killed")
    fact = "; ".join(facts) or "none is held"
    remedy = "the next training there ends them" if any(one["left"] for one in details) else ""
    return Check("slots", "note" if remedy else "ok", fact, remedy, {"slots": details})


def _described(gpu: Gpu, holders: list[GpuProcess]) -> str:
    size = gib(gpu.memory) if gpu.memory is not None else "memory unknown"
    if holders:
        held = f"held by {', '.join(_holder(holder) for holder in holders)}"
    elif gpu.used is not None and gpu.used > GIB:  # the driver keeps less than that for itself
        held = f"{gib(gpu.used)} used by processes that are not visible here"
    else:
        held = "free"
    return f"{gpu.index}: {gpu.name}, {size}, {held}"


def _holder(holder: GpuProcess) -> str:
    what = f"trial {holder.trial}" if holder.trial else holder.command or "an unnamed program"
    pid = f"pid {holder.pid}" if holder.pid is not None else "pid unknown"
    return f"{what} ({pid}{f', {gib(holder.memory)}' if holder.memory is not None else ''})"


def _document(gpu: Gpu, holders: list[GpuProcess]) -> dict[str, object]:
    return {
        "index": gpu.index, "uuid": gpu.uuid, "name": gpu.name,
        "memory_bytes": gpu.memory, "used_bytes": gpu.used,
        "held_by": [
            {"pid": each.pid, "command": each.command, "memory_bytes": each.memory, "trial": each.trial or None}
            for each in holders
            if each.gpu == gpu.uuid
        ],
    }  # fmt: skip

"""Which GPUs this machine has and who holds them, as NVIDIA's own command tells it.

Read from `nvidia-smi --query-gpu=... --format=csv,noheader,nounits` and `--query-compute-apps=...`. The format and
`[N/A]` are described in the manual, nvidia-smi(1); the fields in `nvidia-smi --help-query-gpu` and
`--help-query-compute-apps`: a line for each GPU or process, fields parted by a comma and a space, memory in MiB,
and in brackets why a field has no value. It may print warnings between the lines.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import psutil

from flows.checkup import GIB, Check, Unanswered, ask, command_of, gib
from tasks.walls.orphans import MARKER

COMMAND = "nvidia-smi"
FORMAT = "--format=csv,noheader,nounits"
GPU_FIELDS = ("index", "uuid", "memory.total", "memory.used", "name")
PROCESS_FIELDS = ("gpu_uuid", "pid", "used_memory", "process_name")
"""The name comes last: it is the one that may hold a comma."""
NO_VALUE = ("n/a", "not supported", "not found", "insufficient permissions", "unknown", "")
MIB = 2**20
T = TypeVar("T")


@dataclass(frozen=True)
class Gpu:
    """A GPU; sizes in bytes, None where the driver does not tell."""

    index: int
    uuid: str
    name: str
    memory: int | None
    used: int | None


@dataclass(frozen=True)
class Holder:
    """A process that computes on a GPU."""

    gpu: str
    """The uuid of the GPU, or of a part of one."""
    pid: int | None
    memory: int | None
    """Bytes of the GPU's memory."""
    command: str
    trial: str = ""
    """The campaign and trial that it belongs to, as in night-1/0007; empty when it is none of ours."""


def gpus() -> Check:
    """Each GPU with its memory and who holds it."""
    if shutil.which(COMMAND) is None:
        fact = f"no GPU, for there is no {COMMAND}: programs train on the CPU"
        return Check("gpus", "note", fact, "if there is one, install NVIDIA's driver", {"gpus": []})
    try:
        found, words = parse_gpus(ask([COMMAND, f"--query-gpu={','.join(GPU_FIELDS)}", FORMAT]))
        named, more = parse_processes(
            ask([COMMAND, f"--query-compute-apps={','.join(PROCESS_FIELDS)}", FORMAT])
        )
    except (Unanswered, OSError) as silent:
        remedy = f"run `{COMMAND}` yourself; if it is only slow, `{COMMAND} -pm 1` keeps the driver loaded"
        return Check("gpus", "bad", str(silent), remedy, {"gpus": []})
    return judged(found, [known(holder) for holder in named], [*words, *more])


def judged(found: list[Gpu], holders: list[Holder], words: list[str]) -> Check:
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


def parse_gpus(text: str) -> tuple[list[Gpu], list[str]]:
    """The GPUs, and the lines that tell of none."""

    def gpu(index: str, uuid: str, memory: str, used: str, name: str) -> Gpu:
        return Gpu(int(index), uuid, name, _bytes(memory), _bytes(used))

    return _parsed(text, len(GPU_FIELDS), gpu)


def parse_processes(text: str) -> tuple[list[Holder], list[str]]:
    """The processes that compute, and the lines that tell of none."""

    def holder(uuid: str, pid: str, memory: str, name: str) -> Holder:
        return Holder(uuid, _whole(pid), _bytes(memory), "" if _has_no_value(name) else name)

    return _parsed(text, len(PROCESS_FIELDS), holder)


def known(holder: Holder) -> Holder:
    """With what this machine's own list of processes tells of it; in a container it may tell nothing."""
    if holder.pid is None:
        return holder
    trial = ""
    with contextlib.suppress(psutil.Error):  # it is somebody else's, which cannot be read, or gone
        trial = psutil.Process(holder.pid).environ().get(MARKER, "")
    return Holder(holder.gpu, holder.pid, holder.memory, command_of(holder.pid) or holder.command, trial)


def _parsed(text: str, fields: int, build: Callable[..., T]) -> tuple[list[T], list[str]]:
    rows: list[T] = []
    words: list[str] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        try:
            rows.append(build(*(part.strip() for part in _split(line, fields))))
        except ValueError:
            words.append(line)
    return rows, words


def _split(line: str, fields: int) -> list[str]:
    parts = line.split(",", fields - 1)
    if len(parts) != fields:
        raise ValueError(f"{fields} fields are wanted, got {line!r}")
    return parts


def _has_no_value(text: str) -> bool:
    return text.strip("[]").lower() in NO_VALUE


def _whole(text: str) -> int | None:
    """A number; None where it says that it has none, which leaves out what it says of a broken GPU."""
    return None if _has_no_value(text) else int(text)


def _bytes(mebibytes: str) -> int | None:
    number = _whole(mebibytes)
    return None if number is None else number * MIB


def _described(gpu: Gpu, holders: list[Holder]) -> str:
    size = gib(gpu.memory) if gpu.memory is not None else "memory not told"
    if holders:
        held = f"held by {', '.join(_holder(holder) for holder in holders)}"
    elif gpu.used is not None and gpu.used > GIB:  # the driver keeps less than that for itself
        held = f"{gib(gpu.used)} held by what cannot be seen from here"
    else:
        held = "free"
    return f"{gpu.index}: {gpu.name}, {size}, {held}"


def _holder(holder: Holder) -> str:
    what = f"trial {holder.trial}" if holder.trial else holder.command or "a program without a name"
    pid = f"pid {holder.pid}" if holder.pid is not None else "pid not told"
    return f"{what} ({pid}{f', {gib(holder.memory)}' if holder.memory is not None else ''})"


def _document(gpu: Gpu, holders: list[Holder]) -> dict[str, object]:
    return {
        "index": gpu.index, "uuid": gpu.uuid, "name": gpu.name,
        "memory_bytes": gpu.memory, "used_bytes": gpu.used,
        "held_by": [
            {"pid": one.pid, "command": one.command, "memory_bytes": one.memory, "trial": one.trial or None}
            for one in holders
            if one.gpu == gpu.uuid
        ],
    }  # fmt: skip

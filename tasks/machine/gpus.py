"""The GPUs of this machine and the processes that compute on them, from `nvidia-smi`.

Source: nvidia-smi(1), and `nvidia-smi --help-query-gpu` and `--help-query-compute-apps` for the fields. One line per
GPU or process, memory in MiB, and in brackets why a field has no value. Warnings may stand between the lines.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import psutil

from tasks.system.commands import ask, command_of
from tasks.system.orphans import MARKER

COMMAND = "nvidia-smi"
FORMAT = "--format=csv,noheader,nounits"
GPU_FIELDS = ("index", "uuid", "memory.total", "memory.used", "name")
PROCESS_FIELDS = ("gpu_uuid", "pid", "used_memory", "process_name")
"""The name comes last, as only a name may hold a comma."""
NO_VALUE = ("n/a", "not supported", "not found", "insufficient permissions", "unknown", "")
GIB, MIB = 2**30, 2**20
T = TypeVar("T")


@dataclass(frozen=True)
class Gpu:
    """A GPU; sizes in bytes, None where the driver reports none."""

    index: int
    uuid: str
    name: str
    memory: int | None
    used: int | None


@dataclass(frozen=True)
class GpuProcess:
    """A process that computes on a GPU."""

    gpu: str
    """UUID of the GPU or MIG instance."""
    pid: int | None
    memory: int | None
    """Bytes of the GPU's memory."""
    command: str
    trial: str = ""
    """Its campaign and trial, as in night-1/0007; empty when it is not Nightshift's."""


def can_be_asked() -> bool:
    return shutil.which(COMMAND) is not None


def ask_gpus() -> tuple[list[Gpu], list[str]]:
    """The GPUs of this machine, and the other lines printed. Raises Unanswered, and OSError without the command."""
    return parse_gpus(ask([COMMAND, f"--query-gpu={','.join(GPU_FIELDS)}", FORMAT]))


def ask_holders() -> tuple[list[GpuProcess], list[str]]:
    """The processes that compute on any of them, and the words that tell of none; raises as `ask_gpus`."""
    return parse_processes(ask([COMMAND, f"--query-compute-apps={','.join(PROCESS_FIELDS)}", FORMAT]))


def visible(found: Sequence[Gpu], stated: str | None) -> list[Gpu]:
    """The GPUs that CUDA_VISIBLE_DEVICES (`stated`) leaves visible, in its order; None leaves all.

    Read as CUDA does: numbers or UUID prefixes, up to the first that matches nothing. Numbers count as in nvidia-smi,
    which is CUDA's order where all GPUs are alike or CUDA_DEVICE_ORDER is PCI_BUS_ID. MIG instances are kept as named.
    """
    if stated is None:
        return list(found)
    chosen: list[Gpu] = []
    for word in map(str.strip, stated.split(",")):
        part = [Gpu(len(chosen), word, "a part of a GPU", None, None)] if word.startswith("MIG-") else []
        is_prefix = word.startswith("GPU-")
        named = [gpu for gpu in found if word == str(gpu.index) or (is_prefix and gpu.uuid.startswith(word))]
        if not (part or named):
            break
        chosen.append([*part, *named][0])
    return chosen


def parse_gpus(text: str) -> tuple[list[Gpu], list[str]]:
    """The GPUs, and the other lines."""

    def gpu(line: str) -> Gpu:
        index, uuid, memory, used, name = map(str.strip, line.split(",", 4))
        return Gpu(int(index), uuid, name, _bytes(memory), _bytes(used))

    return _parsed(text, gpu)


def parse_processes(text: str) -> tuple[list[GpuProcess], list[str]]:
    """The processes that compute, and the lines that tell of none."""

    def holder(line: str) -> GpuProcess:
        uuid, pid, memory, name = map(str.strip, line.split(",", 3))
        return GpuProcess(uuid, _whole(pid), _bytes(memory), "" if _has_no_value(name) else name)

    return _parsed(text, holder)


def known(holder: GpuProcess) -> GpuProcess:
    """With what this machine's own list of processes tells of it; in a container it may tell nothing."""
    if holder.pid is None:
        return holder
    trial = ""
    with contextlib.suppress(psutil.Error):  # another user's, or gone
        trial = psutil.Process(holder.pid).environ().get(MARKER, "")
    return replace(holder, command=command_of(holder.pid) or holder.command, trial=trial)


def _parsed(text: str, build: Callable[[str], T]) -> tuple[list[T], list[str]]:
    rows: list[T] = []
    words: list[str] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        try:
            rows.append(build(line))
        except ValueError:  # another number of fields, or a text where a number is wanted
            words.append(line)
    return rows, words


def _has_no_value(text: str) -> bool:
    return text.strip("[]").lower() in NO_VALUE


def _whole(text: str) -> int | None:
    """A number, or None for "no value". Raises ValueError for other texts, such as those of a broken GPU."""
    return None if _has_no_value(text) else int(text)


def _bytes(mebibytes: str) -> int | None:
    return (number := _whole(mebibytes)) and number * MIB

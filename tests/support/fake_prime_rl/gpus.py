"""`nvidia-smi` of a machine with two GPUs; their memory is held by whoever says so in its command line."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from pathlib import Path

from tests.support.fake_prime_rl.common import CHECKOUT, mode_of

HERE = hashlib.sha256(str(CHECKOUT).encode()).hexdigest()[:8]
"""Of this checkout: another one beside it has other GPUs."""
GPUS = tuple(f"GPU-{HERE}-0000-0000-0000-00000000000{index}" for index in range(2))
HELD_MIB = 40_000
CAPABILITY, DRIVER = "9.0", "570.86.15"
"""Of Hopper, where prime-rl takes an attention that not every model works with."""
TOTAL_MIB, IDLE_MIB = 81_559, 3
FOREIGN = (0, 4_194_303, 60_000)
"""GPU, process and MiB of somebody else, whom no /proc shows."""


PATTERN = rf"holds-gpu={HERE}:(\d+):(\d+)".encode()


def holds(gpu: str) -> str:
    """What stands in the command line of who holds memory of a GPU."""
    return f"holds-gpu={HERE}:{gpu}:{HELD_MIB}"


def main(arguments: list[str]) -> int:
    held = [*holders(), *([FOREIGN] if mode_of(Path.cwd()) == "gpu taken" else [])]
    used = [IDLE_MIB + sum(mib for gpu, _, mib in held if gpu == index) for index in range(len(GPUS))]
    values = {"index": range(len(GPUS)), "uuid": GPUS, "memory.used": used, "memory.total": [TOTAL_MIB] * 2}
    values |= {"name": ["Stand-in"] * 2, "compute_cap": [CAPABILITY] * 2, "driver_version": [DRIVER] * 2}
    for word in arguments:
        key, _, fields = word.partition("=")
        if key == "--query-gpu":
            for row in zip(*(values[field] for field in fields.split(",")), strict=True):
                sys.stdout.write(", ".join(map(str, row)) + "\n")
        if key == "--query-compute-apps":
            for gpu, pid, mib in held:
                names = {"gpu_uuid": GPUS[gpu], "pid": pid, "used_memory": mib, "process_name": "python"}
                sys.stdout.write(", ".join(str(names[field]) for field in fields.split(",")) + "\n")
    return 0


def holders() -> list[tuple[int, int, int]]:
    """GPU, process and MiB of everybody who says so."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            said = re.search(PATTERN, path.read_bytes())
        except OSError:
            continue
        if said and int(path.parent.name) != os.getpid():
            found.append((int(said[1]), int(path.parent.name), int(said[2])))
    return found

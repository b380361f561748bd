"""`nvidia-smi` of a machine with two GPUs."""

from __future__ import annotations

import hashlib
import sys

from tests.support.fake_prime_rl.common import CHECKOUT

HERE = hashlib.sha256(str(CHECKOUT).encode()).hexdigest()[:8]
"""Of this checkout: another one beside it has other GPUs."""
GPUS = tuple(f"GPU-{HERE}-0000-0000-0000-00000000000{index}" for index in range(2))


def main(arguments: list[str]) -> int:
    values = {"index": range(len(GPUS)), "uuid": GPUS}
    for word in arguments:
        key, _, fields = word.partition("=")
        if key == "--query-gpu":
            for row in zip(*(values[field] for field in fields.split(",")), strict=True):
                sys.stdout.write(", ".join(map(str, row)) + "\n")
    return 0

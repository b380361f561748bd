"""The machine's resources: sockets, shared memory, two GPUs and a block of ports."""

from __future__ import annotations

import random
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from prime_rl_parts import Failed
from prime_rl_parts.reasons import decisive
from prime_rl_parts.run import Run

DENIED = "prime-rl needs sockets and shared memory in its sandbox: install bubblewrap, and leave network = false"


def commit_of(checkout: Path) -> str:
    """The commit of prime-rl's checkout, whoever owns it; empty where git does not tell."""
    words = ["git", "-c", "safe.directory=*", "-C", str(checkout), "rev-parse", "HEAD"]
    with suppress(OSError):
        return subprocess.run(words, capture_output=True, text=True).stdout.strip()
    return ""


def check_sandbox() -> None:
    """Refuse to begin where the sandbox denies the sockets or shared memory that prime-rl needs."""
    try:
        for family in (socket.AF_INET, socket.AF_UNIX):
            socket.socket(family).close()
        tempfile.TemporaryFile(dir="/dev/shm").close()
    except OSError as denied:
        raise Failed(f"refused: {DENIED} ({denied.filename or 'socket'}: {denied.strerror})") from denied


def list_gpus(run: Run) -> list[tuple[str, str]]:
    """Number and UUID of the GPUs that nvidia-smi lists; empty where it is not installed."""
    if (command := shutil.which("nvidia-smi", path=run.variables()["PATH"])) is None:
        return []
    words = [command, "--query-gpu=index,uuid", "--format=csv,noheader,nounits"]
    try:
        listed = subprocess.run(words, capture_output=True, text=True, timeout=30)
    except subprocess.TimeoutExpired as late:
        raise Failed("did not start: nvidia-smi does not answer: is a GPU dead?", retry=True) from late
    if listed.returncode:
        raise Failed(f"did not start: nvidia-smi: {decisive(listed.stdout + listed.stderr)}", retry=True)
    return re.findall(r"^(\d+), *(\S+)", listed.stdout, re.MULTILINE)  # between warnings


def choose_gpus(listed: Sequence[tuple[str, str]], stated: str | None) -> tuple[str, ...]:
    """The numbers of the two GPUs to use; `rl` accepts no UUIDs.

    Args:
        listed: As of `list_gpus`.
        stated: CUDA_VISIBLE_DEVICES; None for all GPUs.
    """
    numbers = {name: number for number, uuid in listed for name in (number, uuid)}
    words = [number for number, _ in listed] if stated is None else re.findall(r"[^,\s]+", stated)
    if len(words) < 2:
        whose = "nvidia-smi lists" if stated is None else f"CUDA_VISIBLE_DEVICES={stated!r} names"
        raise Failed(f"refused: prime-rl needs two GPUs, one for vLLM and one to train; {whose} {len(words)}")
    for word in words[:2]:
        if word not in numbers and (listed or not word.isdigit()):
            raise Failed(f"did not start: of GPU {word} nvidia-smi knows no number", retry=True)
    return tuple(numbers.get(word, word) for word in words[:2])


def find_port() -> int:
    """The first port of a free block, drawn at random: two trainings that begin at once rarely choose the same.

    vLLM's router uses it and the one 21,000 above; next come vLLM, two for rollouts, two for questions.
    """
    for port in random.sample(range(8000, 11_200, 16), 200):
        if all(is_free(port + offset) for offset in (0, 1, 2, 3, 4, 5, 21_000)):
            return port
    raise Failed("port in use: no block of six ports is free from 8000 to 11200", retry=True)


def is_free(port: int) -> bool:
    with socket.socket() as probe, suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("0.0.0.0", port))
        return True
    return False

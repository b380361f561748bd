"""The machine's resources: sockets, shared memory, open files, two GPUs and a block of ports."""

from __future__ import annotations

import re
import resource
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from prime_rl_parts import Failed
from prime_rl_parts.ends import marker_of, sweep
from prime_rl_parts.reasons import decisive
from prime_rl_parts.run import OURS, Run

SHARED = "/dev/shm"
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
        tempfile.TemporaryFile(dir=SHARED).close()
    except OSError as denied:
        raise Failed(f"refused: {DENIED} ({denied.filename or 'socket'}: {denied.strerror})") from denied


def open_many_files() -> None:
    """Let this process, and those that it starts, open as many files as the machine allows."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def ask(run: Run, query: str) -> list[list[str]]:
    """The rows of an nvidia-smi query as lists of fields; empty where it is not installed."""
    if (command := shutil.which("nvidia-smi", path=run.variables()["PATH"])) is None:
        return []
    words = [command, f"--query-{query}", "--format=csv,noheader,nounits"]
    try:
        told = subprocess.run(words, capture_output=True, text=True, timeout=30)
    except subprocess.TimeoutExpired as late:
        raise Failed("did not start: nvidia-smi does not answer: is a GPU dead?", retry=True) from late
    if told.returncode:
        raise Failed(f"did not start: nvidia-smi: {decisive(told.stdout + told.stderr)}", retry=True)
    rows = [[part.strip() for part in line.split(",")] for line in told.stdout.splitlines()]
    return [row for row in rows if re.match(r"\d+$|GPU-|MIG-", row[0])]  # between warnings


def choose_gpus(found: Sequence[tuple[int, str]], stated: str | None) -> tuple[int, ...]:
    """The numbers of the two GPUs to use; `rl` accepts no UUIDs.

    Args:
        found: Number and UUID of the GPUs that nvidia-smi lists; empty where it is not installed.
        stated: CUDA_VISIBLE_DEVICES; None for all GPUs.
    """
    every = ",".join(str(number) for number, _ in found)
    words = [word.strip() for word in (every if stated is None else stated).split(",") if word.strip()]
    if len(words) < 2:
        whose = "nvidia-smi lists" if stated is None else f"CUDA_VISIBLE_DEVICES={stated!r} names"
        raise Failed(f"refused: prime-rl needs two GPUs, one for vLLM and one to train; {whose} {len(words)}")
    chosen = []
    for word in words[:2]:
        numbers = [number for number, uuid in found if word == str(number) or uuid.startswith(word)]
        if not numbers and (found or not word.isdigit()):
            raise Failed(f"did not start: of GPU {word} nvidia-smi knows no number", retry=True)
        chosen.append(numbers[0] if numbers else int(word))
    return tuple(chosen)


def taken(run: Run) -> dict[str, str]:
    """Descriptions of our GPUs whose memory is in use, by UUID; unknown use (`[N/A]`) counts as none."""
    rows = ask(run, "gpu=index,uuid,memory.used,memory.total")
    return {
        uuid: f"GPU {number} has {used} of {total} MiB in use"
        for number, uuid, used, total in rows
        if int(number) in run.gpus and used.isdigit() and int(used) > run.settings.gpu_used_mb
    }


def free_gpus(run: Run) -> None:
    """Wait until our GPUs' memory is free, and kill the remaining processes of earlier runs.

    A process there with our marker belongs to a dead run, since a GPU is assigned to one training at a time.
    """
    holders: list[int] = []
    for last in (False, True):
        deadline = time.monotonic() + run.settings.gpu_deadline
        while (held := taken(run)) and time.monotonic() < deadline:
            run.wait(min(2.0, run.settings.gpu_deadline / 10))
        if not held:
            return
        rows = ask(run, "compute-apps=gpu_uuid,pid,used_memory")
        holders = [int(pid) for uuid, pid, *_ in rows if uuid in held and pid.isdigit()]
        for marker in {marker_of(pid) for pid in holders} if not last else ():
            if marker.startswith(OURS):
                sweep(marker)
    who = ", ".join(f"process {pid}" for pid in holders[:4]) or "nobody to be seen"
    raise Failed(f"GPU memory is taken: {', '.join(held.values())}, by {who}", retry=True)


def find_port(first_gpu: int) -> int:
    """The first port of a free block; the search begins at a different block for each GPU.

    vLLM's router uses it and the one 21,000 above; next come vLLM, two for rollouts, two for questions.
    """
    for block in range(first_gpu % 16, 200, 16):
        port = 8000 + 16 * block
        if all(is_free(port + offset) for offset in (0, 1, 2, 3, 4, 5, 21_000)):
            return port
    raise Failed("port in use: no block of six ports is free from 8000 to 11200", retry=True)


def is_free(port: int) -> bool:
    with socket.socket() as probe, suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("0.0.0.0", port))
        return True
    return False

"""The output of the machine's commands, and the identity of a process."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

ASK_SECONDS = 4.0
START_TICK = 19
"""Index of a process's start time in /proc/PID/stat, counted after its name."""


class Unanswered(Exception):
    """A command failed or timed out; the message names it and quotes its output."""


def ask(command: Sequence[str], seconds: float = ASK_SECONDS, environment: Mapping[str, str] | None = None) -> str:
    """A command's output. Raises Unanswered if it failed or timed out, OSError if it cannot be started."""
    own = os.environ if environment is None else environment
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, env={**own, "LC_ALL": "C"}, text=True,
            errors="replace", timeout=seconds,
        )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        raise Unanswered(f"{command[0]} does not answer within {seconds:g} s") from late
    if done.returncode:
        words = " ".join((done.stderr or done.stdout).split())[:300] or "and says nothing"
        raise Unanswered(f"{command[0]} ends with status {done.returncode}: {words}")
    return done.stdout


def identity(pid: int) -> str:
    """The boot id and a process's start tick: unique, unlike a pid. Raises OSError when there is no such process."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {after_name[START_TICK]}"

"""The output of the machine's commands, and the identity of a process."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tasks.system.variables import variables

ASK_SECONDS = 4.0
START_TICK = 19
"""Index of a process's start time in /proc/PID/stat, counted after its name."""


class Unanswered(Exception):
    """A command failed or timed out; the message names it and quotes its output."""


def ask(command: Sequence[str], seconds: float = ASK_SECONDS, environment: Mapping[str, str] | None = None) -> str:
    """Run a command with these variables, or those of this process; its output.

    Raises:
        Unanswered: it failed or timed out.
        OSError: it cannot be started.
    """
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**(variables() if environment is None else environment), "LC_ALL": "C"},
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            said, complaint = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as late:
            os.killpg(process.pid, signal.SIGKILL)
            raise Unanswered(f"{command[0]} does not answer within {seconds:g} s") from late
    if process.returncode:
        words = " ".join((complaint or said).split())[:300] or "and says nothing"
        raise Unanswered(f"{command[0]} ends with status {process.returncode}: {words}")
    return said


def identity(pid: int) -> str:
    """The boot id and a process's start tick: unique, unlike a pid. Raises OSError when there is no such process."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {after_name[START_TICK]}"

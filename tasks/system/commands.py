"""The output of the machine's commands, and the identity of a process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from tasks.system.variables import variables

ASK_SECONDS = 4.0
BOOT = Path("/proc/sys/kernel/random/boot_id")
START_TICK = 19
"""Index of a process's start time in /proc/PID/stat, counted after its name."""


class Unanswered(Exception):
    """A command failed or timed out; the message names it and quotes its output."""


def ask(command: Sequence[str], seconds: float = ASK_SECONDS, environment: Mapping[str, str] | None = None) -> str:
    """Run a command; its output.

    Args:
        environment: Its variables; None: those of this process.

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


def command_of(pid: int) -> str:
    """The program of a process, and an interpreter's script or module. The arguments after it may hold secrets."""
    words: list[str] = []
    with contextlib.suppress(psutil.Error):  # it has just ended, or is another user's
        words = psutil.Process(pid).cmdline()
    if not words:
        return ""
    program, rest = Path(words[0]).name, words[1:]
    while program.startswith("python") and rest and rest[0].startswith("-"):
        option, *rest = rest
        if option in ("-m", "-c"):
            return f"{program} {option} {rest[0]}" if option == "-m" and rest else f"{program} {option} ..."
        rest = rest[1:] if option in ("-X", "-W") else rest
    return f"{program} {rest[0]}" if program.startswith("python") and rest else program


def identity(pid: int) -> str:
    """The boot id and a process's start tick: unique, unlike a pid. Raises OSError when there is no such process."""
    if not BOOT.exists():  # not Linux: the clock has to do
        try:
            return f"{psutil.Process(pid).create_time():.1f}"
        except psutil.Error as gone:
            raise ProcessLookupError(f"there is no process {pid}") from gone
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return f"{BOOT.read_text().strip()} {after_name[START_TICK]}"

"""Ask the machine: what a command of its own says, and which program a process is."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import psutil

ASK_SECONDS = 4.0
BOOT = Path("/proc/sys/kernel/random/boot_id")
START_TICK = 19
"""Where /proc/PID/stat says it, counted from behind the name."""


class Unanswered(Exception):
    """A command failed, or did not come to an end; the message says which, with its words."""


def ask(command: Sequence[str], seconds: float = ASK_SECONDS) -> str:
    """What a command prints.

    Raises:
        Unanswered: it fails, or has not ended in time. It is killed then, and not waited for: what hangs in a
            driver does not even end when it is killed.
        OSError: it cannot be started.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "LC_ALL": "C"},
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        said, complaint = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as late:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.5)
        raise Unanswered(f"{command[0]} does not answer within {seconds:g} s") from late
    if process.returncode:
        words = " ".join((complaint or said).split())[:300] or "and says nothing"
        raise Unanswered(f"{command[0]} ends with status {process.returncode}: {words}")
    return said


def command_of(pid: int) -> str:
    """The program of a process, of an interpreter also its script or module: what comes after may hold a secret."""
    try:
        words = psutil.Process(pid).cmdline()
    except psutil.Error:  # it has just ended, or is somebody else's
        return ""
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
    """The boot that a process lives in, and the tick at which it began: both stay when somebody sets the clock.

    Raises:
        OSError: there is no such process, or this is not Linux.
    """
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return f"{BOOT.read_text().strip()} {after_name[START_TICK]}"

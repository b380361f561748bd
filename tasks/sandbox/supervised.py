"""A supervisor (tasks/sandbox/supervisor.py) as the engine sees it: its process, and what it reports."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from tasks.sandbox import supervisor
from tasks.sandbox.child_environment import passed_on
from tasks.system.orphans import ENGINE, SUPERVISOR, this_engine

SUPERVISOR_SECONDS = 20.0
"""How long a supervisor may take to end everything; only processes that hang in the kernel need longer."""


class Supervised:
    """A supervisor's process and its report."""

    def __init__(self, process: subprocess.Popen[bytes], report: int) -> None:
        self.process, self.report = process, report
        self._heard = b""
        self.is_closed = False

    @property
    def pipes(self) -> list[IO[bytes]]:
        """Those to and from the program."""
        return [pipe for pipe in (self.process.stdin, self.process.stdout, self.process.stderr) if pipe is not None]

    @property
    def noise(self) -> IO[bytes]:
        """The program's standard error, with its standard output unless that is a pipe of its own."""
        noise = self.process.stderr or self.process.stdout
        assert noise is not None, "it is started with a pipe"
        return noise

    def hear(self) -> dict[str, Any]:
        """Its next message; empty when it has ended, or says nothing for SUPERVISOR_SECONDS."""
        while b"\n" not in self._heard:
            ready, _, _ = select.select([self.report], [], [], SUPERVISOR_SECONDS)
            chunk = os.read(self.report, 2**16) if ready else b""
            if not chunk:
                return {}
            self._heard += chunk
        line, _, self._heard = self._heard.partition(b"\n")
        told: dict[str, Any] = json.loads(line)  # only the supervisor holds the other end
        return told

    @property
    def has_more(self) -> bool:
        """Whether a further message has been read already."""
        return b"\n" in self._heard

    def close(self) -> None:
        """Close the pipes and the report of one that has ended. Safe to call again."""
        for pipe in self.pipes:
            pipe.close()
        if not self.is_closed:
            self.is_closed = True
            os.close(self.report)


def start(plan: Mapping[str, Any], *, marker: str, cwd: Path, pipes: bool) -> Supervised:
    """Start a supervisor with that plan. To the kernel, the end of the thread that starts it is the engine's. Raises
    OSError."""
    report, say = os.pipe()
    whole = json.dumps({**plan, "engine": os.getpid(), "report": say})
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", supervisor.__file__, whole],
            cwd=cwd,
            env={SUPERVISOR: marker, ENGINE: this_engine(), **passed_on()},
            stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if pipes else subprocess.STDOUT,
            bufsize=0,
            start_new_session=True,
            pass_fds=(say,),
        )
    except OSError:
        os.close(report)
        raise
    finally:
        os.close(say)
    return Supervised(process, report)

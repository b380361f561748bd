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
"""How long a supervisor may take to start or end everything; only processes that hang in the kernel need longer."""


class Supervised:
    """A supervisor's process and its report. Raises OSError."""

    def __init__(self, plan: Mapping[str, Any], *, marker: str, cwd: Path, pipes: bool) -> None:
        self.report, say = os.pipe()
        self._rest = b""
        self.told: dict[str, Any] = {}
        """All that it has reported."""
        told = json.dumps({**plan, "engine": os.getpid(), "report": say})
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", supervisor.__file__, told],
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
            os.close(self.report)
            raise
        finally:
            os.close(say)

    @property
    def pipes(self) -> list[IO[bytes]]:
        """Those to and from the program."""
        return [pipe for pipe in (self.process.stdin, self.process.stdout, self.process.stderr) if pipe is not None]

    @property
    def noise(self) -> IO[bytes]:
        """The program's standard error, with its standard output unless that is a pipe of its own."""
        return self.pipes[-1]

    def hear(self) -> bool:
        """Take in what it reports next; False when it has ended, or says nothing for SUPERVISOR_SECONDS."""
        ready, _, _ = select.select([self.report], [], [], SUPERVISOR_SECONDS)
        chunk = os.read(self.report, 2**16) if ready else b""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self.told |= json.loads(line)  # only the supervisor holds the other end
        return bool(chunk)

    def close(self) -> None:
        """Close the pipes and the report of one that has ended. To be called once."""
        for pipe in self.pipes:
            pipe.close()
        os.close(self.report)

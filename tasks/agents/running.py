"""Run a coding agent: without a sandbox, since it needs the network and its own login, but supervised like any program.

It is a session of its own below a supervisor (tasks/sandbox/supervisor.py): it cannot outlive its engine, and at its
end or time limit all of its processes are killed, detached ones too. Its standard input is closed.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from environments.limits import Limits
from tasks.sandbox.confinement import VisiblePaths
from tasks.sandbox.program import Program, Stopped
from tasks.system.clock import clock
from tasks.system.orphans import MARKER
from tasks.system.redact import scrub_text

LIMITS = Limits(scratch_gb=4, output_mb=16)
VIEW = VisiblePaths((), (), network=True, gpu=True)
"""`gpu`: like the drivers of one, the engines of these agents reserve far more address space than they use."""
KEPT = 4 * 2**20
"""Bytes of the end of its standard output that are kept: its last words."""
LOOK_SECONDS = 0.05
BEGIN = """\
import json, os, sys
variables = json.load(sys.stdin)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
try:
    os.execve(sys.argv[1], sys.argv[1:], variables)
except OSError as wrong:
    sys.exit(f"cannot start {sys.argv[1]}: {wrong.strerror}")
"""
"""Becomes the agent. Its variables, a key among them, come by a pipe: a command line can be read by everybody."""


@dataclass(frozen=True)
class Ended:
    """The end of an agent, and its output."""

    failure: str
    """The reason of a failure; empty when it ended with status 0."""
    printed: str
    """The end of its standard output, without the engine's secrets."""


def run(argv: Sequence[str], *, cwd: Path, log: Path, variables: Mapping[str, str], seconds: float) -> Ended:
    """Run an agent to its end, or for so many seconds. When this returns, nothing of it is left.

    Args:
        argv: The path of its program first.
        log: What it prints goes there, capped and without secrets; its temporary files go beside it.

    Raises:
        CannotStart: the machine has no process, memory, file or disk left for it.
        KeyboardInterrupt: somebody asked the engine to end.
    """
    marker = f"agent/{secrets.token_hex(8)}"
    begin = [sys.executable, "-I", "-S", "-c", BEGIN, *argv]
    heard = b""
    with Program(begin, cwd=cwd, log=log, marker=marker, level="none", view=VIEW, limits=LIMITS, pipes=True) as program:
        try:
            own = {"TMPDIR": f"{log}.tmp", "NO_COLOR": "1", MARKER: marker}  # see tasks/sandbox/program.py
            pipe = program.process.stdin
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):  # it has ended already, and its status says why
                pipe.write(json.dumps({**variables, **own}).encode())
            pipe.close()
            deadline = clock() + seconds
            status = None
            while status is None and clock() < deadline:
                status = program.poll(LOOK_SECONDS)
                heard = _listen(program, heard)
            if status is None:
                failure = f"did not end within {seconds:g} s"
            else:
                program.left_over()
                heard = _listen(program, heard)
                failure = f"{program.describe(status)}\n{program.tail()}".rstrip() if status else ""
        except Stopped as stopped:
            failure = f"was stopped: {stopped}"
        program.kill()
    return Ended(failure, scrub_text(heard.decode(errors="replace")))


def _listen(program: Program, heard: bytes) -> bytes:
    """The kept end of its standard output."""
    pipe = program.process.stdout
    assert pipe is not None
    os.set_blocking(pipe.fileno(), False)
    while chunk := pipe.read(2**18):
        heard = (heard + chunk)[-KEPT:]
        program.note(chunk)
    return heard

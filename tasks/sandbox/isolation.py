"""The sandbox levels that work on this machine, found by running a program at each, and the choice of one."""

from __future__ import annotations

import functools
import os
import socket
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from environments.limits import Limits
from environments.plugins import Refused
from tasks.sandbox.confinement import LEVELS, SYSTEM, Level, VisiblePaths, give
from tasks.sandbox.interpreter import OWN
from tasks.sandbox.program import SAID, SUPERVISOR_SECONDS, CannotStart, NotAProgram, Program
from tasks.system.secret_places import secret_place


@dataclass(frozen=True)
class Isolation:
    """How programs are confined, and whether edited ones may run without a sandbox."""

    level: Level
    allow_unsandboxed: bool = False

    def may_run(self, edit: str | None) -> bool:
        return edit is None or self.level != "none" or self.allow_unsandboxed


def choose(asked: str) -> Level:
    """The level `asked`, or for `auto` the best that works. Raises Refused: it does not work on this machine."""
    for level in working():
        if asked in ("auto", level):
            return level
    why = why_not(asked) if asked in LEVELS else f"there are auto, {', '.join(LEVELS)}"
    raise Refused(f"isolation {asked!r} is not to be had here: {why}")


def check_given(level: Level, home: Path, readable: Iterable[Path]) -> None:
    """Refused when a path that programs may read shows other trials, processes, devices or keys, or is missing."""
    if level == "none":
        return
    runs = home.resolve()
    for path in readable:
        given = Path(os.path.realpath(path))
        if runs.is_relative_to(given) or given.is_relative_to(runs):
            fact = f"one of {path} and {home} contains the other, and programs may not read other trials"
            raise Refused(f"readable: {fact}: keep them apart")
        if secret := secret_place(given):
            fact = f"{path} shows {secret}, where keys are kept, or processes and devices are seen"
            raise Refused(f"readable: {fact}: keep what is to be read in a folder of its own")
        if not given.exists():
            raise Refused(f"readable: there is no {path} on {os.uname().nodename}: put it there, or name where it is")
    for shown in (*map(Path, SYSTEM), *OWN.parts):
        if runs.is_relative_to(shown.resolve()):
            raise Refused(f"{home} is below {shown}, which every trial may read: set NIGHTSHIFT_HOME to another folder")


def working() -> list[Level]:
    """The levels that work on this machine, best first."""
    return [level for level in LEVELS if not why_not(level)]


PROBE = """
import os, socket, sys
out, secret = sys.argv[1:]
open(os.path.join(out, "written"), "w").close()
try:
    open(secret).close()
    sys.exit("it can read files that it was not given")
except OSError:
    pass
try:
    probe = socket.socket()
    probe.settimeout(1)
    probe.connect(("127.0.0.1", int(open("port").read())))
    sys.exit("it can reach the network")
except OSError:
    pass
"""
"""A program that succeeds if it can write where it may, and cannot read a secret or reach the network."""


@functools.cache
def why_not(level: Level) -> str:
    """Why a level does not work here, found by running a program at it; empty when it works."""
    if level == "none":
        return ""
    local = ("127.0.0.1", 0)
    with tempfile.TemporaryDirectory(prefix="nightshift-probe-") as folder, socket.create_server(local) as server:
        place = Path(folder).resolve()
        workspace, out, secret = place / "workspace", place / "out", place / "secret"
        workspace.mkdir()
        out.mkdir()
        secret.touch()
        (workspace / "port").write_text(str(server.getsockname()[1]))
        (workspace / "probe.py").write_text(PROBE)
        give(out, level)
        try:
            with Program(
                ["python", "-I", "probe.py", str(out), str(secret)], cwd=workspace, log=place / "log",
                marker=f"probe-{os.getpid()}", level=level, view=VisiblePaths((workspace,), (out,)), limits=Limits(),
            ) as program:  # fmt: skip
                status, tail = program.wait(SUPERVISOR_SECONDS), program.tail().splitlines()
        except (CannotStart, NotAProgram) as fault:
            return str(fault)
        if status == 0 and (out / "written").exists():
            return ""
        ended = f"did not end within {SUPERVISOR_SECONDS:g} s" if status is None else f"ended with status {status}"
        return tail[-1].removeprefix(SAID) if tail else f"a program run at it {ended}"

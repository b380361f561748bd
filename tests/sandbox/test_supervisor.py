"""The keeper, spoken to directly: what it says, what it does at each signal, and that nothing outlives it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tasks.sandbox import supervisor
from tests.support.processes import NAP, SLEEP, alive, wait_for

KEEPER = [sys.executable, "-I", "-S", "-B", supervisor.__file__]
SHELL = shutil.which("sh") or "/bin/sh"

CHAIN = f"""
import os, time
end = time.monotonic() + 20
if os.fork() == 0:
    while os.fork() == 0 and time.monotonic() < end:
        pass
    os._exit(0)
{NAP}
"""
"""A chain in which each process leaves as soon as it has a child: it is gone before one can look at it."""

TREE = f"import os, time\nfor _ in range(6): os.fork()\nos.setsid() if os.getpid() != os.getsid(0) else 0\n{NAP}"
"""Sixty-four processes, each in a session of its own."""


@dataclass(frozen=True)
class Kept:
    process: subprocess.Popen[bytes]
    report: Iterator[bytes]

    def says(self) -> dict[str, Any]:
        """The next line of its report; empty at the end."""
        line = next(self.report, b"{}")
        told: dict[str, Any] = json.loads(line)
        return told

    def rest(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.report]


def plan(*argv: str, **more: Any) -> dict[str, Any]:
    """What the engine tells a keeper that has nothing to confine."""
    bare: dict[str, Any] = {"cgroups": [], "rlimits": {}, "landlock": None, "filter": "", "inner": 1}
    return {"argv": list(argv), "env": {"PATH": "/usr/bin:/bin"}, "engine": os.getpid(), **bare, **more}


@contextlib.contextmanager
def kept(plan: dict[str, Any], cwd: Path | None = None) -> Iterator[Kept]:
    """Start a keeper with that plan; its report, line by line."""
    hear, say = os.pipe()
    with os.fdopen(hear, "rb") as report:
        try:
            process = subprocess.Popen(
                [*KEEPER, json.dumps(plan | {"report": say})],
                stdout=subprocess.PIPE,
                cwd=cwd,
                pass_fds=(say,),
                start_new_session=True,
            )
        finally:
            os.close(say)
        with process:
            try:
                yield Kept(process, iter(report))
            finally:
                if process.poll() is None:
                    process.terminate()


def sh(script: str, **more: Any) -> dict[str, Any]:
    return plan(SHELL, "-c", script, **more)


def test_what_goes_on_after_the_program_is_killed() -> None:
    with kept(sh(f"setsid {SLEEP} & setsid {SLEEP} & exit 0")) as it:
        it.says()
        assert it.rest() == [{"status": 0}, {"over": True}]
    assert alive(SLEEP) == []


def test_a_program_that_cannot_be_confined_is_not_run(tmp_path: Path) -> None:
    with kept(plan("/usr/bin/touch", str(tmp_path / "ran"), cgroups=["/dev/full"])) as it:
        assert it.says() == {"confining": True, "why": "No space left on device (/dev/full)"}
        assert it.rest() == []
        assert it.process.wait(60) == 127
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("what", "program", "least"), [("a chain", CHAIN, 1), ("a tree", TREE, 64)])
def test_sigterm_ends_a_program_that_forks_faster_than_one_can_look(what: str, program: str, least: int) -> None:
    with kept(plan(sys.executable, "-I", "-c", program)) as it:
        assert "started" in it.says()
        wait_for(lambda: len(alive(NAP)) >= least)
        it.process.terminate()
        assert it.rest() == [{"over": True}], what
        assert alive(NAP) == []
        assert it.process.wait(60) == 0


@pytest.mark.parametrize(("inner", "heard"), [(1, {"outer", "inner"}), (2, {"inner"})])
def test_sigusr1_asks_the_program_to_end_and_not_what_was_wrapped_around_it(
    tmp_path: Path, inner: int, heard: set[str]
) -> None:
    (tmp_path / "inner.sh").write_text("trap 'touch inner; exit' TERM\ntouch ready\nwhile :; do sleep 0.02; done\n")
    outer = "trap 'touch outer' TERM; sh inner.sh & wait; wait; exit 0"
    with kept(sh(outer, inner=inner), cwd=tmp_path) as it:
        it.says()
        wait_for((tmp_path / "ready").exists)
        it.process.send_signal(signal.SIGUSR1)
        assert it.rest() == [{"status": 0}, {"over": True}]
    assert {path.name for path in tmp_path.iterdir()} & {"outer", "inner"} == heard


def test_a_keeper_whose_engine_has_died_already_starts_nothing(tmp_path: Path) -> None:
    with kept(plan("/usr/bin/touch", str(tmp_path / "ran"), engine=os.getpid() + 1)) as it:
        assert it.rest() == []
        assert it.process.wait(60) == 0
    assert not (tmp_path / "ran").exists()

"""What a trial's program may do to us: each case ends in a Run with a reason, and nothing of it is left."""

from __future__ import annotations

import copy
import ctypes
import json
import operator
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

import environments
from environments.limits import Limits
from tasks.editing import patches
from tasks.evaluate import judge_run
from tasks.sandbox import cgroup
from tasks.sandbox.cgroup import STEM
from tasks.sandbox.confinement import Level, VisiblePaths
from tasks.sandbox.program import CannotStart, Program, Stopped
from tasks.sandbox.reader import EditFailed, read
from tasks.store.workspace import TrialDir
from tasks.system import orphans
from tasks.system.orphans import identity
from tasks.train import run_program
from tasks.trial import Proposal
from tests.support.levels import WORKING
from tests.support.processes import NAP, SLEEP, alive, wait_for
from tests.support.toy import SANDBOX, quadratic


def started(tmp_path: Path, code: str, level: Level, marker: str) -> Program:
    return Program(
        ["python", "-c", code], cwd=tmp_path, log=tmp_path / "log", marker=marker, level=level,
        view=VisiblePaths((tmp_path,), ()), limits=Limits(),
    )  # fmt: skip


@pytest.mark.parametrize("level", WORKING)
@pytest.mark.parametrize("fault", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_a_start_that_is_broken_off_leaves_no_process_and_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: Level, fault: BaseException
) -> None:
    def break_off(*_: object) -> None:
        raise fault

    before = len([*Path("/proc/self/fd").iterdir()])
    monkeypatch.setattr(os, "set_blocking", break_off)  # called when it runs
    with pytest.raises(KeyboardInterrupt if isinstance(fault, KeyboardInterrupt) else CannotStart):
        started(tmp_path, "import time\ntime.sleep(60)", level, "test/off")
    assert len([*Path("/proc/self/fd").iterdir()]) <= before
    assert orphans.end("test/off") == []


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("./train.sh {out}", "cannot execute './train.sh': Permission denied"),
        ("nosuchprogram", "no program 'nosuchprogram' in "),
    ],
)
def test_a_command_that_cannot_be_executed_is_a_crash_in_training_and_under_judgement(
    tmp_path: Path, command: str, reason: str
) -> None:
    folder = quadratic(tmp_path / "env")
    (folder / "train.sh").write_text("echo hello\n")
    environment = environments.load(folder, {"train_cmd": command})
    place = TrialDir(tmp_path / "trial")
    run = run_program("test/none", environment, SANDBOX, folder, place, Proposal({"x": 1.0}), seed=7)
    assert run.status == "crash" and run.error is not None and run.error.startswith(reason)

    good = environments.load(folder, {"command.eval_cmd": command + " {result}"})
    run = run_program("test/none", good, SANDBOX, folder, place, Proposal({"x": 1.0}), seed=7)
    score = judge_run("test/none", good, SANDBOX, place, run, seed=8)
    assert score.value is None and score.error is not None and score.error.startswith(reason)


@pytest.mark.parametrize("level", WORKING)
def test_all_processes_of_a_program_die_with_its_engine(tmp_path: Path, level: Level) -> None:
    """The engine is killed with -9; one child has detached itself and thrown its marker away."""
    code = (
        "import subprocess, time\n"
        f"subprocess.Popen({SLEEP.split()}, start_new_session=True, env={{}})\n"
        f"subprocess.Popen({SLEEP.split()})\n"
        f"{NAP}\n"
    )
    engine = (
        "import pathlib, sys\nfrom tests.sandbox.test_program import started\n"
        "with started(pathlib.Path(sys.argv[1]), *sys.argv[2:], 'campaign-x/0001') as program: program.wait(600)\n"
    )
    arguments = [str(tmp_path), code, level]
    with subprocess.Popen([sys.executable, "-c", engine, *arguments], cwd=Path(__file__).parents[2]) as process:
        wait_for(lambda: len(alive(SLEEP)) == 2)
        process.kill()
    wait_for(lambda: not alive(SLEEP) and not orphans.marked("campaign-x"))


def test_what_carries_the_marker_of_a_campaign_is_ended_and_no_other() -> None:
    marked, foreign = (
        {**os.environ, orphans.MARKER: name, orphans.SUPERVISOR: "one that pretends"}
        for name in ("campaign-y/0001", "campaign-yz/0001")
    )
    deaf = partial(signal.signal, signal.SIGTERM, signal.SIG_IGN)
    with (
        subprocess.Popen(["sleep", "300"], env=foreign) as other,
        subprocess.Popen(["sleep", "300"], env=marked, preexec_fn=deaf),
    ):
        assert orphans.end("campaign-y") == ["sleep 300"]
        assert psutil.pid_exists(other.pid) and orphans.marked("campaign-y") == []
        other.kill()
    engine = f"{os.getppid()} {identity(os.getppid())}"  # it lives: this is a run of another copy of the campaign
    with subprocess.Popen(["sleep", "300"], env={**marked, orphans.ENGINE: engine}) as copy:
        assert orphans.end("campaign-y") == [] and copy.poll() is None
        copy.kill()


@pytest.mark.parametrize("level", WORKING)
def test_a_killed_keeper_is_noticed_and_nothing_of_its_program_is_left(tmp_path: Path, level: Level) -> None:
    """One child has thrown its marker away: where there are control groups, or namespaces, it goes too."""
    bare = ", env={}" if cgroup.find() or level == "bwrap" else ""
    code = f"import subprocess, time\nsubprocess.Popen({SLEEP.split()}, start_new_session=True{bare})\n{NAP}"
    with started(tmp_path, code, level, "test/kept") as program:
        wait_for(lambda: alive(SLEEP))
        os.kill(program.process.pid, signal.SIGKILL)
        with pytest.raises(Stopped, match="killed"):
            wait_for(lambda: program.poll(0.05) is not None)
        wait_for(lambda: not alive(SLEEP) and not alive(NAP))


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


@pytest.mark.parametrize("level", WORKING)
def test_a_chain_that_forks_faster_than_one_can_look_is_ended(tmp_path: Path, level: Level) -> None:
    with started(tmp_path, CHAIN, level, "test/chain"):
        wait_for(lambda: alive(NAP))
    assert not alive(NAP) and not orphans.marked("test/chain")


@pytest.mark.skipif("landlock" not in WORKING, reason="this kernel has no Landlock")
def test_a_program_that_cannot_be_confined_is_not_run(tmp_path: Path) -> None:
    view = VisiblePaths((tmp_path / "gone",), (tmp_path,))
    with pytest.raises(CannotStart, match=r"No such file or directory.*gone"):
        Program(
            ["touch", str(tmp_path / "ran")], cwd=tmp_path, log=tmp_path / "log", marker="test/gone", level="landlock",
            view=view, limits=Limits(),
        )  # fmt: skip
    assert not (tmp_path / "ran").exists()


# Control groups: found where they can be made, their limits hold, and none of them is left behind.


GROUPS = cgroup.find()


@pytest.mark.skipif(GROUPS is None, reason="this user cannot make control groups here")
def test_the_groups_of_a_dead_engine_are_swept_away_and_those_of_a_living_one_are_not() -> None:
    assert GROUPS is not None
    with subprocess.Popen(["true"]) as process:
        process.wait()
    dead, alive = (GROUPS.memory / f"{STEM}{pid}-0badcafe" for pid in (process.pid, os.getppid()))
    dead.mkdir()
    alive.mkdir()
    cgroup.find.cache_clear()  # which is kept for the life of a process
    try:
        assert cgroup.find() == GROUPS
        assert not dead.exists() and alive.exists()
    finally:
        alive.rmdir()
    assert not [each for folder in GROUPS.folders for each in folder.glob(f"{STEM}{os.getpid()}-*")], "one is left"


# Foreign text is read in a process of its own: with limits, and without a trace for the next one.


@pytest.mark.parametrize(
    ("function", "values", "why"),
    [
        (json.loads, ("[" * 10**6,), "RecursionError"),
        (operator.mul, ("x", 2**30), "MemoryError"),
        (ctypes.string_at, (0,), "crashes its parser"),
        pytest.param(pow, (3, 10**9), "3 s of processor time", marks=pytest.mark.slow),
    ],
)
def test_a_limit_that_is_met_is_the_reason(function: Callable[..., object], values: tuple[Any, ...], why: str) -> None:
    with pytest.raises(EditFailed, match=f"^the text .*{why}"):
        read(function, *values)
    assert read(copy.copy, 1) == 1, "the next one is read"


def test_a_value_comes_back_as_it_was_a_refusal_is_told_as_it_is_and_any_other_exception_with_its_kind() -> None:
    value = {"a": [1, 2.5, None, True, "\u00e9\ud800\n", "x" * 2**22], "b": {}}
    assert read(copy.copy, value) == value
    with pytest.raises(EditFailed, match=r"^(?!the text)"):
        read(patches.patched, {"a.py": "x\n"}, "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-y\n+z\n")
    with pytest.raises(EditFailed, match="KeyError: 'x'"):
        read(operator.getitem, {}, "x")


def test_a_fault_of_the_machine_is_no_verdict_about_the_text() -> None:
    with pytest.raises(CannotStart, match="killed"):
        read(signal.raise_signal, signal.SIGKILL)

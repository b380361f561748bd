"""Control groups: found where they can be made, their limits hold, and none of them is left behind."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from environments.limits import Limits
from tasks.sandbox import cgroup
from tasks.sandbox.cgroup import STEM, Cgroups
from tasks.sandbox.confinement import NOBODY, Level
from tests.support.levels import STRONGEST_AND_NONE, WORKING
from tests.support.sandboxed import run

GROUPS = cgroup.find()
needs_groups = pytest.mark.skipif(GROUPS is None, reason="this user cannot make control groups here")
GIB, MIB = 2**30, 2**20
BOMB = "import os\nheld = []\nfor _ in range(30): held.append(os.urandom(2**20) * 10)\n"
"""Three hundred megabytes."""


@pytest.fixture
def groups() -> Cgroups:
    assert GROUPS is not None
    return GROUPS


@pytest.fixture
def _asked_anew() -> Iterator[None]:
    """Where groups can be made is kept for the life of a process; what a test finds is its own."""
    cgroup.find.cache_clear()
    yield
    cgroup.find.cache_clear()


def ours(groups: Cgroups) -> list[str]:
    """The groups that this process has made and not given back."""
    return [folder.name for place in {groups.memory, groups.pids} for folder in place.glob(f"{STEM}{os.getpid()}-*")]


def dead_pid() -> int:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert not psutil.pid_exists(process.pid)
    return process.pid


@needs_groups
def test_the_limits_of_a_group_are_those_that_were_asked_for(groups: Cgroups) -> None:
    group = groups.make(64 * MIB, 17)
    try:
        bound = "memory.max" if group.version == 2 else "memory.limit_in_bytes"
        assert int((group.memory / bound).read_text()) == 64 * MIB
        assert int((group.pids / "pids.max").read_text()) == 17
        swap = group.memory / "memory.swap.max"
        assert group.version == 1 or not swap.exists() or int(swap.read_text()) == 0
        assert not group.ran_out_of_memory()
    finally:
        group.remove()
    assert ours(groups) == []


@needs_groups
def test_a_group_that_cannot_be_made_whole_is_taken_back(groups: Cgroups) -> None:
    with pytest.raises(FileNotFoundError):
        Cgroups(1, groups.memory, Path("/nonexistent")).make(2**30, 64)
    assert ours(groups) == []


@needs_groups
@pytest.mark.usefixtures("_asked_anew")
def test_the_groups_of_a_dead_engine_are_swept_away_and_those_of_a_living_one_are_not(groups: Cgroups) -> None:
    dead, alive = (groups.memory / f"{STEM}{dead_pid()}-0badcafe", groups.memory / f"{STEM}{os.getpid()}-0badcafe")
    dead.mkdir()
    alive.mkdir()
    try:
        assert cgroup.find() == groups
        assert not dead.exists()
        assert alive.exists()
    finally:
        alive.rmdir()


@pytest.mark.usefixtures("_asked_anew")
def test_where_folders_are_not_writable_there_are_no_groups() -> None:
    if os.geteuid():
        found = cgroup.find()
        folders = [found.memory, found.pids] if found else []
        assert all(os.access(folder, os.W_OK) for folder in folders)
        return
    os.seteuid(NOBODY)
    try:
        assert cgroup.find() is None
    finally:
        os.seteuid(0)


@needs_groups
@pytest.mark.parametrize("level", STRONGEST_AND_NONE)
def test_a_program_that_uses_up_its_memory_is_ended_with_that_reason(
    tmp_path: Path, groups: Cgroups, level: Level
) -> None:
    ended, _ = run(tmp_path, level, BOMB, limits=Limits(memory_gb=0.1))
    assert ended == "ran out of memory: it may use 0.1 GiB (limits.memory_gb)"
    assert ours(groups) == []


@needs_groups
def test_memory_counts_over_all_processes_of_a_program(tmp_path: Path, groups: Cgroups) -> None:
    share = (
        "import ctypes, os, time\n"
        "for _ in range(4):\n"
        "    if os.fork() == 0:\n"
        "        held = os.urandom(2**20) * 45\n"
        "        time.sleep(20)\n"
        "        os._exit(0)\n"
        "for _ in range(4):\n"
        "    if os.wait()[1]: ctypes.string_at(0)\n"
    )
    ended, _ = run(tmp_path, WORKING[0], share, limits=Limits(memory_gb=0.1))
    assert ended == "ran out of memory: it may use 0.1 GiB (limits.memory_gb)"
    assert ours(groups) == []


@pytest.mark.parametrize("level", STRONGEST_AND_NONE)
def test_without_groups_the_memory_of_a_process_is_bounded_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: Level
) -> None:
    monkeypatch.setattr(cgroup, "find", lambda: None)
    ended, tail = run(tmp_path, level, BOMB, limits=Limits(memory_gb=0.1))
    assert ended == "exited with status 1"
    assert tail.splitlines()[-1].startswith("MemoryError")

"""Control groups: found where they can be made, their limits hold, and none of them is left behind."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from environments.limits import Limits
from tasks.sandbox import cgroup
from tasks.sandbox.cgroup import STEM, Group
from tasks.sandbox.confinement import Level
from tests.support.levels import STRONGEST_AND_NONE, WORKING
from tests.support.sandboxed import run

GROUPS = cgroup.find()
needs_groups = pytest.mark.skipif(GROUPS is None, reason="this user cannot make control groups here")
BOMB = "import os\nheld = []\nfor _ in range(30): held.append(os.urandom(2**20) * 10)\n"
"""Three hundred megabytes."""
SHARED = f"import os\nfor _ in range(4): os.fork()\n{BOMB.replace('10)', '1)')}import time\ntime.sleep(2)\n"
"""The same, thirty in each of sixteen processes."""


@pytest.fixture
def groups() -> Iterator[Group]:
    """Where groups can be made is kept for the life of a process; what a test finds is its own."""
    assert GROUPS is not None
    cgroup.find.cache_clear()
    yield GROUPS
    cgroup.find.cache_clear()
    assert not [each for folder in GROUPS.folders for each in folder.glob(f"{STEM}{os.getpid()}-*")], "one is left"


@needs_groups
def test_the_groups_of_a_dead_engine_are_swept_away_and_those_of_a_living_one_are_not(groups: Group) -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    dead, alive = (groups.memory / f"{STEM}{pid}-0badcafe" for pid in (process.pid, os.getppid()))
    dead.mkdir()
    alive.mkdir()
    try:
        assert cgroup.find() == groups
        assert not dead.exists() and alive.exists()
    finally:
        alive.rmdir()


@needs_groups
def test_processes_that_use_up_the_memory_together_are_ended_with_that_reason(tmp_path: Path) -> None:
    ended, _ = run(tmp_path, WORKING[0], SHARED, limits=Limits(memory_gb=0.2))
    assert ended == "ran out of memory: it may use 0.2 GiB (limits.memory_gb)"


@pytest.mark.parametrize("level", STRONGEST_AND_NONE)
def test_without_groups_the_memory_of_a_process_is_bounded_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: Level
) -> None:
    monkeypatch.setattr(cgroup, "find", lambda: None)
    ended, tail = run(tmp_path, level, BOMB, limits=Limits(memory_gb=0.1))
    assert ended == "exited with status 1"
    assert tail.splitlines()[-1].startswith("MemoryError")

"""Control groups: the kernel's bound on a program's memory and processes, where this user may create groups.

Version 1 has a hierarchy for each resource, version 2 one for all (cgroups(7)). Where a group can be created is found
by trying: below our own group, or beside it (in version 2 a group with processes cannot share out resources).
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
STEM = "nightshift-"
KILL_SECONDS = 10.0


@dataclass(frozen=True)
class Group:
    """A control group: a folder for its memory and one for its processes, or one for both."""

    memory: Path
    pids: Path
    limit: str = "memory.max"
    kills: str = "memory.events"
    """Files of its memory's folder, as version 2 calls them."""

    @property
    def folders(self) -> tuple[Path, ...]:
        return tuple(dict.fromkeys((self.memory, self.pids)))

    @property
    def entrances(self) -> list[str]:
        """The files into which a process writes its pid to enter the group."""
        return [str(folder / "cgroup.procs") for folder in self.folders]

    def make(self, memory: int, processes: int) -> Group:
        """Create a group below with these limits: bytes of memory, processes and threads. Raises OSError."""
        name = f"{STEM}{os.getpid()}-{secrets.token_hex(4)}"
        group = replace(self, memory=self.memory / name, pids=self.pids / name)
        try:
            for folder in group.folders:
                folder.mkdir()
            (group.pids / "pids.max").write_text(str(processes))
            (group.memory / group.limit).write_text(str(memory))
            if (swap := group.memory / "memory.swap.max").exists():
                swap.write_text("0")
        except OSError:
            group.remove()
            raise
        return group

    def ran_out_of_memory(self) -> bool:
        """Whether the kernel killed one of its processes for lack of memory."""
        counts = dict(line.split() for line in (self.memory / self.kills).read_text().splitlines())
        return int(counts.get("oom_kill", 0)) > 0

    def kill(self) -> None:
        """Kill its processes until none is left, for some seconds: one may hang in the kernel."""
        deadline = time.monotonic() + KILL_SECONDS
        while (inside := (self.pids / "cgroup.procs").read_text().split()) and time.monotonic() < deadline:
            for pid in inside:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.005)

    def remove(self) -> None:
        """Remove it. A busy group stays, until a later engine looks for old ones."""
        for folder in self.folders:
            with contextlib.suppress(OSError):
                folder.rmdir()


@functools.cache
def find() -> Group | None:
    """The group below which this user can create some, found by creating one; None where there is none."""
    for candidate in _candidates():
        for old in (old for folder in candidate.folders for old in folder.glob(f"{STEM}*-*")):
            if not Path(f"/proc/{old.name.removeprefix(STEM).partition('-')[0]}").exists():  # its engine was killed
                with contextlib.suppress(OSError):
                    old.rmdir()
        if _works(candidate):
            return candidate
    return None


def _candidates() -> Iterator[Group]:
    file = Path("/proc/self/cgroup")
    lines = [line.split(":", 2) for line in file.read_text().splitlines()] if file.exists() else []
    own = {name: path.lstrip("/") for _, names, path in lines for name in names.split(",")}
    if "memory" in own and "pids" in own:
        memory, pids = (ROOT / name / own[name] for name in ("memory", "pids"))
        yield Group(memory, pids, "memory.limit_in_bytes", "memory.oom_control")
    if "" in own:
        here = ROOT / own[""]
        # Where version 1 is mounted, the root of both is an ordinary folder.
        yield from (
            Group(folder, folder) for folder in (here, *here.parents) if (folder / "cgroup.subtree_control").is_file()
        )


def _works(candidate: Group) -> bool:
    """Whether a group can be created there, limited, and entered by our own processes."""
    try:
        group = candidate.make(2**30, 64)
    except OSError:
        return False
    enter = ["sh", "-c", 'for file; do echo $$ > "$file" || exit 1; done', "sh", *group.entrances]
    try:
        return subprocess.run(enter, stderr=subprocess.DEVNULL).returncode == 0
    finally:
        group.remove()

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
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
STEM = "nightshift-"


@dataclass(frozen=True)
class Cgroups:
    """Where groups can be created: one folder for everything, or one for memory and one for processes."""

    version: int
    memory: Path
    pids: Path

    def make(self, memory: int, processes: int) -> Group:
        """Create a group with these limits: bytes of memory, number of processes and threads."""
        name = f"{STEM}{os.getpid()}-{secrets.token_hex(4)}"
        group = Group(self.version, self.memory / name, self.pids / name)
        bounds = {"memory.max": memory, "memory.swap.max": 0}
        if self.version == 1:
            bounds = {"memory.limit_in_bytes": memory}
        try:
            for folder in group.folders:
                folder.mkdir()
            (group.pids / "pids.max").write_text(str(processes))
            for name, limit in bounds.items():  # a kernel without swap has no file for it
                if name != "memory.swap.max" or (group.memory / name).exists():
                    (group.memory / name).write_text(str(limit))
        except OSError:
            group.remove()
            raise
        return group


@dataclass(frozen=True)
class Group:
    """The control group of one program."""

    version: int
    memory: Path
    pids: Path

    @property
    def folders(self) -> tuple[Path, ...]:
        return tuple(dict.fromkeys((self.memory, self.pids)))

    @property
    def entrances(self) -> list[str]:
        """The files into which a process writes its pid to enter the group."""
        return [str(folder / "cgroup.procs") for folder in self.folders]

    def ran_out_of_memory(self) -> bool:
        """Whether the kernel killed one of its processes for lack of memory."""
        file = self.memory / ("memory.oom_control" if self.version == 1 else "memory.events")
        facts = dict(line.split() for line in file.read_text().splitlines())
        return int(facts.get("oom_kill", 0)) > 0

    def ran_out_of_processes(self) -> bool:
        """Whether the kernel refused it a process or a thread; False too on a kernel that does not tell."""
        file = self.pids / "pids.events"
        facts = dict(line.split() for line in file.read_text().splitlines()) if file.exists() else {}
        return int(facts.get("max", 0)) > 0

    def kill(self, patience: float = 10.0) -> None:
        """Kill its processes until none is left. Raises TimeoutError if some survive (they hang in the kernel)."""
        deadline = time.monotonic() + patience
        while inside := (self.pids / "cgroup.procs").read_text().split():
            for pid in inside:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            if time.monotonic() > deadline:
                raise TimeoutError(f"processes {', '.join(inside)} of {self.pids.name} survive SIGKILL")
            time.sleep(0.005)

    def remove(self) -> None:
        """Remove it. A busy group stays, until a later engine looks for old ones."""
        for folder in self.folders:
            with contextlib.suppress(OSError):
                folder.rmdir()


@functools.cache
def find() -> Cgroups | None:
    """Where this user can create groups, found by creating one; None when nowhere."""
    for candidate in _candidates():
        for old in (old for folder in {candidate.memory, candidate.pids} for old in folder.glob(f"{STEM}*-*")):
            if not Path(f"/proc/{old.name.removeprefix(STEM).partition('-')[0]}").exists():  # its engine was killed
                with contextlib.suppress(OSError):
                    old.rmdir()
        if _works(candidate):
            return candidate
    return None


def _candidates() -> Iterator[Cgroups]:
    try:
        lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    except OSError:
        return  # no cgroups in this kernel
    own = {name: path.lstrip("/") for _, names, path in lines for name in names.split(",")}
    if "memory" in own and "pids" in own:
        yield Cgroups(1, ROOT / "memory" / own["memory"], ROOT / "pids" / own["pids"])
    if "" in own:
        for mount in (ROOT, ROOT / "unified"):
            here = mount / own[""]
            for folder in (here, *here.parents):
                if folder.is_relative_to(mount) and (folder / "cgroup.subtree_control").is_file():
                    yield Cgroups(2, folder, folder)


def _works(candidate: Cgroups) -> bool:
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

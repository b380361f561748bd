"""The file system calls of one process, its threads included, by what they do: read from what strace wrote."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CALLS = {
    "openat": "open", "read": "read", "pread64": "read", "write": "write", "pwrite64": "write",
    "newfstatat": "stat", "statx": "stat", "fstat": "stat", "access": "stat", "readlink": "stat",
    "getdents64": "list", "rename": "change", "renameat": "change", "renameat2": "change", "unlink": "change",
    "unlinkat": "change", "mkdir": "change", "rmdir": "change", "symlink": "change", "chmod": "change",
    "fchmodat": "change", "link": "change", "ftruncate": "change", "fsync": "sync", "fdatasync": "sync",
}  # fmt: skip
"""Kinds of calls. `change` makes, renames or removes files and folders, or changes their rights."""
FORKS = ("clone", "clone3")
LINE = re.compile(r"(\d+) +(?:<\.\.\. )?(\w+)(\(| resumed>)(.*)")
RESULT = re.compile(r"= (\d+)")


@contextmanager
def traced(pid: int, file: Path) -> Iterator[None]:
    """Have strace write down what a running process does with files while the block runs."""
    calls = ",".join((*CALLS, *FORKS))
    command = ["strace", "-f", "-qq", "-y", "-s", "0", "-e", f"trace={calls}", "-o", str(file), "-p", str(pid)]
    tracer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        tracer.terminate()
        tracer.wait()


def traffic(file: Path, pid: int, folder: Path) -> Counter[str]:
    """Calls by kind on files below a folder, and bytes: `read bytes` and `write bytes`. Children do not count."""
    own, begun, found = {str(pid)}, dict[tuple[str, str], str](), Counter[str]()
    for line in file.read_text(errors="replace").splitlines():
        if not (match := LINE.match(line)):
            continue
        thread, call, kind, rest = match.groups()
        if rest.endswith("<unfinished ...>"):
            begun[thread, call] = rest
            continue
        whole = (begun.pop((thread, call), "") if kind != "(" else "") + rest
        result = RESULT.search(rest[rest.rfind(" = ") :]) if " = " in rest else None
        if call in FORKS and thread in own and result and "CLONE_THREAD" in whole:
            own.add(result[1])
        if thread in own and call in CALLS and str(folder) in whole:
            found[CALLS[call]] += 1
            if CALLS[call] in ("read", "write") and result:
                found[f"{CALLS[call]} bytes"] += int(result[1])
    return found

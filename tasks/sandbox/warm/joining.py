"""How a supervisor that was forked from a template has its program enter a sandbox that bubblewrap makes.

Bubblewrap starts programs by exec, so it is given one that only waits, and the program enters its namespaces. A
template runs this in the namespace of tasks/sandbox/supervisor.py, which has all that is used here.
"""

from __future__ import annotations

import fcntl
import os
from functools import partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tasks.sandbox.supervisor import (
        FILTER_DESCRIPTOR,
        PR_SET_DUMPABLE,
        _execute,
        _give_up,
        _must,
        _prctl,
        _quoted,
        _start,
    )

NS_GET_USERNS = 0xB701
NAMESPACES = ("pid", "net", "ipc", "uts", "cgroup", "mnt", "user")
"""In the order in which they can be entered."""


def joined(plan: dict[str, Any]) -> dict[str, Any]:
    """The plan of a program whose sandbox is made; if it cannot be, report why and exit."""
    if "wrap" not in plan:
        return plan
    try:
        return {**plan, "enter": partial(enter, sandbox(plan)), "inner": 1}
    except OSError as fault:
        _give_up(plan, f'{{"confining": true, "why": {_quoted(f"no sandbox to enter: {fault}")}}}'.encode())
        raise


def sandbox(plan: dict[str, Any]) -> dict[str, int]:
    """Have bubblewrap make a sandbox in which a process only waits; the namespaces for the program to enter. This
    process enters those that its children have to be in from their start."""
    hear, say = os.pipe()
    nothing, wrap = os.open(os.devnull, os.O_RDONLY), plan["wrap"]
    info = fcntl.fcntl(say, fcntl.F_DUPFD, FILTER_DESCRIPTOR + 1)
    words = [wrap[0], "--info-fd", str(info), *wrap[1:], "sh", "-c", "echo made; exec sleep infinity"]
    _start({**plan, "argv": words, "standard": (nothing, say)}, _execute)
    for descriptor in (nothing, say, info):
        os.close(descriptor)
    said = b""
    while not said.endswith(b"made\n"):
        if not (chunk := os.read(hear, 2**12)):
            raise OSError("bubblewrap did not make it")
        said += chunk
    os.close(hear)
    inside = int(said.partition(b'"child-pid":')[2].split()[0].rstrip(b",}"))
    spaces = {name: os.open(f"/proc/{inside}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in NAMESPACES}
    if os.geteuid():  # bubblewrap has made a user namespace, in which its maker has the right to enter the others
        enter({"user": fcntl.ioctl(spaces["mnt"], NS_GET_USERNS)})
        _prctl(PR_SET_DUMPABLE, 1)  # that has hidden its files in /proc from its user, the engine's
    _must("setns", spaces.pop("pid"), 0)
    return spaces


def enter(namespaces: dict[str, int]) -> None:
    """Enter namespaces, but for those that this process is in."""
    for name, namespace in namespaces.items():
        if not os.path.samestat(os.fstat(namespace), os.stat(f"/proc/self/ns/{name}")):
            _must("setns", namespace, 0)

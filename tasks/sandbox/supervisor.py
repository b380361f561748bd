"""The supervisor: a small process between the engine and one untrusted program, which it confines and outlives.

    python -I -S supervisor.py 7      # from descriptor 7 comes the plan: {"argv": [...], "env": {...}, ...}, as JSON

It forks; the child takes on the plan's limits and restrictions, and becomes the program. The supervisor is a child
subreaper: every orphan of the program becomes its child, so it finds every descendant by its parent, whatever that did
to its session, name or environment. It ends when the last of them is gone; when the engine dies, it ends them first.

    SIGTERM   kill everything at once        SIGUSR1   ask the program to end (SIGTERM to all of its processes)

On the descriptor `report` it writes JSON lines: `{"started": pid}`, or if the program could not be started
`{"confining" or "executing": true, "why": text}`; `{"status": n}`, counted as in subprocess, when the program has
ended and no process of it is left.

It imports nothing but the standard library. See landlock(7) and linux/landlock.h, prctl(2), capabilities(7).
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import IO, Any

FILTER_DESCRIPTOR = 9
"""The descriptor from which bubblewrap reads the system call filter."""

PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 1, 22, 36, 38, 2
LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
FS_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""How many file rights each version of Landlock knows; later ones know as many as version 5."""
READ, LIST = 1 << 0 | 1 << 2 | 1 << 3, 1 << 3  # execute, read files, list directories; the last alone
DEVICES = 1 << 6 | 1 << 11  # make character and block devices: nobody may
OF_FILES = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15  # execute, write, read, truncate, ioctl
TCP, SCOPES = 0b11, 0b11  # bind, connect; abstract Unix sockets and signals of anybody outside

_libc = ctypes.CDLL(None, use_errno=True)
_SIGNALS = {signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD}


def main(plan: dict[str, Any]) -> None:
    """Start the program, watch it, and end all of its processes."""
    os.set_inheritable(plan["report"], False)  # only the supervisor may write there
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    if os.getppid() != plan["engine"]:
        return  # the engine died before the signal was set
    program = _start(plan)
    silence = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):  # the pipes are the program's alone: the engine sees its end by theirs
        os.dup2(silence, descriptor)
    with os.fdopen(plan["report"], "w", buffering=1) as tell:
        try:
            _say(tell, started=program)
            status = _watch(program, plan["inner"])
        finally:  # whatever happened, even if the engine no longer listens
            _kill_all()
        _say(tell, status=status)
    os._exit(0)  # quicker than a normal exit, and there is nothing to clean up


def _say(tell: IO[str], **message: Any) -> None:
    tell.write(json.dumps(message) + "\n")


def _start(plan: dict[str, Any]) -> int:
    """Fork the program; its pid once it runs. If it cannot be started, report why and exit."""
    supervisor = os.getpid()
    hear, say = os.pipe()  # closed by exec: an empty message means that it runs
    program = os.fork()
    if not program:
        stage = "confining"
        try:
            _confine(plan, supervisor)
            stage = "executing"
            os.execve(plan["argv"][0], plan["argv"], plan["env"])
        except (OSError, ValueError) as fault:
            os.write(say, json.dumps({stage: True, "why": str(fault)}).encode() + b"\n")
        os._exit(127)
    os.close(say)
    with os.fdopen(hear, "rb") as pipe:
        failure = pipe.read()
    if failure:
        os.waitpid(program, 0)
        os.write(plan["report"], failure)
        os._exit(127)
    return program


def _confine(plan: dict[str, Any], supervisor: int) -> None:
    """In the child: apply the plan's restrictions. Raises OSError when one of them cannot be applied."""
    os.setsid()  # so that signals to its process group do not reach the supervisor
    for group in plan["cgroups"]:
        _write(group, "0")  # itself
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:  # it has ended before that held
        os._exit(127)
    if int(_read("/proc/self/oom_score_adj") or 0) < 800:  # to lower it takes a privilege
        _write("/proc/self/oom_score_adj", "800")  # when memory is short, the trial is killed before its engine
    if plan.get("cores"):
        os.sched_setaffinity(0, plan["cores"])  # inherited by every process of the program
    limit(plan["rlimits"])
    filter = bytes.fromhex(plan["filter"])
    if plan["landlock"] is not None:
        _prctl(PR_SET_NO_NEW_PRIVS, 1)
        _drop_capabilities()
        _landlock(**plan["landlock"])
        code = ctypes.create_string_buffer(filter, len(filter))
        _prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, struct.pack("HP", len(code) // 8, ctypes.addressof(code)))
    elif filter:
        memory = os.memfd_create("filter")
        os.write(memory, filter)
        os.lseek(memory, 0, os.SEEK_SET)
        os.dup2(memory, FILTER_DESCRIPTOR)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):  # which Python has changed
        signal.signal(number, signal.SIG_DFL)


def limit(most: dict[str, int]) -> None:
    """Set resource limits for good, by their names in `resource`; none above what holds already."""
    for name, bound in most.items():
        which = getattr(resource, name)
        hard = resource.getrlimit(which)[1]
        bound = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
        resource.setrlimit(which, (bound, bound))


def _watch(program: int, inner: int) -> int | None:
    """Wait for the program's end; its status, or None when the engine wants it killed."""
    while (number := signal.sigwait(_SIGNALS)) != signal.SIGTERM:
        if number == signal.SIGUSR1:
            for pid, depth in list(_descendants()):
                if depth >= inner:
                    _signal(pid, signal.SIGTERM)
        for pid, status in _reaped():
            if pid == program:
                return os.waitstatus_to_exitcode(status)
    return None


def _kill_all() -> None:
    """Kill every descendant. All are stopped first, until no new one appears, so that a fork bomb cannot outrun it."""
    stopped: set[int] = set()
    with suppress(ChildProcessError):  # by the kernel's word, none is left
        while True:
            list(_reaped())
            fresh = {pid for pid, _ in _descendants()} - stopped
            for pid in fresh:
                _signal(pid, signal.SIGSTOP)
            stopped |= fresh
            if not fresh:
                for pid, _ in list(_descendants()):
                    _signal(pid, signal.SIGKILL)
                stopped.clear()
                time.sleep(0.001)


def _descendants() -> Iterator[tuple[int, int]]:
    """Every living descendant with its depth: 1 for the program itself."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            state, parent = (_read(f"/proc/{entry}/stat").rpartition(b")")[2].split() or [b"Z", b"0"])[:2]
            if state != b"Z":
                children.setdefault(int(parent), []).append(int(entry))
    below = [(pid, 1) for pid in children.get(os.getpid(), [])]
    while below:
        pid, depth = below.pop()
        yield pid, depth
        below += [(child, depth + 1) for child in children.get(pid, [])]


def _reaped() -> Iterator[tuple[int, int]]:
    """Collect the children that have ended: pid and wait status. Raises ChildProcessError when there is none at all."""
    while (child := os.waitpid(-1, os.WNOHANG))[0]:
        yield child


def _read(path: str) -> bytes:
    """A process's file in /proc; empty when it has just ended."""
    with suppress(OSError), open(path, "rb") as file:
        return file.read()
    return b""


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):  # it has just ended
        os.kill(pid, number)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _prctl(option: int, value: int, third: Any = 0) -> None:
    _check(_libc.prctl(option, ctypes.c_ulong(value), third, 0, 0), "prctl")


def _check(answer: int, what: str) -> int:
    """The answer of a system call. Raises OSError when it failed."""
    if answer < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return answer


def _drop_capabilities() -> None:
    """Give up every capability: with PR_SET_NO_NEW_PRIVS no exec gives one back, also to uid 0."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # the version of the call, and this process
    _check(_libc.capset(ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)())), "capset")


def _landlock(version: int, rules: list[tuple[str, bool]], network: bool, listed: Sequence[str]) -> None:
    """Restrict file access to the rules, (path, writable) each; TCP, signals and sockets as far as `version` can. Of
    folders in `listed` only names can be read.
    """
    known = (1 << FS_RIGHTS[min(version, max(FS_RIGHTS))]) - 1
    size = 8 if version < 4 else 16 if version < 6 else 24
    asked = (ctypes.c_uint64 * 3)(known, 0 if network else TCP, SCOPES)
    ruleset = _check(_libc.syscall(LANDLOCK_CREATE_RULESET, ctypes.byref(asked), size, 0), "Landlock ruleset")
    granted = [(path, known & ~DEVICES if writable else READ) for path, writable in rules]
    granted += [("/proc/self", READ), *((path, LIST) for path in listed)]  # the pid is known only here
    for path, right in granted:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = struct.pack("=Qi", right if os.path.isdir(path) else right & OF_FILES, place)
        _check(_libc.syscall(LANDLOCK_ADD_RULE, ruleset, 1, rule, 0), f"Landlock rule for {path}")
        os.close(place)
    _check(_libc.syscall(LANDLOCK_RESTRICT_SELF, ruleset, 0), "Landlock")
    os.close(ruleset)


if __name__ == "__main__":
    with open(int(sys.argv[1])) as told:
        plan = json.load(told)
    main(plan)

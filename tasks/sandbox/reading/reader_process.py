"""The processes that read foreign text for `reader.read`, with limits, each from the same clean start.

    main(PLAN)   # {"engine": 123, "landlock": ..., "filter": ..., ...}, marshalled, in hex

It is run by `python -I -S`, and so are the functions' modules: they import nothing but the standard library. It
receives, on its standard input, a socket for every call and the name of a function, loads the function's module, and
forks: a guard, and below it the reader, which limits and confines itself, reads the values from the socket, and answers
there. Nothing foreign is ever read in the process that forks, so no text can spoil another's reading. A guard ends its
reader when that takes too long or when nobody waits for it any more, and says how it ended. All of them end with the
engine.
"""

from __future__ import annotations

import importlib
import json
import marshal
import os
import resource
import select
import shutil
import signal
import socket
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from tasks.sandbox import supervisor

CPU_SECONDS = 3
"""Of processor time for one reading, without those of git."""
MEMORY = 512 * 2**20
"""Bytes of address space, of the reader and of git."""
FILE_BYTES = 32 * 2**20
FILES = 64
"""Open at once."""
ANSWER_LIMIT = 32 * 2**20
"""Most bytes of a result."""
WALL_SECONDS = 60.0
OUT_OF_MEMORY, NOT_CONFINED = 101, 102
"""Exit statuses of a reader that cannot say so itself."""
PARENT_SECONDS = 5.0
"""Between two looks whether the engine is still there, should its end of the socket have been inherited."""


def main(stated: str) -> None:
    """Fork for every call, until the engine ends."""
    plan = marshal.loads(bytes.fromhex(stated))
    if plan["git"]:
        os.environ["PATH"] = f"{Path(plan['git']).parent}{os.pathsep}{os.environ['PATH']}"
    calls = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    calls.settimeout(PARENT_SECONDS)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # guards are not waited for
    while True:
        try:
            name, descriptors, _, _ = socket.recv_fds(calls, 1024, 1)
        except TimeoutError:
            if os.getppid() == plan["engine"]:
                continue
            descriptors = []
        if not descriptors:
            shutil.rmtree(plan["folder"], ignore_errors=True)
            return
        module, _, function = name.decode().partition(":")
        loaded = importlib.import_module(module)  # once; a guard has it from the start
        connection = socket.socket(fileno=descriptors[0])
        parent = os.getpid()
        if not os.fork():
            try:
                calls.close()
                _die_with(parent)
                _guard(connection, getattr(loaded, function), plan)
            finally:
                os._exit(0)
        connection.close()


def _guard(connection: socket.socket, function: Any, plan: dict[str, Any]) -> None:
    """Fork the reader, wait for its end, and write that behind its answer."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    scratch = tempfile.mkdtemp(dir=plan["folder"])
    ended, alive = os.pipe()  # closed by the reader's end
    guard = os.getpid()
    if not (reader := os.fork()):
        status = NOT_CONFINED
        try:
            os.close(ended)
            _confine(plan, scratch, guard)
            status = OUT_OF_MEMORY
            _answer(connection, function)
            status = 0
        finally:
            os._exit(status)
    os.close(alive)
    late = _wait(ended, connection)
    with suppress(ProcessLookupError):
        os.killpg(reader, signal.SIGKILL)  # with it a git that it has started
    with suppress(ProcessLookupError):
        os.kill(reader, signal.SIGKILL)
    _, status = os.waitpid(reader, 0)
    shutil.rmtree(scratch, ignore_errors=True)
    with suppress(OSError):  # nobody may wait for it any more
        connection.setblocking(True)
        connection.sendall(b"\n" + json.dumps(_end_of(os.waitstatus_to_exitcode(status), late)).encode())


def _wait(ended: int, connection: socket.socket) -> bool:
    """Wait until the reader has ended, or nobody waits for its answer; whether it is late."""
    watched = select.poll()
    watched.register(ended, select.POLLIN)
    watched.register(connection, 0)  # only its full end
    return not watched.poll(WALL_SECONDS * 1000)


def _end_of(status: int, late: bool) -> dict[str, str]:
    """How a reader ended: empty when it has answered, else the limit that it has met, or the machine's fault."""
    if late:
        return {"fault": f"had too little of the processor to be read within {WALL_SECONDS:g} s"}
    if status == -signal.SIGKILL:
        return {"fault": "was being read when the reader was killed: is the machine out of memory?"}
    if status == NOT_CONFINED:
        return {"fault": "could not be read: the reader could not be confined"}
    if status == OUT_OF_MEMORY:
        return {"limit": f"takes more than {MEMORY // 2**20} MiB of memory to be read"}
    if status == -signal.SIGXCPU:
        return {"limit": f"takes more than {CPU_SECONDS} s of processor time to be read"}
    if status:
        name = signal.Signals(-status).name if -status in set(signal.Signals) else f"status {status}"
        return {"limit": f"crashes its parser ({name}): it may be nested too deeply"}
    return {}


def _confine(plan: dict[str, Any], scratch: str, guard: int) -> None:
    """Limits on the reader and the git that it may start, and nothing to reach but a folder of its own."""
    os.setsid()
    _die_with(guard)
    if sys.platform == "linux":
        # When memory is short, it is killed before anything else.
        own = Path("/proc/self/oom_score_adj")
        if int(own.read_text()) < 900:  # to lower it takes a privilege
            own.write_text("900")
    for which, most in (
        (resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_FSIZE, FILE_BYTES), (resource.RLIMIT_NOFILE, FILES),
        (resource.RLIMIT_CORE, 0),
    ):  # fmt: skip
        hard = resource.getrlimit(which)[1]
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(which, (bound, bound))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))  # SIGXCPU, and then SIGKILL
    os.chdir(scratch)
    tempfile.tempdir = scratch
    if plan["landlock"] is not None:
        rules = [*plan["landlock"]["rules"], (scratch, True)]
        supervisor.restrict({**plan["landlock"], "rules": rules}, plan["filter"])


def _answer(connection: socket.socket, function: Any) -> None:
    """Read the values, and write what the function makes of them, or why it makes nothing."""
    connection.setblocking(True)
    question = bytearray()
    while chunk := connection.recv(2**20):
        question += chunk
    try:
        said = json.dumps({"made": function(*json.loads(question))}).encode()
        if len(said) > ANSWER_LIMIT:
            said = json.dumps({"limit": f"makes a result of more than {ANSWER_LIMIT // 2**20} MiB"}).encode()
    except MemoryError:
        raise
    except RecursionError:
        said = b'{"limit": "is nested too deeply to be read"}'
    except Exception as wrong:  # noqa: BLE001 - whatever a text provokes is about that text
        ours = type(wrong).__module__.startswith("tasks.")
        reason = str(wrong) if ours else f"cannot be read ({type(wrong).__name__}: {str(wrong)[:200]})"
        said = json.dumps({"refused" if ours else "limit": reason}).encode()
    connection.sendall(said)


def _die_with(parent: int) -> None:
    """End when the parent does."""
    if sys.platform == "linux":
        supervisor.die_with(parent)
    elif os.getppid() != parent:
        os._exit(0)

"""Imports packages, waits for a program, and becomes it: what a standby runs in its sandbox.

    python [-P] -c SOURCE PLAN    # SOURCE is this file: nothing of the checkout is visible in a sandbox

PLAN is marshalled, in hex: `modules`, `variables` and `channel`, a socket of the engine. There it says `ready`, or why
it cannot be. The one message that it gets is what a cold start gets from exec: arguments, environment, folder, limits
and descriptors. It then says `able`, hears `go`, closes the socket, and runs the program as `python SCRIPT` or `python
-c SOURCE` would. These differ from a cold start:

- `sys.modules`, the processor time of the process and its age: what was imported ahead.
- What a package found in HOME, TMPDIR or the time when it was imported.
- /proc/self/cmdline, and zeros behind /proc/self/environ.
- `sys.excepthook`, which leaves the frame of this file out of what is printed.
"""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # the empty one of -c: nothing is imported from where it waits

import ctypes
import fcntl
import gc
import importlib.machinery
import marshal
import os
import resource
import socket
import types
from collections.abc import Callable
from typing import Any

MESSAGE_BYTES, MOST_DESCRIPTORS = 2**20, 64


def import_ahead(modules: list[str]) -> str:
    """Import them; why one that is installed could not be."""
    for entry in modules:
        module, _, name = entry.partition(":")
        try:
            found = importlib.import_module(module)
            _ = name and getattr(found, name)
        except ModuleNotFoundError:
            continue
        except Exception as error:  # noqa: BLE001 (whatever a package raises)
            return f"{entry}: {type(error).__name__}: {error}"
    return ""


def take_on(order: dict[str, Any], descriptors: list[int]) -> None:
    """What exec would have set: descriptors, environment, limits, folder."""
    for descriptor, number in zip(descriptors, order["numbers"], strict=True):
        if is_open(number):  # by a package that was imported
            raise OSError(f"descriptor {number} is in use")
        os.dup2(descriptor, number)
        os.close(descriptor)
    variables = dict(order["env"])
    if "PWD" in os.environ:  # bubblewrap sets it
        variables["PWD"] = order["cwd"]
    os.environ.clear()
    os.environ.update(variables)
    rewrite_block(variables)
    for name, most in order["rlimits"].items():
        which = getattr(resource, name)
        hard = resource.getrlimit(which)[1]
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(which, (bound, bound))
    os.chdir(order["cwd"])
    if temporary := sys.modules.get("tempfile"):
        vars(temporary)["tempdir"] = None  # it may have been asked while packages were imported


def is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def aside(descriptors: list[int], numbers: list[int]) -> list[int]:
    """Move descriptors off the numbers that others shall have."""
    above = max(numbers, default=2) + 1
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, above) for descriptor in descriptors]
    for descriptor in descriptors:
        os.close(descriptor)
    return moved


def rewrite_block(variables: dict[str, str]) -> None:
    """Let /proc/PID/environ tell the variables that exec would have put there: by these the engine finds orphans."""
    with open("/proc/self/stat", "rb") as file:
        begin, end = map(int, file.read().rpartition(b")")[2].split()[47:49])
    block = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in variables.items())
    if len(block) > end - begin:
        raise OSError("the environment is larger than what was kept free for it")
    ctypes.memmove(begin, block.ljust(end - begin, b"\0"), end - begin)


def without_standby(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
    """Print an exception without the frame of this file."""
    while trace and trace.tb_frame.f_globals is globals():
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


def program(line: list[str]) -> tuple[Callable[[], types.CodeType], dict[str, Any]]:
    """How to compile the program of that command line, and the namespace of its __main__."""
    words = line[1:] if line[0] == "-P" else line
    sys.orig_argv = [sys.executable, *line]
    sys.excepthook = without_standby
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    space = vars(module)
    space.update(__annotations__={}, __builtins__=__builtins__, __cached__=None)
    if words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        if not sys.flags.safe_path:
            sys.path.insert(0, "")
        del space["__cached__"]
        space["__loader__"] = importlib.machinery.BuiltinImporter
        return lambda: compile(words[1], "<string>", "exec", dont_inherit=True), space
    sys.argv = words
    path = os.path.join(os.getcwd(), words[0])
    if not sys.flags.safe_path:
        sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
    space.update(__file__=path, __loader__=importlib.machinery.SourceFileLoader("__main__", path))
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as fault:  # as the interpreter says it
        sys.stderr.write(f"{sys.executable}: can't open file {path!r}: [Errno {fault.errno}] {fault.strerror}\n")
        sys.exit(2)
    return lambda: compile(source, path, "exec", dont_inherit=True), space


def wait(plan: dict[str, Any]) -> list[str]:
    """Import, say so, and wait; the command line of the program, of which everything else is taken on."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what a package prints is no answer
    os.environ.update(plan["variables"])
    channel = socket.socket(fileno=plan["channel"])
    why = import_ahead(plan["modules"])
    sys.stdout.flush()
    os.dup2(answers, 1)
    os.close(answers)
    gc.collect()
    channel.send(why.encode()[:1000] or b"ready")
    message, descriptors, _, _ = socket.recv_fds(channel, MESSAGE_BYTES, MOST_DESCRIPTORS)
    if not message:  # it is not needed
        os._exit(0)
    order: dict[str, Any] = marshal.loads(message)
    own, *descriptors = aside([channel.detach(), *descriptors], order["numbers"])
    channel = socket.socket(fileno=own)
    take_on(order, descriptors)
    channel.send(b"able")
    if channel.recv(2) != b"go":  # the engine has not waited
        os._exit(0)
    channel.close()
    return list(order["line"])


if __name__ == "__main__":
    _compiled, _space = program(wait(marshal.loads(bytes.fromhex(sys.argv[1]))))
    exec(_compiled(), _space)

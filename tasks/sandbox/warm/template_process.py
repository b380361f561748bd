"""Imports packages, and forks: what a template runs. It never runs, reads or receives anything of a trial.

    python [FLAGS] -c SOURCE PLAN ROOM    # SOURCE is this file: nothing of the checkout is on its path

PLAN is marshalled, in hex: `modules`, `variables`, `home`, `cores` (to import on, and afterwards), `supervisor` (its
code) and `channel`, a socket of the engine. There it says `ready`, or why it cannot be. Each message that it gets has
one descriptor, a connection for one program; it forks, and never looks at that. The forked process says its pid there,
receives what the program is to be, and becomes its supervisor (tasks/sandbox/supervisor.py), which forks and confines
the program: the same walls as around a cold start, which gets from exec what is set here. These differ:

- `sys.modules`, and in it what a package has drawn or read when it was imported, such as the time.
- The seed of `hash`, and where things lie in memory: all programs of a template have the same.
- What was imported ahead is not collected by `gc`.
- Zeros behind /proc/self/cmdline and /proc/self/environ.
- `sys.excepthook`, which leaves the frame of this file out of what is printed.
"""

import sys

BARE = frozenset(sys.modules)
"""What an interpreter has imported before it runs anything."""
if not sys.flags.safe_path:
    del sys.path[0]  # the empty one of -c: nothing is imported from where it waits

import ctypes
import fcntl
import gc
import importlib.machinery
import marshal
import os
import pathlib
import re
import signal
import socket
import types
from collections.abc import Callable
from typing import Any

FILTER = 9
"""Where the supervisor has the system call filter for bubblewrap."""
MESSAGE_BYTES, MOST_DESCRIPTORS = 2**18, 64
ARGUMENTS, ENVIRONMENT = slice(45, 47), slice(47, 49)
"""Where /proc/PID/stat has the addresses of these, behind the name (proc_pid_stat(5))."""
SETTINGS = re.compile(rb"\bputenv\b|\benvironb?\s*(\[[^\]]*\]\s*=[^=]|\|=|\.(update|setdefault|pop|clear)\b)")
"""In a program: it may set variables that a package reads while it is imported."""
DEVICES = "/dev/"
HARMLESS = frozenset({"/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"})

Kept = tuple[Any, Any, str | pathlib.Path]
"""A dictionary or list, a key of it, and the path below the home that a package keeps there."""


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


def shared(before: set[int]) -> str:
    """What forked processes would share, or lack, because of what was imported; empty if there is nothing."""
    if len(threads := os.listdir("/proc/self/task")) > 1:
        names = {read(f"/proc/self/task/{thread}/comm").strip() for thread in threads}
        return f"packages have begun threads, which a fork ends: {', '.join(sorted(names))}"
    if opened := descriptors() - before:
        return f"packages keep files open: {', '.join(os.readlink(f'/proc/self/fd/{number}') for number in opened)}"
    for line in read("/proc/self/maps").splitlines():
        _, mode, _, _, _, *name = line.split(maxsplit=5)
        place = name[0] if name else "unnamed"
        if mode.endswith("s") and "w" in mode:
            return f"packages have memory that forks share: {place}"
        if place.startswith(DEVICES) and place not in HARMLESS:
            return f"packages use a device: {place}"
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return ""
    return "packages have begun processes"


def descriptors() -> set[int]:
    return {number for number in map(int, os.listdir("/proc/self/fd")) if is_open(number)}


def is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def read(path: str) -> str:
    with open(path) as file:
        return file.read()


def loaded() -> list[tuple[str, int]]:
    """The files that were imported, with their times."""
    modules = [vars(module).get("__file__") for module in list(sys.modules.values()) if hasattr(module, "__dict__")]
    files = {path for path in modules if isinstance(path, str) and os.path.exists(path)}
    return [(path, os.stat(path).st_mtime_ns) for path in (*files, os.path.realpath(sys.executable))]


def check_unchanged(files: list[tuple[str, int]]) -> None:
    for path, time in files:
        try:
            if os.stat(path).st_mtime_ns == time:
                continue
        except OSError:
            pass
        raise ValueError(f"{path} has changed since it was imported")


def paths_below(home: str) -> list[Kept]:
    """Where packages keep paths below the home that they were imported in."""
    found: list[Kept] = []
    for holder in gc.get_objects():
        if type(holder) not in (dict, list):
            continue
        for key, value in list(holder.items() if type(holder) is dict else enumerate(holder)):
            if type(value) in (str, pathlib.PosixPath) and str(value).startswith(home):
                found.append((holder, key, value))
    return [kept for kept in found if kept[0] is not globals()]


def receive(connection: socket.socket) -> tuple[bytes, list[int]]:
    message, numbers, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
    return message, numbers


def serve(channel: socket.socket) -> socket.socket:
    """Fork for each message; in the forked process, its connection."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    while True:
        message, numbers = receive(channel)
        if not message:  # the engine has closed it, or ended
            os._exit(0)
        if not os.fork():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            channel.close()
            return socket.socket(fileno=numbers[0])
        os.close(numbers[0])


class Supervision:
    """What a forked process is to do."""

    def __init__(self, connection: socket.socket, files: list[tuple[str, int]], kept: list[Kept], home: str) -> None:
        os.setsid()
        socket.send_fds(connection, [str(os.getpid()).encode()], [own := os.pidfd_open(os.getpid())])
        os.close(own)
        message, given = receive(connection)
        if not message:  # the engine has not waited
            os._exit(0)
        order: dict[str, Any] = marshal.loads(message)
        self.plan, self.line, self.cwd = order["plan"], order["line"], order["cwd"]
        self.numbers: list[int] = order["numbers"]
        """Descriptors that its program has; the last one that is given is the report."""
        self._kept, self._home, self.is_program = kept, home, False
        os.close(connection.detach())
        *given, self.plan["report"] = aside(given, [*self.numbers, FILTER])
        taken = os.open(os.devnull, os.O_RDONLY)
        os.dup2(taken, FILTER, inheritable=False)  # so that nothing else is put there
        if taken != FILTER:
            os.close(taken)
        for descriptor, number in zip(given, self.numbers, strict=True):
            os.dup2(descriptor, number, inheritable=number < 3)
            os.close(descriptor)
        try:
            check_unchanged(files)
            overwrite(ENVIRONMENT, [f"{name}={value}" for name, value in order["variables"].items()])
            os.chdir(self.cwd)
        except (OSError, ValueError) as fault:
            words = str(fault).encode("ascii", "replace").replace(b"\\", b"/").replace(b'"', b"'")
            os.write(self.plan["report"], b'{"outdated": true, "why": "%s"}\n' % words)
            os._exit(127)

    def become(self, plan: dict[str, Any]) -> None:
        """Make this process, which is confined by now, the program: as exec would have."""
        os.chdir(self.cwd)
        check_imports(self.line, self.cwd)
        variables = plan["env"] | ({"PWD": self.cwd} if "wrap" in plan else {})  # as bubblewrap sets it
        os.environ.clear()
        os.environ.update(variables)
        overwrite(ARGUMENTS, [sys.executable, *self.line])
        overwrite(ENVIRONMENT, [f"{name}={value}" for name, value in variables.items()])
        for holder, key, path in self._kept:
            holder[key] = type(path)(str(path).replace(self._home, variables["HOME"], 1))
        for number in self.numbers:
            os.set_inheritable(number, True)
        fresh()
        self.is_program = True
        for number in descriptors() - {0, 1, 2, *self.numbers}:  # the last step: the supervisor waits for it
            os.close(number)


def fresh() -> None:
    """Draw anew what packages drew when they were imported. `random` does so by itself."""
    if drawing := sys.modules.get("numpy.random"):
        vars(drawing)["seed"]()
    if processes := sys.modules.get("multiprocessing.process"):
        vars(processes)["current_process"]().authkey = os.urandom(32)
    if temporary := sys.modules.get("tempfile"):
        vars(temporary)["tempdir"] = None


def check_imports(line: list[str], folder: str) -> None:
    """Refuse a program that would import something else, or otherwise, than what was imported ahead.

    Raises:
        ValueError: a file of it has the name of a module, or it may set variables that packages read.
    """
    files = list(os.scandir(folder))
    ahead = {name.partition(".")[0] for name in sys.modules.keys() - BARE}
    named = sorted({entry.name.partition(".")[0] for entry in files} & ahead)
    if named and not sys.flags.isolated:  # then it imports nothing from there
        raise ValueError(f"its {named[0]} has the name of a module that was imported ahead")
    if "-c" in line[:2] or VARIABLES:  # judged, when packages are loaded before it runs; or they are set already
        return
    for path in pathlib.Path(folder).rglob("*.py"):
        if path.is_file() and SETTINGS.search(path.read_bytes()):
            raise ValueError(f"its {path.name} may set variables that packages read when they are imported")


def aside(descriptors: list[int], numbers: list[int]) -> list[int]:
    """Move descriptors off the numbers that others shall have."""
    above = max(numbers, default=2) + 1
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, above) for descriptor in descriptors]
    for descriptor in descriptors:
        os.close(descriptor)
    return moved


def overwrite(fields: slice, words: list[str]) -> None:
    """Let /proc/PID/cmdline and environ tell what exec would have put there: by the variables the engine finds orphans,
    and by their command lines it names them."""
    with open("/proc/self/stat", "rb") as file:
        begin, end = map(int, file.read().rpartition(b")")[2].split()[fields])
    block = b"".join(os.fsencode(word) + b"\0" for word in words)
    if len(block) > end - begin:
        raise OSError("the arguments or variables are longer than what was kept free for them")
    ctypes.memmove(begin, block.ljust(end - begin, b"\0"), end - begin)


def without_template(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
    """Print an exception without the frame of this file."""
    while trace and trace.tb_frame.f_globals is globals():
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


def program(line: list[str]) -> tuple[Callable[[], types.CodeType], dict[str, Any]]:
    """How to compile the program of that command line, and the namespace of its __main__."""
    words = line[next(at for at, word in enumerate(line) if word == "-c" or not word.startswith("-")) :]
    sys.orig_argv = [sys.executable, *line]
    sys.excepthook = without_template
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


def main(plan: dict[str, Any]) -> list[str]:
    """Import, say so, and fork; in a program, its command line."""
    nothing = os.open(os.devnull, os.O_RDWR)  # for what packages print
    for number in (1, 2):
        os.dup2(nothing, number)
    os.close(nothing)
    os.environ.update(plan["variables"])
    first, afterwards = plan["cores"]
    os.sched_setaffinity(0, first)
    channel, before = socket.socket(fileno=plan["channel"]), descriptors()
    why = import_ahead(plan["modules"]) or shared(before)
    files, kept = loaded(), paths_below(plan["home"])
    supervisor: dict[str, Any] = {"__name__": "supervisor"}
    for code in plan["supervisor"]:
        exec(marshal.loads(code), supervisor)
    os.sched_setaffinity(0, afterwards)
    gc.collect()
    gc.freeze()  # or the first collection of each program copies all of it
    channel.send(why.encode()[:1000] or b"ready")
    supervision = Supervision(serve(channel), files, kept, plan["home"])
    supervisor["main"](supervision.plan, supervision.become, supervisor["joined"])
    if not supervision.is_program:
        os._exit(0)
    return list(supervision.line)


if __name__ == "__main__":
    _plan = marshal.loads(bytes.fromhex(sys.argv[1]))
    VARIABLES: dict[str, str] = _plan["variables"]
    _compiled, _space = program(main(_plan))
    exec(_compiled(), _space)

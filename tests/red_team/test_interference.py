"""The red team against what all programs share: files that anyone may open, the disk, memory, processors, the kernel.

The file that they attack is the program's own train.py, which it may read and not change. It stands for every file of
the system and the interpreter, which are given in the same way, and of which the user may be the owner.
"""

from __future__ import annotations

import ast
import ctypes
import fcntl
import mmap
import os
from pathlib import Path

import pytest

from tasks.sandbox.confinement import Level
from tests.support.levels import SANDBOXED
from tests.support.red_team import Assault, Ground, attack
from tests.support.red_team_neighbours import free

KNOBS = ("oom_score_adj", "oom_adj", "coredump_filter", "timerslack_ns", "loginuid", "autogroup", "comm", "sched")
"""Files of /proc/self that a process may write to."""

TRY = (
    f"""
KNOBS = {KNOBS!r}"""
    + """
import fcntl, mmap, platform, resource, struct
signal.signal(signal.SIGIO, signal.SIG_IGN)  # a broken lease ends its holder

def nr(x86_64, aarch64):
    return x86_64 if platform.machine() == "x86_64" else aarch64

def opened(path="train.py"):
    return os.open(path, os.O_RDONLY)

def commanded(command, value, path="train.py"):
    return syscall(nr(72, 25), opened(path), command, value)

def requested(request, value):
    return fcntl.ioctl(opened(), request, value)

def wide(request, value):
    return syscall(nr(16, 29), opened(), (1 << 32) + request, ctypes.create_string_buffer(value))

def written(path, text):
    return os.write(os.open(path, os.O_WRONLY), text)

def limited(*bounds):
    resource.setrlimit(resource.RLIMIT_CORE, bounds)
    resource.prlimit(0, resource.RLIMIT_CORE, bounds)
    return resource.getrlimit(resource.RLIMIT_CORE)

def held():
    file = opened()
    fcntl.flock(file, fcntl.LOCK_EX)
    if not os.fork():
        if not os.fork(): os.setsid(); time.sleep(60)
        os._exit(0)
    os.wait()

FLAGS = struct.pack("l", 0x80 | 0x40 | 0x08)  # no access times, no dump, written out at once
PROJECT = struct.pack("IIIII8s", 0, 0, 0, 77, 0, b"")

attempt("lease", lambda: commanded(1024, fcntl.F_WRLCK))
attempt("lease by a wide number", lambda: commanded((1 << 32) + 1024, fcntl.F_WRLCK))
attempt("notice", lambda: commanded(1026, 0x80000000 | 0x3F, "."))
attempt("owner", lambda: commanded(8, os.getppid()))
attempt("signal", lambda: commanded(10, 9))
attempt("hint", lambda: commanded(1036, ctypes.byref(ctypes.c_uint64(5))))
attempt("watch", lambda: syscall(nr(254, 27), _libc.inotify_init1(0), b".", 0xFFF))
attempt("flags", lambda: requested(0x40086602, FLAGS))
attempt("flags by a wide number", lambda: wide(0x40086602, FLAGS))
attempt("project", lambda: requested(0x401C5820, PROJECT))
attempt("btrfs", lambda: requested(0x4008941A, struct.pack("q", 2)))
attempt("secret memory", lambda: syscall(447, 0))
attempt("real time", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))
attempt("deadline", lambda: syscall(nr(314, 274), 0, struct.pack("IIQiIQQQ", 48, 6, 0, 0, 0, 10**7, 2 * 10**7, 2 * 10**7), 0))
attempt("favour", lambda: os.nice(-1))
attempt("cores of its own", lambda: syscall(nr(157, 167), 62, 1, 0, 0, 0))
attempt("merged memory", lambda: syscall(nr(157, 167), 67, 1, 0, 0, 0))
attempt("cached pages", lambda: syscall(451, opened(), (ctypes.c_uint64 * 2)(), (ctypes.c_uint64 * 8)(), 0))
for knob in KNOBS:
    attempt("knob " + knob, lambda: written("/proc/self/" + knob, b"0"))
attempt("no core", lambda: limited(0, 0))
attempt("core", lambda: limited(2**20, 2**20))
attempt("queued signals", lambda: resource.getrlimit(resource.RLIMIT_SIGPENDING))
note("oom", got=pathlib.Path("/proc/self/oom_score_adj").read_text().strip())

def dropped():
    os.fsync(opened())
    os.posix_fadvise(opened(), 0, 0, os.POSIX_FADV_DONTNEED)
    with mmap.mmap(opened(), 0, prot=mmap.PROT_READ) as view:
        view.madvise(20)  # MADV_COLD
        view.madvise(21)  # MADV_PAGEOUT

attempt("drop from memory", dropped)
attempt("hold a lock", held)
model()
raise SystemExit(3)
"""
)


REFUSED = {
    "a lease on a file that others open": ("lease", "lease by a wide number"),
    "hearing what others open": ("notice", "watch"),
    "settings of an open file that reach others": ("owner", "signal", "hint"),
    "marks of a file that is open for reading": (*("flags", "flags by a wide number", "project", "btrfs"),),
    "running before everybody else": ("real time", "deadline", "favour", "cores of its own"),
    "memory that is hidden or shows what others hold": ("secret memory", "merged memory", "cached pages"),
    "a better place when memory is short": tuple(f"knob {name}" for name in KNOBS),
}


@pytest.fixture(scope="module", params=SANDBOXED)
def tried(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Assault:
    return attack(Ground.lay(tmp_path_factory.mktemp("interference")), TRY, request.param)


@pytest.mark.parametrize("kind", REFUSED)
def test_red_team_what_others_of_the_machine_would_feel(tried: Assault, kind: str) -> None:
    attempts, place = tried.attempts, tried.place
    assert [name for name in REFUSED[kind] if not attempts[name].refused] == []
    assert flags(place.workspace / "train.py") == flags(place.config)
    assert attempts["oom"].got == "800", "it is the first to be killed"


def test_red_team_what_is_granted_without_effect_on_others(tried: Assault) -> None:
    """Only a core limit of exactly 1 byte keeps a handler that is a program from being started, as root. Waiting
    signals are counted for all processes of a user: a program has a share. Advice on a file that others read too does
    nothing. A lock on a file that it may read is free again when the trial has ended."""
    attempts, file = tried.attempts, tried.place.workspace / "train.py"
    assert attempts["no core"].got == attempts["core"].got == "(1, 1)"
    soft, hard = ast.literal_eval(str(attempts["queued signals"].got))
    assert soft == hard <= 4096
    assert not attempts["drop from memory"].refused and resident(file)
    assert not attempts["hold a lock"].refused and free(file)


def flags(path: Path) -> bytes:
    """A file's flags; empty where the file system has none."""
    with path.open("rb") as file:
        try:
            return fcntl.ioctl(file, 0x80086601, bytes(8))
        except OSError:
            return b""


def resident(path: Path) -> bool:
    """Whether all of a file is in memory, without reading it."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE) as view:
        pages = (ctypes.c_ubyte * -(-len(view) // mmap.PAGESIZE))()
        start = ctypes.addressof(ctypes.c_char.from_buffer(view))
        libc = ctypes.CDLL(None, use_errno=True)
        assert not libc.mincore(ctypes.c_void_p(start), ctypes.c_size_t(len(view)), pages), ctypes.get_errno()
        return all(page & 1 for page in pages)


READ = 'attempt("read", lambda: open(TARGETS["toml"].replace("environment.toml", "data/file")).read())\nmodel()\n'


@pytest.mark.parametrize("level", SANDBOXED)
def test_red_team_leaving_a_trace_by_reading(tmp_path: Path, level: Level) -> None:
    """An access time tells a later trial what an earlier one has read. (At landlock it is written: no mount is made.)"""
    ground = Ground.lay(tmp_path)
    file = ground.environment / "data/file"
    file.parent.mkdir()
    file.write_text("data")
    os.utime(file, (1e9, 1.1e9))
    assault = attack(ground, READ, level, settings={"readable": ("data",)})
    assert assault.attempts["read"].got == "'data'"
    assert level != "bwrap" or file.stat().st_atime == 1e9


CONTROL = (
    TRY.partition('attempt("lease"')[0]
    + """
mine = opened()
attempt("lease", lambda: fcntl.fcntl(mine, 1024, fcntl.F_WRLCK))
os.close(mine)
attempt("notice", lambda: commanded(1026, 0x3F, "."))
attempt("watch", lambda: syscall(nr(254, 27), _libc.inotify_init1(0), b".", 0xFFF))
attempt("knob", lambda: written("/proc/self/coredump_filter", b"0"))
attempt("no core", lambda: limited(0, 0))
model()
"""
)


def test_red_team_without_a_sandbox_the_same_is_granted(tmp_path: Path) -> None:
    assault = attack(Ground.lay(tmp_path), CONTROL, "none")
    for name in ("notice", "watch", "knob"):
        assert not assault.attempts[name].refused, name
    assert assault.attempts["no core"].got == "(0, 0)"
    assert assault.attempts["lease"].got == "0"

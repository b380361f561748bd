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
from dataclasses import dataclass
from pathlib import Path

import pytest

from tasks.sandbox.confinement import Level
from tests.support.levels import SANDBOXED
from tests.support.red_team import Assault, Ground, attack
from tests.support.red_team_neighbours import free

TRY = """
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
VERITY = struct.pack("IIIIQIIQ", 1, 1, 4096, 0, 0, 0, 0, 0) + bytes(88)

attempt("lease", lambda: commanded(1024, fcntl.F_WRLCK))
attempt("lease for reading", lambda: commanded(1024, fcntl.F_RDLCK))
attempt("lease by a wide number", lambda: commanded((1 << 32) + 1024, fcntl.F_WRLCK))
attempt("notice", lambda: commanded(1026, 0x80000000 | 0x3F, "."))
attempt("owner", lambda: commanded(8, os.getppid()))
attempt("signal", lambda: commanded(10, 9))
attempt("hint", lambda: commanded(1036, ctypes.byref(ctypes.c_uint64(5))))
attempt("watch", lambda: syscall(nr(254, 27), _libc.inotify_init1(0), b".", 0xFFF))
attempt("watches", lambda: syscall(nr(294, 26), 0))
attempt("flags", lambda: requested(0x40086602, FLAGS))
attempt("flags by a wide number", lambda: wide(0x40086602, FLAGS))
attempt("flags of 32 bits", lambda: requested(0x40046602, FLAGS))
attempt("version", lambda: requested(0x40087602, struct.pack("l", 7)))
attempt("project", lambda: requested(0x401C5820, PROJECT))
attempt("verity", lambda: requested(0x40806685, VERITY))
attempt("btrfs", lambda: requested(0x4008941A, struct.pack("q", 2)))
attempt("secret memory", lambda: syscall(447, 0))
attempt("real time", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))
attempt("deadline", lambda: syscall(nr(314, 274), 0, struct.pack("IIQiIQQQ", 48, 6, 0, 0, 0, 10**7, 2 * 10**7, 2 * 10**7), 0))
attempt("disk in real time", lambda: syscall(nr(251, 30), 1, 0, 1 << 13))
attempt("favour", lambda: os.nice(-1))
attempt("cores of its own", lambda: syscall(nr(157, 167), 62, 1, 0, 0, 0))
attempt("merged memory", lambda: syscall(nr(157, 167), 67, 1, 0, 0, 0))
attempt("cached pages", lambda: syscall(451, opened(), (ctypes.c_uint64 * 2)(), (ctypes.c_uint64 * 8)(), 0))
for knob in ("oom_score_adj", "oom_adj", "coredump_filter", "timerslack_ns", "loginuid", "autogroup", "comm", "sched"):
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


@dataclass(frozen=True)
class Tried:
    level: Level
    assault: Assault

    @property
    def file(self) -> Path:
        """The file that was attacked."""
        return self.assault.place.workspace / "train.py"


@pytest.fixture(scope="module", params=SANDBOXED)
def tried(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tried:
    ground = Ground.lay(tmp_path_factory.mktemp("interference"))
    return Tried(request.param, attack(ground, TRY, request.param))


def refused(tried: Tried, *names: str) -> None:
    for name in names:
        assert tried.assault.attempts[name].refused, name


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


@pytest.mark.parametrize("how", ["lease", "lease for reading", "lease by a wide number"])
def test_red_team_a_lease_on_a_file_that_others_open(tried: Tried, how: str) -> None:
    """F_SETLEASE: whoever opens the file next would wait for 45 seconds."""
    refused(tried, how)


@pytest.mark.parametrize("how", ["notice", "watch", "watches"])
def test_red_team_hearing_what_others_open(tried: Tried, how: str) -> None:
    """dnotify and inotify on a folder that others use too; a user has few watches, so they can also be used up."""
    refused(tried, how)


@pytest.mark.parametrize("how", ["owner", "signal", "hint"])
def test_red_team_settings_of_an_open_file_that_reach_others(tried: Tried, how: str) -> None:
    """F_SETOWN and F_SETSIG choose who is signalled, F_SET_RW_HINT how the disk treats the file."""
    refused(tried, how)


@pytest.mark.parametrize(
    "how", ["flags", "flags by a wide number", "flags of 32 bits", "version", "project", "verity", "btrfs"]
)
def test_red_team_marks_of_a_file_that_is_open_for_reading(tried: Tried, how: str) -> None:
    """ioctl: attributes as by chattr, a project for quotas, and fs-verity, which makes a file unchangeable for good."""
    refused(tried, how)
    assert flags(tried.file) == flags(tried.assault.place.workspace / "config.json")


@pytest.mark.parametrize("how", ["real time", "deadline", "disk in real time", "favour", "cores of its own"])
def test_red_team_running_before_everybody_else(tried: Tried, how: str) -> None:
    """Real-time classes of the processor and of the disk, a better priority, cores that others must leave."""
    refused(tried, how)


@pytest.mark.parametrize("how", ["secret memory", "merged memory", "cached pages"])
def test_red_team_memory_that_is_hidden_or_shows_what_others_hold(tried: Tried, how: str) -> None:
    """memfd_secret, KSM, cachestat."""
    refused(tried, how)


def test_red_team_a_better_place_when_memory_is_short(tried: Tried) -> None:
    """Its score stays 800, that of the first to be killed; nor can it write to any other knob in /proc/self."""
    refused(tried, *(name for name in tried.assault.attempts if name.startswith("knob ")))
    assert tried.assault.attempts["oom"].got == "800"


def test_red_team_starting_the_machines_handler_of_core_dumps(tried: Tried) -> None:
    """Only a core limit of exactly 1 byte keeps a handler that is a program from being started, as root."""
    for name in ("no core", "core"):
        assert tried.assault.attempts[name].got == "(1, 1)", name


def test_red_team_using_up_the_signals_of_the_user(tried: Tried) -> None:
    """Waiting signals and timers are counted for all processes of a user; a program has a share of its own."""
    soft, hard = ast.literal_eval(str(tried.assault.attempts["queued signals"].got))
    assert soft == hard <= 4096


def test_red_team_dropping_shared_files_from_memory(tried: Tried) -> None:
    """posix_fadvise and madvise on a file that others read too: the advice is granted without effect."""
    assert not tried.assault.attempts["drop from memory"].refused
    assert resident(tried.file)


def test_red_team_a_lock_that_outlives_the_trial(tried: Tried) -> None:
    """flock on a file that it may read is granted, and is free again when the trial has ended."""
    assert not tried.assault.attempts["hold a lock"].refused
    assert free(tried.file)


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

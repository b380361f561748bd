"""The red team against other processes and the kernel: no program signals, traces or slows what is not its own.

What an attack would do to a process is harmless where no sandbox stops it: the signal to everybody is SIGURG, which
nobody notices who did not ask for it; the victim and the engine did.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tasks.sandbox import cgroup, confinement
from tasks.sandbox.confinement import Level
from tests.support.levels import SANDBOXED
from tests.support.red_team import Assault, Ground, attack
from tests.support.red_team_neighbours import Neighbours, free, neighbours

TRY = """
import fcntl, platform, resource, struct, termios
VICTIM, ENGINE, KEEPER = TARGETS["victim"], TARGETS["engine"], os.getppid() or 1  # 0: outside of its namespace

def nr(x86_64, aarch64):
    return x86_64 if platform.machine() == "x86_64" else aarch64

def everybody(number):
    reached = 0
    for pid in [-1, 0, *range(2, 70_000), VICTIM, ENGINE]:
        if pid == 0 or pid == os.getpid(): continue
        try: os.kill(pid, number); reached += 1
        except OSError: pass
    return reached

def owned(pid, number):
    a, b = socket.socketpair()
    fcntl.fcntl(a, fcntl.F_SETOWN, pid)
    fcntl.fcntl(a, 10, number)  # F_SETSIG
    fcntl.fcntl(a, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    b.send(b"x")

def copied(pid, address):
    here = ctypes.create_string_buffer(60)
    local = (ctypes.c_ulong * 2)(ctypes.addressof(here), 60)
    remote = (ctypes.c_ulong * 2)(address, 60)
    syscall(nr(310, 270), pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
    return here.raw

def forged():
    for number in range(3, 256):
        if number == _notes: continue
        try: os.write(number, b'{"status": 0}\\n{"over": true}\\n')
        except OSError: pass
    for name in os.listdir(f"/proc/{KEEPER}/fd"):
        with open(f"/proc/{KEEPER}/fd/{name}", "wb") as pipe: pipe.write(b'{"status": 0}\\n{"over": true}\\n')

def line(name):
    return next(l.split(None, 1)[1].strip() for l in open("/proc/self/status") if l.startswith(name + ":"))

def shared(key):
    number = syscall(nr(29, 194), key, 0, 0)
    _libc.shmat.restype = ctypes.c_void_p
    return ctypes.string_at(_libc.shmat(number, None, 0), 60)

def typed(path):
    with open(path, "wb", buffering=0) as terminal:
        terminal.write(b"typed")
        for byte in b"typed": fcntl.ioctl(terminal, termios.TIOCSTI, bytes([byte]))

def rooted(path):
    os.chroot(path)
    return os.listdir("/")

def namespace(kind):
    with open(f"/proc/{ENGINE}/ns/{kind}") as there: return syscall(nr(308, 268), there.fileno(), 0)

def spaces():
    return sorted(os.readlink("/proc/self/ns/" + kind) for kind in os.listdir("/proc/self/ns"))

def commanded(command, value, path="train.py"):
    return syscall(nr(72, 25), os.open(path, os.O_RDONLY), command, value)

def limited(*bounds):
    resource.setrlimit(resource.RLIMIT_CORE, bounds)
    resource.prlimit(0, resource.RLIMIT_CORE, bounds)
    return resource.getrlimit(resource.RLIMIT_CORE)

def held():
    fcntl.flock(os.open("train.py", os.O_RDONLY), fcntl.LOCK_EX)
    if not os.fork():
        if not os.fork(): os.setsid(); time.sleep(60)
        os._exit(0)
    os.wait()

FLAGS = struct.pack("l", 0x80 | 0x40 | 0x08)  # no access times, no dump, written out at once
before = spaces()
attempt("signal everybody", lambda: everybody(signal.SIGURG))
attempt("kill", lambda: os.kill(VICTIM, signal.SIGKILL))
attempt("kill the engine", lambda: os.kill(ENGINE, signal.SIGURG))
attempt("kill the keeper", lambda: os.kill(KEEPER, signal.SIGKILL))
attempt("pidfd", lambda: syscall(424, syscall(434, VICTIM, 0), 9, 0, 0))
attempt("F_SETOWN", lambda: owned(VICTIM, signal.SIGKILL))
attempt("ptrace", lambda: syscall(nr(101, 117), 16, VICTIM, 0, 0))
attempt("copy memory", lambda: copied(VICTIM, TARGETS["address"]))
attempt("write memory", lambda: os.pwrite(os.open(f"/proc/{VICTIM}/mem", os.O_WRONLY), b"hacked", TARGETS["address"]))
attempt("forge", forged)
for pid, who in ((VICTIM, "victim"), (ENGINE, "engine")):
    attempt(f"prlimit of the {who}", lambda: __import__("resource").prlimit(pid, 7, (500, 500)))
    attempt(f"nice of the {who}", lambda: os.setpriority(os.PRIO_PROCESS, pid, os.nice(0) + 3))
    attempt(f"affinity of the {who}", lambda: os.sched_setaffinity(pid, {0}))
    attempt(f"scheduler of the {who}", lambda: os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0)))
    attempt(f"ioprio of the {who}", lambda: syscall(nr(251, 30), 1, pid, 3 << 13))
    attempt(f"oom of the {who}", lambda: pathlib.Path(f"/proc/{pid}/oom_score_adj").write_text("1000"))
attempt("shared memory", lambda: shared(TARGETS["shm"]))
attempt("receive a message", lambda: [syscall(nr(70, 188), TARGETS["queue id"], held := ctypes.create_string_buffer(80), 60, 0, 0o4000), held.raw][1])
attempt("mount", lambda: syscall(nr(165, 40), b"tmpfs", str(OUT).encode(), b"tmpfs", 0, 0))
attempt("bind mount", lambda: syscall(nr(428, 428), -100, b"/", 1))
attempt("unshare", lambda: syscall(nr(272, 97), 0x10000000))
attempt("clone a namespace", lambda: syscall(nr(56, 220), 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0) or os._exit(0))
attempt("chroot", lambda: rooted("/proc/1/root"))
attempt("setns", lambda: namespace("user"))
note("spaces", got=str(before == spaces()))
attempt("clock", lambda: time.clock_settime(time.CLOCK_REALTIME, time.time() + 2))
attempt("keyctl", lambda: syscall(nr(250, 219), 11, -4, 0, 0))
attempt("io_uring", lambda: syscall(425, 4, ctypes.create_string_buffer(200)))
attempt("bpf", lambda: syscall(nr(321, 280), 0, ctypes.create_string_buffer(120), 72))
attempt("perf", lambda: syscall(nr(298, 241), ctypes.create_string_buffer(120), -1, 0, -1, 0))
attempt("watch", lambda: syscall(nr(254, 27), _libc.inotify_init1(0), os.path.dirname(TARGETS["judge"]).encode(), 2))
attempt("kernel log", lambda: syscall(nr(103, 116), 3, ctypes.create_string_buffer(100), 100))
attempt("a call of another kind", lambda: syscall(0x40000000 + nr(101, 117), 16, VICTIM, 0, 0))
for path in ("/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/sys/fs/cgroup/cgroup.procs", "/dev/kmsg",
             "/dev/mem", "/dev/kvm", "/dev/vda", "/dev/fuse", "/dev/net/tun"):
    attempt("open " + path, lambda: os.close(os.open(path, os.O_WRONLY)))
for group in TARGETS["groups"]:
    attempt("leave " + group, lambda: pathlib.Path(group).write_text(str(os.getpid())))
note("group", got=open("/proc/self/cgroup").read()[:2000])
attempt("pty", lambda: typed(TARGETS["pty"]))
attempt("setuid", lambda: os.setuid(0) or os.seteuid(0))
attempt("su", lambda: subprocess.run(["su", "-c", "grep CapEff /proc/self/status; id -u"], stdin=-3, capture_output=True, timeout=5).stdout)
for name in ("NoNewPrivs", "CapEff", "CapPrm", "CapInh", "CapAmb", "Uid", "Seccomp"):
    note(name, got=line(name))
attempt("lease", lambda: commanded(1024, fcntl.F_WRLCK))
attempt("notice", lambda: commanded(1026, 0x80000000 | 0x3F, "."))
attempt("owner", lambda: commanded(8, os.getppid()))
attempt("flags", lambda: fcntl.ioctl(os.open("train.py", os.O_RDONLY), 0x40086602, FLAGS))
attempt("secret memory", lambda: syscall(447, 0))
attempt("real time", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))
attempt("favour", lambda: os.nice(-1))
for knob in ("oom_score_adj", "coredump_filter", "timerslack_ns", "autogroup", "comm", "sched"):
    attempt("knob " + knob, lambda: os.write(os.open("/proc/self/" + knob, os.O_WRONLY), b"0"))
attempt("no core", lambda: limited(0, 0))
attempt("core", lambda: limited(2**20, 2**20))
attempt("queued signals", lambda: resource.getrlimit(resource.RLIMIT_SIGPENDING)[1] > 4096)
attempt("hold a lock", held)
note("oom", got=pathlib.Path("/proc/self/oom_score_adj").read_text().strip())
model()
raise SystemExit(3)
"""

CONTROL = (
    TRY.partition("before = spaces()")[0]
    + """
attempt("kill the engine", lambda: os.kill(ENGINE, signal.SIGURG))
attempt("shared memory", lambda: shared(TARGETS["shm"]))
attempt("pty", lambda: typed(TARGETS["pty"]))
attempt("F_SETOWN", lambda: owned(VICTIM, signal.SIGKILL))
"""
)
"""Those that hurt nobody else where there is no sandbox."""

REFUSED = {
    "killing": ("kill", "pidfd", "kill the engine"),
    "looking into a process": ("ptrace", "copy memory", "write memory"),
    "slowing a process": tuple(
        f"{what} of the {who}"
        for what in ("prlimit", "nice", "affinity", "scheduler", "ioprio", "oom")
        for who in ("victim", "engine")
    ),
    "memory and messages of the user": ("shared memory", "receive a message"),
    "leaving its namespaces": (*("mount", "bind mount", "unshare", "clone a namespace", "chroot", "setns"),),
    "the machine": ("clock",),
    "keys": ("keyctl",),
    "doors of the kernel": (*("io_uring", "bpf", "perf", "kernel log", "watch", "a call of another kind"),),
    "the terminal": ("pty",),
    "its keeper": ("forge",),
    "files that others open": ("lease", "notice", "owner", "flags"),
    "running before everybody else": ("real time", "favour", "secret memory"),
    "a better place when memory is short": tuple(
        f"knob {name}" for name in ("oom_score_adj", "coredump_filter", "timerslack_ns", "autogroup", "comm", "sched")
    ),
}
"""What nothing may come of. What is tried besides has effects in its own namespace, or none."""


@dataclass(frozen=True)
class Tried:
    level: Level
    assault: Assault
    around: Neighbours


@pytest.fixture(scope="module", params=SANDBOXED)
def tried(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tried]:
    ground = Ground.lay(tmp_path_factory.mktemp("processes"))
    with neighbours(ground) as around:
        yield Tried(request.param, attack(ground, TRY, request.param, targets=around.targets()), around)


@pytest.mark.parametrize("kind", REFUSED)
def test_red_team_reaching_other_processes_and_the_kernel(tried: Tried, kind: str) -> None:
    """Each was tried and refused."""
    attempts = tried.assault.attempts
    assert [name for name in REFUSED[kind] if not attempts[name].refused] == []


def test_red_team_what_is_around_a_program_is_as_it_was(tried: Tried) -> None:
    """After signals to every number that a process may have and to the owner of a socket, queues and typing: the victim
    lives and answers, nobody was signalled, no secret is out."""
    attempts, around = tried.assault.attempts, tried.around
    assert {"signal everybody", "F_SETOWN", "kill the keeper"} <= attempts.keys()
    assert attempts["signal everybody"].got is not None and around.signals == []
    assert around.victim.poll() is None and around.asked() == around.ground.secret
    assert around.states() == around.before
    assert around.shared() == around.ground.secret.encode() and around.typed() == b""
    assert attempts["spaces"].got == "True", "it is where it was"
    assert tried.assault.leaks(around.ground.secret) == []
    # It has neither killed its keeper nor spoken for it, also by the descriptors of both.
    assert str(tried.assault.run.error).startswith("exited with status 3")


def test_red_team_devices_switches_and_control_groups_of_the_machine(tried: Tried) -> None:
    """Open for writing the system request key, the core pattern, memory, disks, KVM, and the engine's own group."""
    attempts, groups = tried.assault.attempts, cgroup.find()
    opened = [name for name in attempts if name.startswith(("open /", "leave "))]
    assert len(opened) == (11 if groups else 9)
    assert [name for name in opened if not attempts[name].refused] == []
    if groups and tried.level == "landlock":  # behind bubblewrap its group is the root of all that it sees
        assert cgroup.STEM in str(attempts["group"].got)


def test_red_team_gaining_rights(tried: Tried) -> None:
    """setuid(0) and su. It has no capabilities, can gain none by executing anything, and is nobody behind bubblewrap."""
    attempts = tried.assault.attempts
    assert {"setuid", "su"} <= attempts.keys()
    assert (attempts["NoNewPrivs"].got, attempts["Seccomp"].got) == ("1", "2")
    for name in ("CapEff", "CapPrm", "CapInh", "CapAmb"):
        assert int(str(attempts[name].got), 16) == 0, name
    assert "CapEff" not in str(attempts["su"].got) or "CapEff:\\t0000000000000000" in str(attempts["su"].got)
    user = confinement.NOBODY if tried.level == "bwrap" else os.geteuid()
    assert set(str(attempts["Uid"].got).split()) == {str(user)}


def test_red_team_what_is_granted_has_no_effect_on_others(tried: Tried) -> None:
    """Only a core limit of exactly 1 byte keeps a handler that is a program from being started, as root. Waiting
    signals are counted for all processes of a user: a program has a share. A lock on a file that it may read is free
    again when the trial has ended."""
    attempts, file = tried.assault.attempts, tried.assault.place.workspace / "train.py"
    assert attempts["no core"].got == attempts["core"].got == "(1, 1)" and attempts["queued signals"].got == "False"
    assert not attempts["hold a lock"].refused and free(file)
    assert attempts["oom"].got == "800", "it is the first to be killed"


def test_red_team_without_a_sandbox_its_neighbours_are_reached(tmp_path: Path) -> None:
    """What holds above is held by the sandbox: at none signals, priorities, memory and terminals are the user's."""
    with neighbours(Ground.lay(tmp_path)) as around:
        attack(around.ground, CONTROL, "none", targets=around.targets())
        assert around.signals == [signal.SIGURG]
        assert around.typed().startswith(b"typed")
        assert around.victim.wait(5) == -signal.SIGKILL

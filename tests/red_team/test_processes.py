"""The red team against other processes and the kernel: no program signals, traces or slows what is not its own.

What an attack would do to a process is harmless where no sandbox stops it: the signal to everybody is SIGURG, which
nobody notices who did not ask for it; the victim and the engine did.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tasks.sandbox import cgroup, confinement
from tasks.sandbox.confinement import Level
from tests.support.levels import WORKING
from tests.support.red_team import PRELUDE, VARIABLE, Ground, attack, neighbours

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

def forged():
    for number in range(3, 256):
        if number == _notes: continue
        try: os.write(number, b'{"status": 0}\\n')
        except OSError: pass
    for name in os.listdir(f"/proc/{KEEPER}/fd"):
        with open(f"/proc/{KEEPER}/fd/{name}", "wb") as pipe: pipe.write(b'{"status": 0}\\n')

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

FLAGS = struct.pack("l", 0x80 | 0x40 | 0x08)  # no access times, no dump, written out at once
attempt("signal everybody", lambda: everybody(signal.SIGURG))
attempt("kill", lambda: os.kill(VICTIM, signal.SIGKILL))
attempt("kill the keeper", lambda: os.kill(KEEPER, signal.SIGKILL))
attempt("pidfd", lambda: syscall(424, syscall(434, VICTIM, 0), 9, 0, 0))
attempt("F_SETOWN", lambda: owned(VICTIM, signal.SIGKILL))
attempt("ptrace", lambda: syscall(nr(101, 117), 16, VICTIM, 0, 0))
attempt("forge", forged)
attempt("limit", lambda: resource.prlimit(VICTIM, 7, (500, 500)))
attempt("nice", lambda: os.setpriority(os.PRIO_PROCESS, VICTIM, os.nice(0) + 3))
attempt("affinity", lambda: os.sched_setaffinity(VICTIM, {0}))
attempt("scheduler", lambda: os.sched_setscheduler(VICTIM, os.SCHED_BATCH, os.sched_param(0)))
attempt("ioprio", lambda: syscall(nr(251, 30), 1, VICTIM, 3 << 13))
attempt("oom of another", lambda: pathlib.Path(f"/proc/{VICTIM}/oom_score_adj").write_text("1000"))
attempt("shared memory", lambda: shared(TARGETS["shm"]))
attempt("mount", lambda: syscall(nr(165, 40), b"tmpfs", str(OUT).encode(), b"tmpfs", 0, 0))
attempt("unshare", lambda: syscall(nr(272, 97), 0x10000000))
attempt("clone a namespace", lambda: syscall(nr(56, 220), 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0) or os._exit(0))
attempt("chroot", lambda: os.chroot("/proc/1/root"))
attempt("setns", lambda: syscall(nr(308, 268), os.open(f"/proc/{ENGINE}/ns/user", os.O_RDONLY), 0))
attempt("clock", lambda: time.clock_settime(time.CLOCK_REALTIME, time.time() + 2))
attempt("keyctl", lambda: syscall(nr(250, 219), 11, -4, 0, 0))
attempt("io_uring", lambda: syscall(425, 4, ctypes.create_string_buffer(200)))
attempt("bpf", lambda: syscall(nr(321, 280), 0, ctypes.create_string_buffer(120), 72))
attempt("watch", lambda: syscall(nr(254, 27), _libc.inotify_init1(0), os.path.dirname(TARGETS["judge"]).encode(), 2))
attempt("kernel log", lambda: syscall(nr(103, 116), 3, ctypes.create_string_buffer(100), 100))
attempt("a call of another kind", lambda: syscall(0x40000000 + nr(101, 117), 16, VICTIM, 0, 0))
for path in ("/proc/sys/kernel/core_pattern", "/sys/fs/cgroup/cgroup.procs", "/dev/mem", "/dev/kvm", "/dev/net/tun"):
    attempt("open " + path, lambda: os.close(os.open(path, os.O_WRONLY)))
for group in TARGETS["groups"]:
    attempt("leave " + group, lambda: pathlib.Path(group).write_text(str(os.getpid())))
note("group", got=open("/proc/self/cgroup").read()[:2000])
attempt("pty", lambda: typed(TARGETS["pty"]))
attempt("su", lambda: subprocess.run(["su", "-c", "grep CapEff /proc/self/status; id -u"], stdin=-3, capture_output=True, timeout=5).stdout)
for name in TARGETS["stated"]:
    note(name, got=line(name))
attempt("lease", lambda: fcntl.fcntl(os.open("train.py", os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_WRLCK))
attempt("flags", lambda: fcntl.ioctl(os.open("train.py", os.O_RDONLY), 0x40086602, FLAGS))
attempt("favour", lambda: os.nice(-1))
attempt("knob", lambda: os.write(os.open("/proc/self/oom_score_adj", os.O_WRONLY), b"0"))
attempt("core", lambda: resource.setrlimit(resource.RLIMIT_CORE, (2**20, 2**20)))
note("oom", got=pathlib.Path("/proc/self/oom_score_adj").read_text().strip())
model()
raise SystemExit(3)
"""

CONTROL = (
    TRY.partition("FLAGS = ")[0]
    + """
attempt("kill the engine", lambda: os.kill(ENGINE, signal.SIGURG))
attempt("pty", lambda: typed(TARGETS["pty"]))
attempt("F_SETOWN", lambda: owned(VICTIM, signal.SIGKILL))
"""
)
"""Those that hurt nobody else where there is no sandbox."""

STATED = ("NoNewPrivs", "CapEff", "CapPrm", "CapInh", "CapAmb", "Uid", "Seccomp")
OWN = {"signal everybody", "kill the keeper", "F_SETOWN", "su", "affinity"}
"""What has effects in its own namespace, or none. All else is refused: killing, looking into a process or slowing it,
memory of the user, leaving its namespaces, the clock, keys, doors of the kernel, devices, its group, the
terminal, speaking for its keeper, files that others open, running before everybody else, staying when memory is short."""


@pytest.mark.parametrize("level", WORKING)
def test_red_team_reaching_other_processes_and_the_kernel(tmp_path: Path, level: Level) -> None:
    """Each was tried and refused. After signals to every number that a process may have and to the owner of a socket,
    and typing, the victim lives, nobody was signalled, no secret is out. Without a sandbox signals and terminals are the
    user's."""
    with neighbours(Ground.lay(tmp_path)) as around:
        if level == "none":
            attack(around.ground, CONTROL, level, targets=around.targets())
            assert around.signals == [signal.SIGURG] and around.typed().startswith(b"typed")
            assert around.victim.wait(5) == -signal.SIGKILL
            return
        assault = attack(around.ground, TRY, level, targets=around.targets() | {"stated": STATED})
        assert around.victim.poll() is None and around.signals == [] and around.typed() == b""
    attempts, groups = assault.attempts, cgroup.find()
    assert [name for name, one in attempts.items() if one.error is None and one.got is None] == [], "it came back"
    granted = {name for name in attempts if not attempts[name].refused}
    assert granted - OWN == {"group", "oom", *STATED}
    if groups and level == "landlock":  # behind bubblewrap its group is the root of all that it sees
        assert cgroup.STEM in str(attempts["group"].got)
    assert attempts["signal everybody"].got is not None
    assert assault.leaks(around.ground.secret) == []
    # It has neither killed its keeper nor spoken for it, also by the descriptors of both.
    assert str(assault.run.error).startswith("exited with status 3")
    # It has no capabilities, can gain none by executing anything, and is nobody behind bubblewrap.
    assert (attempts["NoNewPrivs"].got, attempts["Seccomp"].got) == ("1", "2")
    for name in STATED[1:5]:
        assert int(str(attempts[name].got), 16) == 0, name
    assert "CapEff" not in str(attempts["su"].got) or "CapEff:\\t0000000000000000" in str(attempts["su"].got)
    user = confinement.NOBODY if level == "bwrap" else os.geteuid()
    assert set(str(attempts["Uid"].got).split()) == {str(user)}
    assert attempts["oom"].got == "800", "it is the first to be killed"


# The red team against the files: what is not a program's own it can neither read nor change.


READ = """
def read(path): return open(path, "rb").read(2000)

def below(folder):
    return [read(os.path.join(parent, name)) for parent, _, names in os.walk(folder, onerror=stop) for name in names]

def stop(error): raise error

def linked(make):
    make(TARGETS["judge"], OUT / make.__name__)
    return read(OUT / make.__name__)

for name in ("judge", "toml", "campaign", "results", "table", "proposal", "checkpoint", "decided", "key", "parent",
             "bashrc", "netrc"):
    attempt(name, lambda: read(TARGETS[name]))
attempt("judge by a link", lambda: linked(os.symlink)); (OUT / "symlink").unlink(missing_ok=True)
attempt("judge by a name of its own", lambda: linked(os.link)); (OUT / "link").unlink(missing_ok=True)
attempt("judge by the root of itself", lambda: read("/proc/self/root" + TARGETS["judge"]))
attempt("list the other trial", lambda: below(os.path.dirname(TARGETS["proposal"])))
attempt("list the home", lambda: below(os.path.dirname(TARGETS["bashrc"])))
victim = f"/proc/{TARGETS['victim']}"
for name in ("environ", "cmdline", f"fd/{TARGETS['victim fd']}", "root" + TARGETS["netrc"], "cwd/.netrc"):
    attempt("victim's " + name.partition("/")[0], lambda: read(f"{victim}/{name}"))
attempt("victim's mem", lambda: os.pread(os.open(f"{victim}/mem", os.O_RDONLY), 100, TARGETS["address"]))
for name in ("environ", "maps"):
    attempt("engine's " + name, lambda: read(f"/proc/{TARGETS['engine']}/{name}"))
attempt("listed", lambda: read(TARGETS["listed"]))
attempt("listed alone", lambda: read(TARGETS["listed alone"]))
def keep(name, data): (OUT / name).write_bytes(data)
attempt("variables", lambda: keep("variables", str(os.environ).encode()))
attempt("keeper's variables", lambda: keep("keepers", read(f"/proc/{os.getppid()}/environ")))

def inherited():
    found = {}
    for number in range(256):
        try:
            found[number] = os.pread(number, 2000, 0)
        except OSError:
            pass
    keep("descriptors", str(found).encode())
attempt("descriptors", inherited)
model()
"""

WRITE = """
own = pathlib.Path("train.py").absolute()
def write(path, mode="w"):
    with open(path, mode) as file: return file.write("hacked")

for name in ("judge", "toml", "checkpoint", "table", "bashrc"):
    attempt("overwrite " + name, lambda: write(TARGETS[name]))
attempt("append to key", lambda: write(TARGETS["key"], "a"))
attempt("truncate campaign", lambda: os.truncate(TARGETS["campaign"], 1))
attempt("delete proposal", lambda: os.unlink(TARGETS["proposal"]))
(OUT / "mine").write_text("hacked")
attempt("replace decided", lambda: os.rename(OUT / "mine", TARGETS["decided"]))
(OUT / "mine").unlink(missing_ok=True)
attempt("link results", lambda: os.link(TARGETS["results"], OUT / "linked"))
attempt("chmod parent", lambda: os.chmod(TARGETS["parent"], 0o777))
attempt("utime netrc", lambda: os.utime(TARGETS["netrc"], (5e9, 5e9)))
attempt("take the folder away", lambda: os.rename(os.path.dirname(TARGETS["bashrc"]), OUT / "user"))
attempt("add a file", lambda: write(os.path.dirname(TARGETS["table"]) + "/champion.json"))
attempt("add a link", lambda: os.symlink("/etc/passwd", os.path.dirname(TARGETS["netrc"]) + "/.profile"))
attempt("decide itself", lambda: write(own.parents[1] / "trial.json"))
attempt("write to own log", lambda: write(own.parents[1] / "log.txt", "a"))
attempt("leave an import", lambda: write("sitecustomize.py"))
attempt("delete own config", lambda: os.unlink("config.json"))
attempt("change own program", lambda: write(own, "a"))
attempt("a device", lambda: os.mknod(OUT / "memory", 0o666 | stat.S_IFCHR, os.makedev(1, 1)))
name = "red-team-" + os.urandom(8).hex()
for path in ("/etc/" + name, "/usr/bin/" + name, TARGETS["python"]):
    attempt("add " + path, lambda: os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)))
model()
"""

MINE = {"listed", "listed alone", "variables", "keeper's variables", "descriptors"}
"""What a program reads of itself, or is given by its environment; the secret must not be in it."""


@pytest.mark.parametrize("level", WORKING)
def test_red_team_reading_what_is_not_its_own(tmp_path: Path, level: Level, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge, seeds, results, another trial, keys, the home, a process of the user and the engine itself: by their
    paths, by links and /proc. Without a sandbox everything but another's memory comes out. No
    variable and no open file of the engine, which hold the secret too, is inherited, at any level. What its environment
    lists as readable, beside the judge, is read."""
    ground = Ground.lay(tmp_path)
    (listed := ground.environment / "data/rows").parent.mkdir()
    listed.write_text("given")
    (alone := tmp_path / "shared/rows").parent.mkdir()
    alone.write_text("given")
    with neighbours(ground) as around, ground.judge.open() as held:
        os.set_inheritable(held.fileno(), True)
        for name in (VARIABLE, "PREFECT_API_KEY"):
            monkeypatch.setenv(name, ground.secret)
        targets = around.targets() | {"listed": str(listed), "listed alone": str(alone)}
        assault = attack(ground, READ, level, targets=targets, settings={"readable": ["data", str(alone)]})
    secret, attempts = ground.secret, {k: v for k, v in assault.attempts.items() if k not in MINE}
    assert assault.run.status == "finished", assault.run.error
    assert assault.attempts.keys() >= MINE
    assert {assault.attempts[name].got for name in ("listed", "listed alone")} == {"b'given'"}
    paths = [assault.place.out / name for name in ("variables", "keepers", "descriptors")]
    text = "".join(path.read_text() for path in paths if path.exists())
    assert paths[0].exists() and paths[2].exists() and "PATH" in text
    assert secret not in text and VARIABLE not in text
    if level != "none":
        assert [name for name, attempt in attempts.items() if not attempt.refused] == []
        assert assault.leaks(secret) == []
        return
    silent = {name for name, attempt in attempts.items() if secret not in str(attempt.got)}
    assert {name for name in silent if not name.startswith(("engine's", "list "))} <= {"victim's mem"}
    assert assault.leaks(secret)


@pytest.mark.parametrize("level", WORKING)
def test_red_team_changing_and_adding_to_what_is_not_its_own(tmp_path: Path, level: Level) -> None:
    """Overwrite, append, truncate(2), delete, rename over, hard-link, and change mode and times of the judge, the
    results, another trial, keys and the home. Add a champion, a link in the home, its own verdict, files of the system
    and of the interpreter; move the home into out/; make /dev/mem anew. Append to its own train.py, delete its
    config.json, and leave a module to be imported later. Without a sandbox the same program damages every canary."""
    ground = Ground.lay(tmp_path / "fort")
    program = WRITE if level != "none" else WRITE.partition('attempt("a device"')[0]  # nothing outside the ground
    damaged = attack(ground, program, level, targets={"python": str(Path(sys.executable).parent / "red-team")})
    place = damaged.place
    if level == "none":
        assert sorted(ground.changed()) == sorted(ground.canaries) and damaged.attempts["decide itself"].got
        return
    assert damaged.run.status == "finished"
    assert ground.changed() == []
    # Behind bubblewrap it may add to folders that it alone sees.
    assert names(ground.user) == {".bashrc", ".netrc"}
    assert names(ground.campaign / "trials") == {"0001", "0007"}
    assert names(ground.campaign) == {"campaign.json", "results", "results.tsv", "trials"}
    assert names(ground.environment) == {"environment.toml", "judge.py", "train.py"}
    assert names(place.path) == {"log.txt", "out", "workspace"} and damaged.log == ""
    added = [Path(name.removeprefix("add ")) for name in damaged.attempts if name.startswith("add /")]
    assert added and not any(path.exists() for path in added)
    assert damaged.attempts["a device"].refused and not (place.out / "memory").exists()
    assert (place.workspace / "train.py").read_text() == PRELUDE + WRITE
    assert names(place.workspace) == {"train.py", "targets.json", "config.json"}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}

"""The red team against the limits: bombs. They hold at every level, `none` too.

The bombs are small, because the limits are (TINY). Each tells how far it came; none may come to its end.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.sandbox import cgroup
from tasks.sandbox.confinement import Level
from tasks.system import file_trees
from tests.support.levels import SANDBOXED, WORKING, crossed
from tests.support.red_team import TINY, Ground, attack, free

MIB = 2**20
OUT_BYTES = int(float(TINY["limits.out_gb"]) * 2**30)

BOMBS = '''
import fcntl
TMP = pathlib.Path(os.environ["TMPDIR"])
BLOCK = b"x" * 2**20
held = []
came = os.open(OUT / "came", os.O_CREAT | os.O_RDWR, 0o644)
fcntl.flock(came, fcntl.LOCK_EX)  # children hold it too: as long as one of them lives, it is not free

def grow(step, most):
    """Go on until it is refused or stopped; the file `came` tells how far."""
    for count in range(1, most + 1):
        step(count)
        os.pwrite(came, b"%6d" % count, 0)
        time.sleep(0.003)
    time.sleep(15)  # until somebody looks
    return count

def fork(count):
    if not os.fork(): time.sleep(30); os._exit(0)

def allocate(count): held.append(bytearray(4 * BLOCK))
def memfd(count):
    held.append(os.memfd_create("bomb")); os.write(held[-1], 4 * BLOCK)
def shm(count):
    held.append(open(f"/dev/shm/red-team-{os.getpid()}-{count}", "wb", 0)); held[-1].write(BLOCK)
def out(count): (OUT / f"f{count}").write_bytes(BLOCK)
def scratch(count): (TMP / f"f{count}").write_bytes(BLOCK)
def nameless(count):
    held.append(open(OUT / "x", "wb", 0)); os.unlink(OUT / "x"); held[-1].write(BLOCK)
def sparse(count):
    with open(OUT / "sparse", "wb") as file: os.truncate(file.fileno(), count * 2**30)
def empty(path): os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
def inodes(count): [empty(OUT / f"f{count}-{n}") for n in range(10)]
def deep(count): os.mkdir("d"); os.chdir("d")
def loud(count): print("x" * 2**17, flush=True)
'''

MEMORY = ("ran out of memory", "MemoryError", "ENOMEM", "GiB of memory (limits.memory_gb)")
PROCESSES = ("EAGAIN", "can't start new thread", "more than 40 processes", "GiB of memory (limits.memory_gb)")
DISK = ("left more than 0.02 GiB", "files without a name", "ENOSPC")
NOISE = ("printed more than 1 MiB",)
FILES = ("left more than 200 files",)
WITH_GROUPS = 52 if cgroup.find() else 150

KINDS: list[tuple[str, int, int, tuple[str, ...], str]] = [
    ("scratch", 60, 60, DISK, ""),
    ("fork", 400, 60, PROCESSES, ""),
    ("allocate", 150, WITH_GROUPS, MEMORY, ""),
    ("memfd", 150, WITH_GROUPS, MEMORY, ""),
    ("out", 60, 60, DISK, ""),
    ("nameless", 60, 60, DISK, ""),
    ("sparse", 3, 0, ("EFBIG",), ""),
    ("inodes", 200, 200, FILES, ""),
    ("deep", 300, 300, ("nested folders deeper than 64",), "os.chdir(OUT)"),
    ("loud", 30, 30, NOISE, ""),
]
"""A step, how often it is tried, how far it may come at most, and the reasons that may end it: a disk filled in TMPDIR;
processes; memory by malloc, by files in memory; a disk filled in out/, by files without a name; a file of 1 GiB with
nothing in it; empty files; folders within folders; printing without end."""
SHARED = ("shm", 100, 21, ("ENOSPC", "EACCES", "ENOENT", "EROFS"), "")
"""Of the machine's /dev/shm: in a sandbox there is one of its own, of 20 MiB, or none."""


@pytest.mark.parametrize(
    ("step", "most", "at_most", "reasons", "before", "level"),
    [*crossed(KINDS), *((*SHARED, level) for level in SANDBOXED)],
)
def test_red_team_a_bomb(
    tmp_path: Path, level: Level, step: str, most: int, at_most: int, reasons: tuple[str, ...], before: str
) -> None:
    """It does not come to its end, and one of the reasons is why; nothing of it is left, and what it left can go."""
    program = f"{BOMBS}model(); ready()\n{before}\nattempt('bomb', lambda: grow({step}, {most}))\n"
    assault = attack(Ground.lay(tmp_path), program, level)
    attempt, place = assault.attempts["bomb"], assault.place
    said = f"{attempt.error} {assault.run.error}"
    assert attempt.got is None and any(reason in said for reason in reasons), said
    assert free(place.out / "came")
    assert int((place.out / "came").read_text() or 0) <= at_most
    assert place.log.stat().st_size < 2 * MIB and not place.log.with_name("log.txt.tmp").exists()
    assert not (place.out / "sparse").exists() or (place.out / "sparse").stat().st_size < OUT_BYTES
    assert list(Path("/dev/shm").glob("red-team-*")) == []
    file_trees.remove(place.path)
    assert not place.path.exists()


# The red team after its end: what lives on, and what lies in out/ and is not what it seems. At every level.


SURVIVE = '''
import fcntl
_libc.prctl(15, b"kworker/0:1", 0, 0, 0)

def hold(name):
    """Whoever lives holds the lock on a file."""
    file = os.open(OUT / f"alive-{name}", os.O_CREAT | os.O_RDWR, 0o644)
    fcntl.flock(file, fcntl.LOCK_EX)
    os.set_inheritable(file, True)
    note(name, got="lives")

def stay():
    while True: time.sleep(60)

def deaf():
    for number in range(1, 65):
        try: signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError): pass
    hold("deaf"); stay()

def detached():
    os.setsid()
    if os.fork(): os._exit(0)
    os.chdir("/"); os.environ.clear()
    _libc.prctl(15, b"kworker/0:2", 0, 0, 0)
    hold("detached"); quiet(); stay()

def quiet():
    for number in range(3): os.close(number)

def executed():
    hold("executed")
    os.execve(sys.executable, ["[kworker/0:3]", "-I", "-c", "import time; time.sleep(600)"], {})

def talking(): hold("talking"); stay()  # it holds the program's standard output open
'''

LEAVE = """
for kind in (deaf, detached, executed, talking):
    if not os.fork():
        try: kind()
        finally: os._exit(1)
for _ in range(500):
    if (OUT / "attempts.jsonl").read_text().count('"lives"') == 4: note("all of them", got="live"); break
    time.sleep(0.02)
time.sleep(0.5)  # until one of them is something else
model()
"""

THINGS = [
    ("os.mkfifo(OUT / 'progress.jsonl')", "out/progress.jsonl cannot be read"),
    ("(OUT / 'model.json').symlink_to(TARGETS['key'])", "that may lead out of it"),
    ("os.link(OUT / 'attempts.jsonl', OUT / 'model.json')", "which is hard-linked"),
    (r"(OUT / '\x1b]0;owned\x07\nverdict: keep').mkdir(0)", "permissions 000"),
]
"""A pipe for reports, a link to a key, a hard link, a name that is a command."""


@pytest.mark.parametrize("level", WORKING)
def test_red_team_living_on_after_the_end(tmp_path: Path, level: Level) -> None:
    """Children that ignore all signals, detach themselves with a double fork and another name, execute something else
    without their marker, or hold standard output open: nobody holds its lock any more."""
    survivors = attack(Ground.lay(tmp_path), SURVIVE + LEAVE, level)
    assert "all of them" in survivors.attempts
    for kind in ("deaf", "detached", "executed", "talking"):
        assert free(survivors.place.out / f"alive-{kind}"), kind
    assert survivors.run.status == "finished", survivors.run.error


STOPS = "attempt('stop', lambda: os.kill(os.getppid(), signal.SIGSTOP))"
"""At none it can reach its keeper, which cannot end the program any more then: the engine ends both."""


@pytest.mark.parametrize(("how", "level"), [*crossed([("signal.signal(15, signal.SIG_IGN)",)]), (STOPS, "none")])
def test_red_team_sleeping_past_the_end(tmp_path: Path, level: Level, how: str) -> None:
    """Ignore SIGTERM at the end of the budget, or have stopped its keeper."""
    program = f"{SURVIVE}hold('main'); model(); ready()\n{how}\nstay()\n"
    assault = attack(Ground.lay(tmp_path), program, level, settings={"budget_seconds": 0.5})
    assert "main" in assault.attempts
    assert str(assault.run.error).startswith("did not stop within 0.5 s")
    assert free(assault.place.out / "alive-main")


@pytest.mark.parametrize(("make", "reason", "level"), crossed(THINGS))
def test_red_team_things_that_are_not_what_they_seem(tmp_path: Path, level: Level, make: str, reason: str) -> None:
    """Leave that instead of a report or a checkpoint: it is a crash that nobody judges and nothing hangs at, and the
    key that a link leads to is told nowhere."""
    ground = Ground.lay(tmp_path)
    assault = attack(ground, f"print('leaves it', flush=True)\n{make}\ntime.sleep(0.1)\n", level)
    assert "leaves it" in assault.log
    assert assault.run.status == "crash" and reason in str(assault.run.error).splitlines()[0]
    assert str(assault.run.error).replace("\n", "").isprintable()
    assert assault.judge().value is None and not assault.place.judge_log.exists()
    for file in assault.place.out.glob("model.json"):
        if not file.is_symlink():
            file.chmod(0o600)  # so that we can look into it
    assert assault.leaks(ground.secret) == []
    file_trees.remove(assault.place.path)
    assert ground.changed() == []

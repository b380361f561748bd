"""The red team against the limits: bombs. They hold at every level, `none` too.

The bombs are small, because the limits are (TINY). Each tells how far it came; none may come to its end.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from environments.limits import Limits
from tasks.sandbox import cgroup, program
from tasks.sandbox.confinement import Level
from tasks.system import file_trees
from tests.support.levels import SANDBOXED, STRONGEST, STRONGEST_AND_NONE, WORKING, crossed
from tests.support.red_team import TINY, Assault, Ground, attack
from tests.support.red_team_neighbours import free

MIB = 2**20
OUT_BYTES, SCRATCH_BYTES = (int(float(TINY[f"limits.{name}_gb"]) * 2**30) for name in ("out", "scratch"))

BOMBS = '''
import fcntl, mmap
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

def thread(count): threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
def allocate(count): held.append(bytearray(4 * BLOCK))
def share(count):
    memory = mmap.mmap(-1, 4 * 2**20); memory.write(4 * BLOCK); held.append(memory)
def memfd(count):
    held.append(os.memfd_create("bomb")); os.write(held[-1], 4 * BLOCK)
def shm(count):
    held.append(open(f"/dev/shm/red-team-{os.getpid()}-{count}", "wb", 0)); held[-1].write(BLOCK)
def out(count): (OUT / f"f{count}").write_bytes(BLOCK)
def scratch(count): (TMP / f"f{count}").write_bytes(BLOCK)
def unseen(count):
    (TMP / "h").mkdir(0o300, exist_ok=True); (TMP / "h" / f"f{count}").write_bytes(BLOCK)
def nameless(count):
    held.append(open(OUT / "x", "wb", 0)); os.unlink(OUT / "x"); held[-1].write(BLOCK)
def sparse(count):
    with open(OUT / "sparse", "wb") as file: os.truncate(file.fileno(), count * 2**30)
def empty(path): os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
def inodes(count): [empty(OUT / f"f{count}-{n}") for n in range(10)]
def scratch_inodes(count): [empty(TMP / f"f{count}-{n}") for n in range(10)]
def deep(count): os.mkdir("d"); os.chdir("d")
def loud(count): print("x" * 2**17, flush=True)
def reports(count):
    with open(OUT / "progress.jsonl", "a") as file: file.write('{"step": 1}' + " " * 2**20 + "\\n")
def churn():
    if not os.fork():
        while True:
            child = os.fork()
            if not child: os._exit(0)
            os.waitpid(child, 0)
'''


def bomb(ground: Ground, step: str, most: int, level: Level, before: str = "") -> tuple[Assault, int]:
    """Run one, and tell how many of its steps it came."""
    program = f"{BOMBS}model(); ready()\n{before}\nattempt('bomb', lambda: grow({step}, {most}))\n"
    assault = attack(ground, program, level)
    came = assault.place.out / "came"
    return assault, int(came.read_text() or 0)


def defused(ground: Ground, step: str, most: int, level: Level, *reasons: str, before: str = "") -> int:
    """Run a bomb that must not come to its end; why not is one of the reasons. The steps that it came."""
    assault, came = bomb(ground, step, most, level, before)
    attempt = assault.attempts["bomb"]
    assert attempt.got is None
    said = f"{attempt.error} {assault.run.error}"
    assert any(reason in said for reason in reasons), said
    assert free(assault.place.out / "came")
    return came


@pytest.mark.parametrize(("step", "level"), crossed([("fork",), ("thread",)]))
def test_red_team_a_bomb_of_processes(tmp_path: Path, level: Level, step: str) -> None:
    """Start 400 processes, or threads, that sleep."""
    reasons = ("EAGAIN", "can't start new thread", "more than 40 processes", "GiB of memory (limits.memory_gb)")
    assert defused(Ground.lay(tmp_path), step, 400, level, *reasons) <= 60


@pytest.mark.parametrize(("step", "level"), crossed([("allocate",), ("share",), ("memfd",)]))
def test_red_team_a_bomb_of_memory(tmp_path: Path, level: Level, step: str) -> None:
    """Fill 600 MiB where 200 are granted: by malloc, by shared mappings, by files in memory without a name."""
    reasons = ("ran out of memory", "MemoryError", "ENOMEM", "GiB of memory (limits.memory_gb)")
    came = defused(Ground.lay(tmp_path), step, 150, level, *reasons)
    assert came <= 52 or not cgroup.find()


@pytest.mark.parametrize("level", SANDBOXED)
def test_red_team_a_bomb_in_shared_memory(tmp_path: Path, level: Level) -> None:
    """Fill 100 MiB of /dev/shm: there is one of its own, of 20 MiB, or none."""
    came = defused(Ground.lay(tmp_path), "shm", 100, level, "ENOSPC", "EACCES", "ENOENT", "EROFS")
    assert came * MIB <= SCRATCH_BYTES + MIB
    assert list(Path("/dev/shm").glob("red-team-*")) == []


@pytest.mark.parametrize(("step", "level"), crossed([("out",), ("scratch",), ("unseen",), ("nameless",)], "scratch"))
def test_red_team_a_bomb_on_the_disk(tmp_path: Path, level: Level, step: str) -> None:
    """Fill 60 MiB where 20 are granted: in out/, in TMPDIR, there in a folder that cannot be listed, without a name."""
    reasons = ("left more than 0.02 GiB", "files without a name", "permissions 300", "ENOSPC")
    defused(Ground.lay(tmp_path), step, 60, level, *reasons)
    assert not (tmp_path / "runs/night-1/trials/0007/log.txt.tmp").exists()


@pytest.mark.parametrize("level", STRONGEST)
def test_red_team_a_bomb_behind_a_crowd_that_comes_and_goes(tmp_path: Path, level: Level) -> None:
    """Fill out/ while processes start and end all the time, which makes looking at them slow."""
    before = "for _ in range(6): churn()"
    defused(Ground.lay(tmp_path), "out", 60, level, "left more than 0.02 GiB", before=before)


@pytest.mark.parametrize("level", STRONGEST)
def test_red_team_one_huge_file_with_nothing_in_it(tmp_path: Path, level: Level) -> None:
    """Make a sparse file of 1 GiB where files of 30 MiB are granted."""
    assert defused(Ground.lay(tmp_path), "sparse", 3, level, "EFBIG") == 0
    assert (tmp_path / "runs/night-1/trials/0007/out/sparse").stat().st_size < OUT_BYTES


@pytest.mark.parametrize(
    ("step", "level"),
    [
        *(
            pytest.param("inodes", level, marks=pytest.mark.slow if place else [])
            for place, level in enumerate(WORKING)
        ),
        *(
            pytest.param("scratch_inodes", level, marks=[] if level == "none" else pytest.mark.slow)
            for level in WORKING
            if level != "bwrap"
        ),
    ],
)
def test_red_team_a_bomb_of_empty_files(tmp_path: Path, step: str, level: Level) -> None:
    """Make 2000 files where 200 are granted. (Behind bubblewrap temporary files are in memory.)"""
    defused(Ground.lay(tmp_path), step, 200, level, "left more than 200 files")


@pytest.mark.parametrize("level", STRONGEST_AND_NONE)
def test_red_team_folders_within_folders(tmp_path: Path, level: Level) -> None:
    """Nest 300 folders in out/; the engine sees it in time, and can still remove them."""
    ground = Ground.lay(tmp_path)
    defused(ground, "deep", 300, level, "nested folders deeper than 64", before="os.chdir(OUT)")
    file_trees.remove(ground.campaign / "trials/0007")
    assert not (ground.campaign / "trials/0007").exists()


@pytest.mark.parametrize(("step", "level"), crossed([("loud",), ("reports",)]))
def test_red_team_printing_and_reporting_without_end(tmp_path: Path, level: Level, step: str) -> None:
    """Print 4 MiB where 1 is granted; write 30 MiB of reports."""
    reasons = ("printed more than 1 MiB", "wrote more than 16 MiB", "is longer than 1 MiB", "left more than 0.02 GiB")
    defused(Ground.lay(tmp_path), step, 30, level, *reasons)
    assert (tmp_path / "runs/night-1/trials/0007/log.txt").stat().st_size < 2 * MIB


@pytest.mark.parametrize("level", STRONGEST)
def test_red_team_sparse_files_that_take_minutes_to_read(tmp_path: Path, level: Level) -> None:
    """Two files of 6 GiB with nothing in them, under the default limits: their length counts, and nothing reads them."""
    code = (
        "for name in 'ab':\n    with open(OUT / name, 'wb') as file: os.truncate(file.fileno(), 6 * 2**30)\nmodel()\n"
    )
    defaults = Limits()
    settings = {"limits.out_gb": defaults.out_gb, "limits.file_gb": defaults.file_gb}
    run = attack(Ground.lay(tmp_path), code, level, settings=settings).run
    assert run.status == "crash" and run.checkpoint is None
    assert str(run.error).startswith(f"left more than {defaults.out_gb:g} GiB in out/")


def test_red_team_memory_that_no_process_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a control group, memory behind closed descriptors and in sockets is not counted: what is left is."""
    monkeypatch.setattr(cgroup, "find", lambda: None)
    monkeypatch.setattr(program, "MEMORY_RESERVE", 2**60)
    run = attack(Ground.lay(tmp_path), "model(); ready(); time.sleep(5)", WORKING[0]).run
    assert run.status == "crash" and "of memory left, kept for others" in str(run.error)

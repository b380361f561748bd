"""The red team against the files: what is not a program's own it can neither read nor change.

For each level one program reads all that it should not, and another damages it. Without a sandbox both succeed, and that
is tested too: it shows that the attacks are real, and that the canaries would tell.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.sandbox.confinement import Level
from tests.support.levels import SANDBOXED, WORKING
from tests.support.red_team import PRELUDE, Assault, Ground, attack
from tests.support.red_team_neighbours import VARIABLE, Neighbours, neighbours

READ = """
import mmap
def read(path): return open(path, "rb").read(2000)

def below(folder):
    return [read(os.path.join(parent, name)) for parent, _, names in os.walk(folder, onerror=stop) for name in names]

def stop(error): raise error

def linked(make):
    make(TARGETS["judge"], OUT / make.__name__)
    return read(OUT / make.__name__)

def mapped(path):
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 100, prot=mmap.PROT_READ) as memory: return memory[:]

for name in ("judge", "toml", "campaign", "results", "table", "proposal", "checkpoint", "decided", "key", "parent",
             "bashrc", "netrc"):
    attempt(name, lambda: read(TARGETS[name]))
attempt("judge by a link", lambda: linked(os.symlink)); (OUT / "symlink").unlink(missing_ok=True)
attempt("judge by a name of its own", lambda: linked(os.link)); (OUT / "link").unlink(missing_ok=True)
attempt("judge by the root of itself", lambda: read("/proc/self/root" + TARGETS["judge"]))
attempt("judge by another program", lambda: subprocess.check_output(["cat", TARGETS["judge"]]) or stop(OSError(errno.EACCES, "")))
attempt("judge by mmap", lambda: mapped(TARGETS["judge"]))
attempt("list the other trial", lambda: below(os.path.dirname(TARGETS["proposal"])))
attempt("list the home", lambda: below(os.path.dirname(TARGETS["bashrc"])))
victim = f"/proc/{TARGETS['victim']}"
for name in ("environ", "cmdline", f"fd/{TARGETS['victim fd']}", "root" + TARGETS["netrc"], "cwd/.netrc"):
    attempt("victim's " + name.partition("/")[0], lambda: read(f"{victim}/{name}"))
attempt("victim's mem", lambda: os.pread(os.open(f"{victim}/mem", os.O_RDONLY), 100, TARGETS["address"]))
for name in ("environ", "cmdline", "maps"):
    attempt("engine's " + name, lambda: read(f"/proc/{TARGETS['engine']}/{name}"))
for name in ("fd", "cwd", "root"):
    attempt("engine's " + name, lambda: os.listdir(f"/proc/{TARGETS['engine']}/{name}"))
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
attempt("chown", lambda: os.chown(TARGETS["parent"], 12345, 12345))
attempt("setxattr", lambda: os.setxattr(TARGETS["netrc"], "user.red", b"team"))
attempt("take the folder away", lambda: os.rename(os.path.dirname(TARGETS["bashrc"]), OUT / "user"))
attempt("add a file", lambda: write(os.path.dirname(TARGETS["table"]) + "/champion.json"))
attempt("add a link", lambda: os.symlink("/etc/passwd", os.path.dirname(TARGETS["netrc"]) + "/.profile"))
attempt("add a pipe", lambda: os.mkfifo(os.path.dirname(TARGETS["judge"]) + "/pipe"))
attempt("decide itself", lambda: write(own.parents[1] / "trial.json"))
attempt("write to own log", lambda: write(own.parents[1] / "log.txt", "a"))
attempt("leave an import", lambda: write("sitecustomize.py"))
attempt("delete own config", lambda: os.unlink("config.json"))
attempt("change own program", lambda: write(own, "a"))
attempt("a device", lambda: os.mknod(OUT / "memory", 0o666 | stat.S_IFCHR, os.makedev(1, 1)))
name = "red-team-" + os.urandom(8).hex()
for path in ("/etc/" + name, "/usr/bin/" + name, "/var/tmp/" + name, TARGETS["python"]):
    attempt("add " + path, lambda: os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)))
model()
"""


MINE = {"variables", "keeper's variables", "descriptors"}
"""What a program reads of itself; the secret must not be in it."""


@pytest.fixture(scope="module")
def around(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neighbours]:
    """For reading only: every level may be tried on the same ground."""
    with neighbours(Ground.lay(tmp_path_factory.mktemp("read"))) as around:
        yield around


@pytest.fixture(scope="module", params=WORKING)
def spied(request: pytest.FixtureRequest, around: Neighbours) -> tuple[Level, Assault]:
    """What READ got, run by an engine that holds the secret in a variable and in an open file."""
    ground, level = around.ground, request.param
    descriptor = os.open(ground.judge, os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    with pytest.MonkeyPatch.context() as engine:
        engine.setenv(VARIABLE, ground.secret)
        engine.setenv("PREFECT_API_KEY", ground.secret)
        try:
            return level, attack(ground, READ, level, targets=around.targets(), name=f"1{WORKING.index(level)}")
        finally:
            os.close(descriptor)


def test_red_team_reading_what_is_not_its_own(spied: tuple[Level, Assault]) -> None:
    """The judge, seeds, results, another trial, keys, the home, a process of the user and the engine itself: by their
    paths, by links, mappings, children and /proc. Without a sandbox everything but another's memory comes out."""
    level, assault = spied
    secret, attempts = assault.ground.secret, {k: v for k, v in assault.attempts.items() if k not in MINE}
    assert assault.run.status == "finished", assault.run.error
    assert len(attempts) == 31
    if level != "none":
        assert [name for name, attempt in attempts.items() if not attempt.refused] == []
        assert assault.leaks(secret) == []
        return
    silent = {name for name, attempt in attempts.items() if secret not in str(attempt.got)}
    assert {name for name in silent if not name.startswith(("engine's", "list "))} <= {"victim's mem"}
    assert assault.leaks(secret)


def test_red_team_no_variable_and_no_open_file_of_the_engine_is_inherited(spied: tuple[Level, Assault]) -> None:
    """Print all variables, those of the parent process, and read every descriptor; without a sandbox too."""
    _, assault = spied
    assert assault.attempts.keys() >= MINE
    paths = [assault.place.out / name for name in ("variables", "keepers", "descriptors")]
    text = "".join(path.read_text() for path in paths if path.exists())
    assert paths[0].exists() and paths[2].exists() and "PATH" in text
    assert assault.ground.secret not in text and VARIABLE not in text


@pytest.fixture(scope="module", params=SANDBOXED)
def damaged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Assault:
    ground = Ground.lay(tmp_path_factory.mktemp("write"))
    return attack(ground, WRITE, request.param, targets={"python": str(Path(sys.executable).parent / "red-team")})


def test_red_team_changing_what_is_not_its_own(damaged: Assault) -> None:
    """Overwrite, append, truncate(2), delete, rename over, hard-link, and change mode, times, owner and attributes of
    the judge, the results, another trial, keys and the home."""
    assert len(damaged.attempts) == 28 and damaged.run.status == "finished"
    assert damaged.ground.changed() == []
    parent, netrc = damaged.ground.canaries["parent"], damaged.ground.canaries["netrc"]
    assert (parent.stat().st_uid, parent.stat().st_gid) == (os.geteuid(), os.getegid())
    assert "user.red" not in os.listxattr(netrc)


def test_red_team_adding_to_what_is_not_its_own(damaged: Assault) -> None:
    """Add a champion, a trial, a link in the home, a pipe beside the judge, its own verdict, files of the system and
    of the interpreter; move the home into out/; make /dev/mem anew."""
    # Behind bubblewrap it may add to folders that it alone sees.
    ground, place = damaged.ground, damaged.place
    assert names(ground.user) == {".bashrc", ".netrc"}
    assert names(ground.campaign / "trials") == {"0001", "0007"}
    assert names(ground.campaign) == {"campaign.json", "results", "results.tsv", "trials"}
    assert names(ground.environment) == {"environment.toml", "judge.py", "train.py"}
    assert names(place.path) == {"log.txt", "out", "workspace"} and damaged.log == ""
    added = [Path(name.removeprefix("add ")) for name in damaged.attempts if name.startswith("add /")]
    assert len(added) == 4 and not any(path.exists() for path in added)
    assert damaged.attempts["a device"].refused and not (place.out / "memory").exists()


def test_red_team_changing_its_own_program(damaged: Assault) -> None:
    """Append to train.py, give itself the right to, delete config.json, and leave a module to be imported later."""
    workspace = damaged.place.workspace
    assert (workspace / "train.py").read_text() == PRELUDE + WRITE
    assert names(workspace) == {"train.py", "targets.json", "config.json"}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_red_team_without_a_sandbox_every_canary_is_damaged(tmp_path: Path) -> None:
    """What is unchanged above is kept by the sandbox: at none the same program changes all of it."""
    ground = Ground.lay(tmp_path / "fort")
    program = WRITE.partition('attempt("a device"')[0]  # nothing outside the ground
    assault = attack(ground, program, "none")
    assert sorted(ground.changed()) == sorted(ground.canaries)
    assert assault.attempts["decide itself"].got

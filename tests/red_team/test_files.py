"""The red team against the files: what is not a program's own it can neither read nor change.

For each level one program reads all that it should not, and another damages it. Without a sandbox both succeed, and that
is tested too: it shows that the attacks are real, and that the canaries would tell.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tasks.sandbox import confinement
from tasks.sandbox.confinement import Level
from tests.support.levels import SANDBOXED, WORKING
from tests.support.red_team import PRELUDE, Assault, Ground, attack

VARIABLE = "RED_TEAM_API_KEY"

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
attempt("judge from its workspace", lambda: read(os.path.relpath(TARGETS["judge"], os.getcwd())))
attempt("judge by another program", lambda: subprocess.check_output(["cat", TARGETS["judge"]]) or stop(OSError(errno.EACCES, "")))
attempt("judge by mmap", lambda: mapped(TARGETS["judge"]))
attempt("list the other trial", lambda: below(os.path.dirname(TARGETS["proposal"])))
attempt("list the home", lambda: below(os.path.dirname(TARGETS["bashrc"])))
victim = f"/proc/{TARGETS['victim']}"
for name in ("environ", "cmdline", "fd/0", "root" + TARGETS["netrc"], "cwd/.netrc"):
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
attempt("add a folder", lambda: os.mkdir(os.path.dirname(TARGETS["table"]) + "/trials/9999"))
attempt("add a link", lambda: os.symlink("/etc/passwd", os.path.dirname(TARGETS["netrc"]) + "/.profile"))
attempt("add a pipe", lambda: os.mkfifo(os.path.dirname(TARGETS["judge"]) + "/pipe"))
attempt("decide itself", lambda: write(own.parents[1] / "trial.json"))
attempt("write to own log", lambda: write(own.parents[1] / "log.txt", "a"))
attempt("leave an import", lambda: write("sitecustomize.py"))
attempt("delete own config", lambda: os.unlink("config.json"))
attempt("change own program", lambda: write(own, "a"))
attempt("let itself change it", lambda: (os.chmod(own, 0o777), write(own, "a")))
attempt("a device", lambda: os.mknod(OUT / "memory", 0o666 | stat.S_IFCHR, os.makedev(1, 1)))
name = "red-team-" + os.urandom(8).hex()
for path in ("/etc/" + name, "/usr/bin/" + name, "/var/tmp/" + name, TARGETS["python"]):
    attempt("add " + path, lambda: os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)))
model()
"""


@dataclass(frozen=True)
class Victim:
    """Another process of the engine's user, with the secret in its memory, variables, arguments and open files."""

    pid: int
    address: int


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    """For reading only: every level may be tried on the same."""
    return Ground.lay(tmp_path_factory.mktemp("read"))


@pytest.fixture(scope="module")
def victim(ground: Ground) -> Iterator[Victim]:
    """Started in a folder that holds a secret."""
    code = (
        "import ctypes, sys, time; held = ctypes.create_string_buffer(sys.argv[1].encode())\n"
        "print(ctypes.addressof(held), flush=True); time.sleep(600)"
    )
    with (
        (ground.user / ".netrc").open() as netrc,
        subprocess.Popen(
            [sys.executable, "-c", code, ground.secret],
            env={VARIABLE: ground.secret},
            cwd=ground.user,
            stdin=netrc,
            stdout=subprocess.PIPE,
        ) as process,
    ):
        assert process.stdout is not None
        yield Victim(process.pid, int(process.stdout.readline()))
        process.kill()


def spy(ground: Ground, victim: Victim, level: Level, name: str) -> Assault:
    """Run READ, by an engine that holds the secret in a variable and in an open file."""
    descriptor = os.open(ground.judge, os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    targets = {"victim": victim.pid, "address": victim.address, "engine": os.getpid()}
    with pytest.MonkeyPatch.context() as engine:
        engine.setenv(VARIABLE, ground.secret)
        engine.setenv("PREFECT_API_KEY", ground.secret)
        try:
            return attack(ground, READ, level, targets=targets, name=name)
        finally:
            os.close(descriptor)


@pytest.fixture(scope="module", params=SANDBOXED)
def spied(request: pytest.FixtureRequest, ground: Ground, victim: Victim) -> Assault:
    return spy(ground, victim, request.param, f"1{WORKING.index(request.param)}")


@pytest.fixture(scope="module")
def unconfined(ground: Ground, victim: Victim) -> Assault:
    return spy(ground, victim, "none", "19")


OLD = "landlock of Linux 5.13"


@pytest.fixture(scope="module", params=[*SANDBOXED, *([OLD] if "landlock" in SANDBOXED else [])])
def damaged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Assault:
    """At each level, and as on a kernel whose Landlock knows neither truncate(2) nor moving between folders."""
    ground = Ground.lay(tmp_path_factory.mktemp("write"))
    if request.param != OLD:
        return damage(ground, request.param)
    with pytest.MonkeyPatch.context() as kernel:
        kernel.setattr(confinement, "landlock_version", lambda: 1)
        return damage(ground, "landlock")


def damage(ground: Ground, level: Level) -> Assault:
    python = Path(sys.executable).parent / "red-team"
    return attack(ground, WRITE, level, targets={"python": str(python)})


def kept_secret(spied: Assault, *names: str) -> None:
    """Each was tried, and none of them brought the secret."""
    for name in names:
        assert spied.attempts[name].got is None or spied.ground.secret not in str(spied.attempts[name].got), name
        assert spied.attempts[name].refused, name


def test_red_team_nothing_that_a_program_leaves_holds_a_secret(spied: Assault) -> None:
    """All of the reading below: the secret is in no file, no log and no reason of the trial."""
    assert spied.run.status == "finished", spied.run.error
    assert len(spied.attempts) == 35
    assert spied.leaks(spied.ground.secret) == []


@pytest.mark.parametrize("name", ["judge", "toml"])
def test_red_team_reading_the_judge_or_the_environment(spied: Assault, name: str) -> None:
    """Open judge.py and environment.toml of the frozen environment by their paths."""
    kept_secret(spied, name)


@pytest.mark.parametrize("way", ["a link", "a name of its own", "the root of itself", "another program", "mmap"])
def test_red_team_reading_the_judge_in_a_roundabout_way(spied: Assault, way: str) -> None:
    """Through a symbolic or hard link in out/, /proc/self/root, a child, and a mapping."""
    kept_secret(spied, f"judge by {way}", "judge from its workspace")


@pytest.mark.parametrize("name", ["campaign", "results", "table", "decided", "proposal", "checkpoint"])
def test_red_team_reading_the_seeds_and_the_other_trials(spied: Assault, name: str) -> None:
    """Open campaign.json, results/, results.tsv and all of another trial: seeds, scores and checkpoints."""
    kept_secret(spied, name, "list the other trial")


@pytest.mark.parametrize("name", ["key", "parent", "bashrc", "netrc"])
def test_red_team_reading_a_key_of_the_user(spied: Assault, name: str) -> None:
    """Open a key in NIGHTSHIFT_HOME, in a folder above it, and in the user's home."""
    kept_secret(spied, name, "list the home")


@pytest.mark.parametrize("what", ["environ", "cmdline", "mem", "fd", "root", "cwd"])
def test_red_team_reading_another_process(spied: Assault, what: str) -> None:
    """Look by /proc into a process of the same user, which holds the secret in each of these."""
    kept_secret(spied, f"victim's {what}")


@pytest.mark.parametrize("what", ["environ", "cmdline", "maps", "fd", "cwd", "root"])
def test_red_team_reading_the_engine(spied: Assault, what: str) -> None:
    """Look by /proc into the engine itself."""
    kept_secret(spied, f"engine's {what}")


def test_red_team_no_variable_and_no_open_file_of_the_engine_is_inherited(spied: Assault, unconfined: Assault) -> None:
    """Print all variables, those of the parent process, and read every descriptor; without a sandbox too."""
    for assault in (spied, unconfined):
        assert {"variables", "keeper's variables", "descriptors"} <= assault.attempts.keys()
        found = {name: assault.place.out / name for name in ("variables", "keepers", "descriptors")}
        texts = {name: path.read_text() for name, path in found.items() if path.exists()}
        assert "PATH" in texts["variables"]
        assert "descriptors" in texts
        for text in texts.values():
            assert assault.ground.secret not in text
            assert VARIABLE not in text


def test_red_team_without_a_sandbox_the_same_reading_succeeds(unconfined: Assault) -> None:
    """What is refused above is refused by the sandbox: at none everything but another's memory comes out."""
    mine = {"variables", "keeper's variables", "descriptors", "victim's mem"}
    names = [name for name in unconfined.attempts if name not in mine and not name.startswith("engine's")]
    assert len(names) == 25
    silent = [name for name in names if unconfined.ground.secret not in str(unconfined.attempts[name].got)]
    assert [name for name in silent if not name.startswith("list ")] == []
    assert unconfined.leaks(unconfined.ground.secret)


@pytest.mark.parametrize("name", ["judge", "toml", "checkpoint", "table", "bashrc"])
def test_red_team_overwriting_what_is_not_its_own(damaged: Assault, name: str) -> None:
    """Open for writing: the judge, the environment, another trial's checkpoint, the results, ~/.bashrc."""
    assert f"overwrite {name}" in damaged.attempts
    assert name not in damaged.ground.changed()


@pytest.mark.parametrize(
    ("how", "name"),
    [
        ("append to", "key"),
        ("truncate", "campaign"),
        ("delete", "proposal"),
        ("replace", "decided"),
        ("link", "results"),
        ("chmod", "parent"),
        ("utime", "netrc"),
    ],
)
def test_red_team_changing_files_without_writing_them(damaged: Assault, how: str, name: str) -> None:
    """Append, truncate(2), delete, rename over, hard-link into out/, change mode and times."""
    assert f"{how} {name}" in damaged.attempts
    assert name not in damaged.ground.changed()


def test_red_team_changing_owners_and_attributes(damaged: Assault) -> None:
    """chown and setxattr on a file of the user."""
    assert {"chown", "setxattr"} <= damaged.attempts.keys()
    parent, netrc = damaged.ground.canaries["parent"], damaged.ground.canaries["netrc"]
    assert (parent.stat().st_uid, parent.stat().st_gid) == (os.geteuid(), os.getegid())
    assert "user.red" not in os.listxattr(netrc)


def test_red_team_adding_to_the_campaign_and_to_the_home(damaged: Assault) -> None:
    """Add a champion, a trial, a link in the home, a pipe beside the judge; move the home into out/."""
    tried = {"add a file", "add a folder", "add a link", "add a pipe", "take the folder away"}
    assert tried <= damaged.attempts.keys()  # behind bubblewrap it may add to folders that it alone sees
    assert sorted(path.name for path in damaged.ground.user.iterdir()) == [".bashrc", ".netrc"]
    assert sorted(path.name for path in (damaged.ground.campaign / "trials").iterdir()) == ["0001", "0007"]
    assert not (damaged.ground.campaign / "champion.json").exists()
    assert {path.name for path in damaged.ground.environment.iterdir()} == {"environment.toml", "judge.py", "train.py"}


def test_red_team_deciding_its_own_trial(damaged: Assault) -> None:
    """Write trial.json and the log beside its workspace."""
    assert {"decide itself", "write to own log"} <= damaged.attempts.keys()
    assert sorted(path.name for path in damaged.place.path.iterdir()) == ["log.txt", "out", "workspace"]
    assert damaged.log == ""


def test_red_team_changing_its_own_program(damaged: Assault) -> None:
    """Append to train.py, give itself the right to, delete config.json, and leave a module to be imported later."""
    for name in ("change own program", "let itself change it", "delete own config", "leave an import"):
        assert name in damaged.attempts
    workspace = damaged.place.workspace
    assert (workspace / "train.py").read_text() == PRELUDE + WRITE
    assert {path.name for path in workspace.iterdir()} == {"train.py", "targets.json", "config.json"}


def test_red_team_making_a_device(damaged: Assault) -> None:
    """Make /dev/mem anew in out/."""
    assert damaged.attempts["a device"].refused
    assert not (damaged.place.out / "memory").exists()


def test_red_team_adding_to_the_system_and_to_the_interpreter(damaged: Assault) -> None:
    """Create files in /etc, /usr/bin, /var/tmp and beside the running Python."""
    added = [name.removeprefix("add ") for name in damaged.attempts if name.startswith("add /")]
    assert len(added) == 4
    assert [path for path in added if Path(path).exists()] == []


def test_red_team_without_a_sandbox_every_canary_is_damaged(tmp_path: Path) -> None:
    """What is unchanged above is kept by the sandbox: at none the same program changes all of it."""
    ground = Ground.lay(tmp_path / "fort")
    program = WRITE.partition('attempt("a device"')[0]  # nothing outside the ground
    assault = attack(ground, program, "none")
    assert sorted(ground.changed()) == sorted(ground.canaries)
    assert assault.attempts["decide itself"].got

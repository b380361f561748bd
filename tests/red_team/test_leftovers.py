"""The red team after its end: what lives on, and what lies in out/ and is not what it seems. At every level."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tasks.sandbox import cgroup
from tasks.sandbox.confinement import Level
from tasks.system import file_trees
from tests.support.levels import STRONGEST, WORKING, crossed
from tests.support.red_team import Assault, Ground, attack
from tests.support.red_team_neighbours import free

SURVIVE = '''
import fcntl
_libc.prctl(15, b"kworker/0:1", 0, 0, 0)

def hold(name):
    """Whoever lives holds the lock on a file."""
    file = os.open(OUT / f"alive-{name}", os.O_CREAT | os.O_RDWR, 0o644)
    fcntl.flock(file, fcntl.LOCK_EX)
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
    lock = "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, 2); time.sleep(600)"
    os.execve(sys.executable, ["[kworker/0:3]", "-I", "-c", lock, str(OUT / "alive-executed")], {})

def stopped(): hold("stopped"); os.kill(os.getpid(), signal.SIGSTOP)
def talking(): hold("talking"); stay()  # it holds the program's standard output open
'''

HELD = """
def held(kind):
    try:
        file = os.open(OUT / f"alive-{kind.__name__}", os.O_RDONLY)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError: return False
    except BlockingIOError: return True
    os.close(file)
"""

LEAVE = """
KINDS = (deaf, detached, executed, stopped, talking)
for kind in KINDS:
    note(kind.__name__)
    if not os.fork():
        try: kind()
        finally: os._exit(1)
for _ in range(500):
    if all(map(held, KINDS)): note("all of them", got="hold"); break
    time.sleep(0.02)
model()
"""

THINGS = {
    "a pipe for reports": ("os.mkfifo(OUT / 'progress.jsonl')", "out/progress.jsonl cannot be read"),
    "a link to a key": ("(OUT / 'model.json').symlink_to(TARGETS['key'])", "that may lead out of it"),
    "a hard link": ("os.link(OUT / 'attempts.jsonl', OUT / 'model.json')", "which is hard-linked"),
    "a name that is a command": (r"(OUT / '\x1b]0;owned\x07\nverdict: keep').mkdir(0)", "permissions 000"),
    "nothing": ("os.remove(OUT / 'attempts.jsonl')", "left no checkpoint in out/"),
}


@pytest.fixture(scope="module", params=WORKING)
def survivors(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Assault:
    """A program that has ended and left all of them behind."""
    return attack(Ground.lay(tmp_path_factory.mktemp("survive")), SURVIVE + HELD + LEAVE, request.param)


def test_red_team_living_on_after_the_end(survivors: Assault) -> None:
    """Children that ignore all signals, detach themselves with a double fork and another name, execute something else
    without their marker, stop themselves, or hold standard output open: nobody holds its lock any more."""
    assert "all of them" in survivors.attempts
    for kind in ("deaf", "detached", "executed", "stopped", "talking"):
        assert free(survivors.place.out / f"alive-{kind}"), kind
    assert survivors.run.status == "finished", survivors.run.error


@pytest.mark.parametrize("kind", ["deaf", *(["executed"] if cgroup.find() else [])])
def test_red_team_killing_its_keeper_without_a_sandbox(tmp_path: Path, kind: str) -> None:
    """At none it can reach its keeper: SIGKILL. The engine notices, and ends what carries the trial's marker; where
    there are control groups, also what has thrown it away."""
    program = f"{SURVIVE}{HELD}if not os.fork(): {kind}()\nwhile not held({kind}): time.sleep(0.02)\n"
    program += "attempt('kill', lambda: os.kill(os.getppid(), signal.SIGKILL))\nstay()\n"
    marker = f"red-{os.getpid()}/1"  # all that carries it on this machine is ended, so no other may
    assault = attack(Ground.lay(tmp_path), program, "none", marker=marker)
    assert "kill" in assault.attempts
    assert str(assault.run.error).startswith("its supervisor was killed")
    assert free(assault.place.out / f"alive-{kind}")


def test_red_team_stopping_its_keeper_without_a_sandbox(tmp_path: Path) -> None:
    """At none it can reach its keeper: SIGSTOP. That one cannot end the program any more, the engine ends both."""
    program = f"{SURVIVE}hold('main'); model(); ready()\nattempt('stop', lambda: os.kill(os.getppid(), signal.SIGSTOP))\nstay()\n"
    assault = attack(Ground.lay(tmp_path), program, "none", settings={"budget_seconds": 0.5})
    assert {"main", "stop"} <= assault.attempts.keys()
    assert str(assault.run.error).startswith("did not stop within 0.5 s")
    assert free(assault.place.out / "alive-main")


@pytest.mark.parametrize(
    ("how", "level"), crossed([("os.kill(os.getpid(), signal.SIGSTOP)",), ("signal.signal(15, signal.SIG_IGN)",)])
)
def test_red_team_sleeping_past_the_end(tmp_path: Path, level: Level, how: str) -> None:
    """Ignore SIGTERM at the end of the budget, or be stopped by then."""
    program = f"{SURVIVE}hold('main'); model(); ready()\n{how}\nstay()\n"
    assault = attack(Ground.lay(tmp_path), program, level, settings={"budget_seconds": 0.5})
    assert "main" in assault.attempts
    assert str(assault.run.error).startswith("did not stop within 0.5 s")
    assert free(assault.place.out / "alive-main")


@pytest.mark.parametrize(("thing", "level"), crossed((thing,) for thing in THINGS))
def test_red_team_things_that_are_not_what_they_seem(tmp_path: Path, level: Level, thing: str) -> None:
    """Leave that instead of a report or a checkpoint: it is a crash that nobody judges and nothing hangs at, and the
    key that a link leads to is told nowhere."""
    make, reason = THINGS[thing]
    ground = Ground.lay(tmp_path)
    assault = attack(ground, f"{make}\nprint('left it', flush=True)\ntime.sleep(0.1)\n", level)
    assert "left it" in assault.log
    assert assault.run.status == "crash" and reason in str(assault.run.error).splitlines()[0]
    assert str(assault.run.error).replace("\n", "").isprintable()
    assert assault.judge().value is None and not assault.place.judge_log.exists()
    for file in assault.place.out.glob("model.json"):
        if not file.is_symlink():
            file.chmod(0o600)  # so that we can look into it
    assert assault.leaks(ground.secret) == []
    file_trees.remove(assault.place.path)
    assert ground.changed() == []


@pytest.mark.parametrize("level", STRONGEST)
def test_red_team_commands_to_the_terminal_in_the_last_lines(tmp_path: Path, level: Level) -> None:
    """Print escape codes, and a verdict of its own, as its last words."""
    words = r"'\x1b]0;owned\x07\x1b[2J\x9b31m\rverdict: keep\x08'"
    error = attack(Ground.lay(tmp_path), f"print({words})\nraise SystemExit(3)\n", level).run.error
    assert error is not None and error.startswith("exited with status 3") and "verdict: keep" in error
    assert all(char.isprintable() or char == "\n" for char in error)

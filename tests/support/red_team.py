"""The red team's ground and tools: a real campaign's folders full of canaries, and how a hostile program is run there.

An attack is the text of a `train.py`, run by the engine as any trial is. It begins with PRELUDE, which gives it
`attempt(name, function)`: what it tries is written down before it is tried, and what came of it afterwards, so that an
attack with a mistake in it is told from one that was refused. A test then looks at its canary: the secret that did not
come out, the file that is as it was, the listener that nobody reached.

    ground = Ground.lay(tmp_path)
    assault = attack(ground, "attempt('read the judge', lambda: open(TARGETS['judge']).read())", "bwrap")
    assert assault.attempts["read the judge"].refused
    assert not assault.leaks(ground.secret)
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import secrets
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import environments
from environments import Environment
from environments.score import Score
from tasks.evaluate import judge_run
from tasks.sandbox import cgroup
from tasks.sandbox.confinement import Level
from tasks.sandbox.isolation import Isolation
from tasks.store.workspace import TrialDir
from tasks.train import run_program
from tasks.trial import Proposal, Run, Value
from tests.support.toy import JUDGE, stated

TINY: dict[str, Value] = {
    "limits.memory_gb": 0.2,
    "limits.out_gb": 0.02,
    "limits.scratch_gb": 0.02,
    "limits.file_gb": 0.03,
    "limits.processes": 40,
    "limits.out_files": 200,
    "limits.output_mb": 1,
}
"""Limits so low that a bomb is a small one."""

TOML = stated(
    'title = "Fort"', 'program = ["train.py"]', 'train_cmd = "python train.py {out}"', 'editable = ["train.py"]',
    "budget_seconds = 20", "startup_seconds = 10", "deterministic = false", "allow_untrained = false",
)  # fmt: skip

PRELUDE = '''\
import ctypes, errno, json, os, pathlib, signal, socket, stat, subprocess, sys, threading, time
TARGETS = json.loads(pathlib.Path("targets.json").read_text())
OUT = pathlib.Path(sys.argv[1])
_notes = os.open(OUT / "attempts.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
_libc = ctypes.CDLL(None, use_errno=True)

def note(name, **more):
    os.write(_notes, (json.dumps({"name": name, **more}) + "\\n").encode())

def attempt(name, function):
    """Try it; whatever comes of it is written down, and the program goes on. True when it was not refused."""
    note(name)
    try:
        got = function()
    except OSError as refused:
        note(name, error=errno.errorcode.get(refused.errno, str(refused)))
    except BaseException as refused:
        note(name, error=repr(refused)[:200])
    else:
        note(name, got=repr(got)[:400])
        return True
    return False

def syscall(number, *arguments):
    """A system call by its number; raises OSError as os does."""
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    answer = _libc.syscall(ctypes.c_long(number), *words)
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return answer

def ready():
    """The budget begins."""
    with open(OUT / "progress.jsonl", "a") as progress:
        progress.write('{"ready": true}\\n')

def model(x=1.0):
    """Leave a checkpoint that the judge can read."""
    (OUT / "model.json").write_text(json.dumps({"x": x}))

'''
"""What every attack begins with."""


@dataclass(frozen=True)
class Attempt:
    """One thing that a program tried, as it wrote it down itself."""

    got: str | None = None
    """The beginning of what it got, as Python shows it; None when it was refused, or did not come back."""
    error: str | None = None
    """How it was refused: an errno's name, or an exception."""

    @property
    def refused(self) -> bool:
        return self.error is not None


@dataclass
class Ground:
    """A campaign's folders as the engine lays them out, each with a secret or a canary in it."""

    root: Path
    secret: str = field(default_factory=lambda: f"canary-{secrets.token_hex(12)}")
    """Stands in every file that no program may read."""

    def __post_init__(self) -> None:
        self.home = self.root / "runs"
        self.campaign = self.home / "night-1"
        self.environment = self.root / "environment"
        self.judge, self.toml = self.environment / "judge.py", self.environment / "environment.toml"
        self.user = self.root / "user"  # the home of whoever runs the engine

    @classmethod
    def lay(cls, root: Path) -> Ground:
        """Make all of it below `root` (made when it is missing)."""
        ground = cls(root)
        for path, text in ground._texts().items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        ground.home.chmod(0o700)
        return ground

    def _texts(self) -> dict[Path, str]:
        """What stands in each file of the ground."""
        texts = dict.fromkeys(self.canaries.values(), f"{self.secret}\n")
        texts[self.judge] = f"# {self.secret}\n{JUDGE}"
        texts[self.toml] = f"# {self.secret}\n{TOML}"
        texts[self.environment / "train.py"] = "print('the baseline')\n"
        return texts

    @property
    def canaries(self) -> dict[str, Path]:
        """Files that are none of a program's business, by what they are called in TARGETS."""
        other = TrialDir(self.campaign / "trials/0001")
        return {
            "judge": self.judge,
            "toml": self.toml,
            "campaign": self.campaign / "campaign.json",
            "results": self.campaign / "results/0001-score.json",
            "table": self.campaign / "results.tsv",
            "proposal": other.proposal,
            "checkpoint": other.out / "model.json",
            "decided": other.trial,
            "key": self.home / ".key",
            "parent": self.root / "openai.key",
            "bashrc": self.user / ".bashrc",
            "netrc": self.user / ".netrc",
        }

    def changed(self) -> list[str]:
        """Which of the canaries are not as they were laid: gone, rewritten, linked elsewhere, or with another mode."""
        texts = self._texts()
        return [name for name, path in self.canaries.items() if not _untouched(path, texts[path])]


def _untouched(path: Path, text: str) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    status = path.stat()
    plain = status.st_nlink == 1 and status.st_mode & 0o777 in (0o644, 0o664, 0o600)
    return plain and status.st_mtime < 4e9 and path.read_text() == text


@dataclass(frozen=True)
class Assault:
    """One hostile program, run to its end."""

    ground: Ground
    environment: Environment
    isolation: Isolation
    place: TrialDir
    run: Run

    @property
    def attempts(self) -> dict[str, Attempt]:
        """What it tried, in order; an attempt that did not come back has neither `got` nor `error`."""
        found: dict[str, Attempt] = {}
        path = self.place.out / "attempts.jsonl"
        for line in path.read_text().splitlines() if path.is_file() else []:
            report = json.loads(line)
            found[report["name"]] = Attempt(report.get("got"), report.get("error"))
        return found

    @property
    def log(self) -> str:
        return self.place.log.read_text(errors="replace")

    def leaks(self, secret: str) -> list[str]:
        """Where a secret shows up in what the program left or the engine wrote down of it."""
        plain = (path for path in self.place.path.rglob("*") if path.is_file() and not path.is_symlink())
        found = [str(path) for path in plain if secret.encode() in path.read_bytes()]
        return found + (["Run.error"] if secret in (self.run.error or "") else [])

    def judge(self) -> Score:
        """Have what it left judged."""
        return judge_run("red/judge", self.environment, self.isolation, self.place, self.run, seed=8)


def attack(
    ground: Ground,
    program: str,
    level: Level,
    *,
    targets: Mapping[str, object] | None = None,
    settings: Mapping[str, Value] | None = None,
    name: str = "0007",
) -> Assault:
    """Run PRELUDE and `program` as a trial's train.py at a level, under TINY limits and `settings` (dotted keys of
    environment.toml). TARGETS in it holds the paths of the canaries, and `targets`."""
    frozen = ground.root / f"program-{name}"
    frozen.mkdir()
    (frozen / "train.py").write_text(PRELUDE + program)
    known = {called: str(path) for called, path in ground.canaries.items()}
    (frozen / "targets.json").write_text(json.dumps(known | dict(targets or {})))
    environment = environments.load(ground.environment, TINY | dict(settings or {}))
    place = TrialDir(ground.campaign / "trials" / name)
    isolation = Isolation(level, allow_unsandboxed=True)
    run = run_program(f"red/{os.getpid()}", environment, isolation, frozen, place, Proposal({"x": 1.0}), seed=7)
    return Assault(ground, environment, isolation, place, run)


# What a red team's program has around it: another process of the user, a terminal, shared memory.


VICTIM = """
import ctypes, os, signal, sys
signal.signal(signal.SIGURG, lambda *_: os._exit(9))
held = ctypes.create_string_buffer(sys.argv[1].encode())
print(ctypes.addressof(held), flush=True)
sys.stdin.read()
"""
"""Holds the secret in its memory."""

VARIABLE = "RED_TEAM_API_KEY"
"""Holds the secret too, in what surrounds the program."""
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p


@dataclass
class Neighbours:
    """What else the user has on this machine: a process, a terminal, shared memory."""

    ground: Ground
    victim: subprocess.Popen[str]
    file: int
    """The victim's descriptor of a file with the secret."""
    address: int
    master: int
    pty: str
    signals: list[int]

    def targets(self) -> dict[str, object]:
        found = cgroup.find()
        groups = [str(folder / "cgroup.procs") for folder in (found.memory, found.pids)] if found else []
        return {
            "victim": self.victim.pid, "victim fd": self.file, "engine": os.getpid(), "address": self.address,
            "pty": self.pty, "shm": key(), "groups": groups,
        }  # fmt: skip

    def typed(self) -> bytes:
        """What came in on the terminal."""
        return os.read(self.master, 100) if select.select([self.master], [], [], 0)[0] else b""


def key() -> int:
    """Of the shared memory: nobody else's."""
    return 0x52ED0000 + os.getpid() % 0xFFFF


@contextmanager
def neighbours(ground: Ground) -> Iterator[Neighbours]:
    command = [sys.executable, "-c", VICTIM, ground.secret]
    with (ground.user / ".netrc").open() as netrc:
        victim = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, cwd=ground.user,
            env={VARIABLE: ground.secret}, pass_fds=(file := netrc.fileno(),),
        )  # fmt: skip
    assert victim.stdout is not None
    address = int(victim.stdout.readline())
    shm = libc.shmget(key(), 4096, 0o1666)
    memory = libc.shmat(shm, None, 0)
    ctypes.memmove(memory, ground.secret.encode(), len(ground.secret))
    master, slave = os.openpty()
    signals: list[int] = []
    asleep = signal.signal(signal.SIGURG, lambda number, _: signals.append(number))
    try:
        yield Neighbours(ground, victim, file, address, master, os.ttyname(slave), signals)
    finally:
        signal.signal(signal.SIGURG, asleep)
        victim.kill()
        victim.communicate()
        for descriptor in (master, slave):
            os.close(descriptor)
        libc.shmdt(ctypes.c_void_p(memory))
        libc.shmctl(shm, 0, None)


def free(path: Path) -> bool:
    """Whether no process holds the lock on a file. (A lock is seen from any namespace, a process is not.)"""
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True

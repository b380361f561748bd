"""Warm starts: what a program sees, that nothing is shared or left, and when it starts cold instead."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from environments.limits import Limits
from tasks.sandbox import confinement
from tasks.sandbox.confinement import Level, VisiblePaths
from tasks.sandbox.isolation import findings
from tasks.sandbox.program import Program
from tasks.sandbox.warm import templates
from tasks.sandbox.warm.kind import ImportsAhead, Kind
from tasks.sandbox.warm.templates import Templates
from tasks.system import orphans
from tasks.system.slot import NOWHERE, Slot
from tests.support.processes import wait_for

WORKING: list[Level] = [finding.level for finding in findings() if finding.works]
AHEAD = ImportsAhead(("json", "tempfile", "random"))

WORLD = """
\"\"\"What a program sees of itself.\"\"\"
import json, os, random, resource, signal, sys, tempfile
import beside

def status(name):
    return [line.split()[1:] for line in open("/proc/self/status") if line.startswith(name)]

def listed(top):
    try:
        return sorted(os.listdir(top))
    except PermissionError as refused:
        return str(refused)

folder = os.path.dirname(os.getcwd())
out = os.path.join(folder, "out")
open(os.path.join(out, "written"), "w").close()
space = dict(globals())
print(json.dumps({
    "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "flags": str(sys.flags), "cwd": os.getcwd(),
    "main": {name: repr(value).partition(" object at ")[0] for name, value in space.items() if name.startswith("__") and name != "__builtins__"},
    "is_main": sys.modules["__main__"].__dict__ is globals(), "builtins": str(type(__builtins__)),
    "environment": list(os.environ.items()),
    "block": open("/proc/self/environ").read().rstrip("\\0").split("\\0"),
    "line": open("/proc/self/cmdline").read().rstrip("\\0").split("\\0"),
    "limits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource)
               if name.startswith("RLIMIT") and name != "RLIMIT_NPROC"},
    "signals": {number: str(signal.getsignal(number)) for number in range(1, 65)}, "mask": str(signal.pthread_sigmask(0, [])),
    "status": {name: status(name) for name in (
        "Uid", "Gid", "Groups", "Cap", "NoNewPrivs", "Seccomp:", "SigPnd", "SigBlk", "SigIgn", "SigCgt", "ShdPnd", "Threads", "Cpus_allowed_list", "Umask")},
    "descriptors": {entry: os.readlink(f"/proc/self/fd/{entry}").partition(":")[0]
                    for entry in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{entry}")},
    "beside": beside.__file__, "tempdir": tempfile.gettempdir(), "nice": os.nice(0), "session": os.getsid(0) == os.getpid(),
    "oom": open("/proc/self/oom_score_adj").read(), "home": os.path.expanduser("~"),
    "files": {top: listed(top) for top in (folder, os.getcwd(), out, tempfile.gettempdir(), "/")},
    "modes": {top: oct(os.stat(top).st_mode) for top in (folder, os.getcwd(), out, "/")},
    "stdin": os.fstat(0).st_mode, "encoding": sys.stdout.encoding, "buffered": sys.stdout.line_buffering,
    "writes": os.access(os.getcwd(), os.W_OK),
}, default=str, sort_keys=True))
"""


class Trial:
    """A trial's folder, with a program in it."""

    def __init__(self, folder: Path, code: str, level: Level) -> None:
        self.folder, self.level = folder, level
        (folder / "workspace").mkdir(parents=True)
        (folder / "out").mkdir()
        (folder / "workspace/train.py").write_text(code)
        (folder / "workspace/beside.py").touch()
        confinement.give(folder / "out", level)
        self.view = VisiblePaths((folder / "workspace",), (folder / "out",))
        self.limits = Limits()

    def start(self, *arguments: str, ahead: ImportsAhead = AHEAD, slot: Slot = NOWHERE, pipes: bool = False) -> Program:
        return Program(
            ["python", "train.py", *arguments], cwd=self.folder / "workspace", log=self.folder / "log.txt",
            marker="test-warm/0001", level=self.level, view=self.view, limits=self.limits, slot=slot, pipes=pipes,
            ahead=ahead,
        )  # fmt: skip

    def run(self, *arguments: str, ahead: ImportsAhead = AHEAD, slot: Slot = NOWHERE) -> tuple[int, str]:
        """How it ended, and what it printed."""
        with self.start(*arguments, ahead=ahead, slot=slot) as program:
            while (status := program.poll(0.02)) is None:
                pass
        return status, (self.folder / "log.txt").read_text()


@contextmanager
def warm_starts(folder: Path) -> Iterator[tuple[Templates, list[str]]]:
    """Templates, and what they tell of cold starts."""
    told: list[str] = []
    with templates.opened(folder / "templates", "test-warm", told.append) as warm:
        yield warm, told


@pytest.mark.parametrize("level", WORKING)
def test_a_program_sees_the_same_world_cold_and_warm(tmp_path: Path, level: Level) -> None:
    hear, say = os.pipe()
    os.dup2(hear, 40)
    slot = Slot("cpu-0", fences=(40,), cores=(max(os.sched_getaffinity(0)),))
    seen = []
    for number in range(2):
        place = tmp_path / "0007"
        trial = Trial(place, WORLD, level)
        with warm_starts(tmp_path) as (warm, told):
            status, printed = trial.run(level, slot=slot, ahead=AHEAD if number else ImportsAhead())
        assert (status, told) == (0, []), printed
        assert (place / "out/written").exists()
        seen.append(json.loads(printed))
        place.rename(tmp_path / f"done-{number}")
    for descriptor in (hear, say, 40):
        os.close(descriptor)
    cold, warm_ = seen
    for what in cold:
        assert warm_[what] == cold[what], what
    assert not (tmp_path / "templates").exists()


@pytest.mark.parametrize("level", WORKING)
def test_its_fences_have_their_numbers_whatever_the_standby_has_open(tmp_path: Path, level: Level) -> None:
    """Among them is the number of the standby's own socket."""
    trial = Trial(
        tmp_path / "0001", "import os, sys; print([os.fstat(n).st_ino for n in map(int, sys.argv[1:])])", level
    )
    with warm_starts(tmp_path) as (warm, told), ExitStack() as held:
        fences = []
        for _ in range(20):
            hear, say = os.pipe()
            held.callback(os.close, say)
            fences.append(fcntl.fcntl(hear, fcntl.F_DUPFD_CLOEXEC, 10))
            held.callback(os.close, fences[-1])
            os.close(hear)
        fences.reverse()
        status, printed = trial.run(*map(str, fences), slot=Slot("cpu-0", fences=tuple(fences)))
        assert (status, told) == (0, []), printed
        assert json.loads(printed) == [os.fstat(fence).st_ino for fence in fences]


@pytest.mark.parametrize("level", WORKING)
def test_its_supervisor_holds_the_fences_that_it_closes(tmp_path: Path, level: Level) -> None:
    code = "import os, time; os.closerange(3, 100); print('closed', flush=True); time.sleep(60)"
    trial = Trial(tmp_path / "0001", code, level)
    hear, say = os.pipe()
    os.dup2(hear, 40)
    try:
        with warm_starts(tmp_path) as (warm, told):
            with trial.start(slot=Slot("cpu-0", fences=(40,))) as program:
                wait_for(lambda: program.poll(0.02) or program.tail())
                holders = [process.pid for process in orphans.having_open(40)]
                assert holders == [program.process.pid] and not told
            assert orphans.having_open(40) == []
    finally:
        for descriptor in (hear, say, 40):
            os.close(descriptor)


@pytest.mark.parametrize("level", WORKING)
def test_a_home_that_a_package_has_found_while_it_was_imported_stays_one(tmp_path: Path, level: Level) -> None:
    """`site` asks for it as packages with a cache do."""
    code = "import os, site; os.makedirs(site.USER_BASE); print(os.path.samefile(site.USER_BASE, os.path.expanduser('~/.local')))"
    trial = Trial(tmp_path / "0001", code, level)
    with warm_starts(tmp_path) as (warm, told):
        ahead := ImportsAhead(("site",))
        assert trial.run(ahead=ahead) == (0, "True\n")
        assert not told
        wait_for(lambda: warm._waiting)
        assert len(list((tmp_path / "standby").iterdir())) == 1, "the next one's"


ENDINGS = {
    "an exception": "import beside\ndef deep():\n    raise ValueError('odd')\ndeep()\n",
    "a syntax error": "def broken(:\n",
    "a status": "import sys\nsys.exit(7)\n",
    "words": "raise SystemExit('enough')\n",
    "a signal": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n",
    "no file": "",
    "threads": "import threading\nthreading.Thread(target=lambda: 1 / 0).start()\n",
}


@pytest.mark.parametrize("level", WORKING[:1])
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_program_ends_with_the_same_words_cold_and_warm(tmp_path: Path, level: Level, ending: str) -> None:
    ends = []
    for number in range(2):
        trial = Trial(tmp_path / "0001", ENDINGS[ending], level)
        if not ENDINGS[ending]:
            (trial.folder / "workspace/train.py").unlink()
        with warm_starts(tmp_path) as (warm, told):
            ends.append(trial.run(ahead=AHEAD if number else ImportsAhead()))
            assert not told
        trial.folder.rename(tmp_path / f"done-{number}")
    assert ends[0] == ends[1]


def test_what_it_used_before_it_had_a_trial_does_not_count(tmp_path: Path) -> None:
    """Its own start takes more processor time than the program."""
    code = "import time\nend = time.process_time() + 0.05\nwhile time.process_time() < end: pass\ntime.sleep(1.3)\n"
    trial = Trial(tmp_path / "0002", code, "none")
    with warm_starts(tmp_path) as (warm, told):
        (standby, _) = warm._waiting[0]
        before = standby.supervised.process.pid
        with trial.start() as program:
            assert program.process.pid == before and program.cpu_seconds() < 0.05
            while program.poll(0.02) is None:
                pass
            assert program.cpu_seconds() < 0.1
            assert program._cpu_idle > 0.01
            assert all(sample.cpu < 0.1 and sample.elapsed < 5 for sample in program.samples.kept)
    assert not told


def test_programs_start_cold_and_say_why(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "0001", "print('ran')", "none")
    with warm_starts(tmp_path) as (warm, told):
        assert trial.run() == (0, "ran\n")
        assert "no standby is ready" in told.pop()
        wait_for(lambda: warm._waiting)  # one of that kind is prepared now
        warm._waiting[0][0].supervised.process.kill()
        wait_for(lambda: not warm._waiting[0][0].is_alive)
        assert trial.run() == (0, "ran\n")
        assert "it has ended" in told.pop()
        wait_for(lambda: warm._waiting)
        warm._waiting[0][0].made -= pool.OLDEST_SECONDS
        assert trial.run() == (0, "ran\n")
        assert "older than" in told.pop()
        wait_for(lambda: warm._waiting)
        warm._waiting[0] = (warm._waiting[0][0], "another world")
        assert trial.run() == (0, "ran\n")
        assert "packages have changed" in told.pop()
        wait_for(lambda: warm._waiting)
        assert trial.run() == (0, "ran\n")
        assert not told
    assert orphans.marked("test-warm") == []


@pytest.mark.parametrize("level", WORKING)
def test_a_trial_that_a_standby_cannot_take_on_starts_cold(tmp_path: Path, level: Level) -> None:
    """The trial lies on another file system than the standby's folders."""
    with in_memory() as other:
        trial = Trial(other / "0001", "import beside; print('ran')", level)
        if other.stat().st_dev == tmp_path.stat().st_dev:
            pytest.skip("no second file system here")
        with warm_starts(tmp_path) as (warm, told):
            assert trial.run() == (0, "ran\n")
            assert "could not be given its trial" in told[0]
        assert sorted(path.name for path in trial.folder.iterdir()) == ["log.txt", "out", "workspace"]


@contextmanager
def in_memory() -> Iterator[Path]:
    """A folder of another file system than most."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_what_cannot_be_imported_is_told_and_tried_only_a_few_times(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "0001", "print('ran')", "none")
    broken = ImportsAhead(("json:nothing_of_that_name",))
    with warm_starts(tmp_path) as (_, told):
        assert trial.run(ahead=broken) == (0, "ran\n")
        wait_for(lambda: len(told) == 1 + pool.FAULTS)
        assert trial.run(ahead=broken) == (0, "ran\n")
        assert all("could not import" in words for words in told[1:-1]) and "could not be prepared" in told[-1]


def test_nothing_is_imported_on_cores_that_a_training_holds(tmp_path: Path) -> None:
    cores = tuple(os.sched_getaffinity(0))
    trial = Trial(tmp_path / "0001", "print('ran')", "none")
    with warm_starts(tmp_path) as (warm, told):
        with pool.granted(Slot("cpu-0", cores=cores)):
            trial.run()
            trial.run()
            time.sleep(0.2)
            assert not warm._waiting and warm._prepared is None
        assert all("no core was free" in words for words in told)
        wait_for(lambda: warm._waiting)  # it has ended


def test_a_package_that_is_not_installed_is_left_out(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "0001", "print('ran')", "none")
    with warm_starts(tmp_path) as (warm, told):
        ahead := ImportsAhead(("no_such_package", "json"))
        assert trial.run(ahead=ahead) == (0, "ran\n")
        assert not told


def test_variables_that_are_set_for_the_import_are_gone_afterwards(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "0001", "import os; print(os.environ.get('ONLY_AHEAD'))", "none")
    with warm_starts(tmp_path) as (warm, told):
        ahead := ImportsAhead(("json",), {"ONLY_AHEAD": "1"})
        assert trial.run(ahead=ahead) == (0, "None\n")
        assert not told


@pytest.mark.parametrize("level", WORKING)
def test_no_standby_outlives_an_engine_that_is_killed(tmp_path: Path, level: Level) -> None:
    engine = f"""
import sys, time
sys.path.insert(0, ".")
from pathlib import Path
from tests.sandbox.test_warm import AHEAD, Trial, standbys
place = Path({str(tmp_path)!r})
with standbys(place) as (warm, told):
    trial = Trial(place / "0001", "import time; time.sleep(600)", {level!r})
    with trial.start() as program:
        print("both", flush=True)
        while True:
            program.poll(0.1)
"""
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", engine], stdout=subprocess.PIPE, cwd=root) as process:
        assert process.stdout is not None and process.stdout.readline() == b"both\n"
        wait_for(lambda: len(orphans.marked("test-warm")) >= 2)
        process.kill()
    wait_for(lambda: not orphans.marked("test-warm"))


@pytest.mark.parametrize(
    "moment",
    ["before it is named", "before the files are moved", "between two files", "without a folder", "afterwards"],
)
def test_a_trial_keeps_its_files_whenever_its_engine_is_killed(
    tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cwd := tmp_path / "cwd").mkdir()
    monkeypatch.chdir(cwd)
    trial, left = tmp_path / "0001", tmp_path / "standby/ab"
    (trial / "out").mkdir(parents=True)
    for name in ("model", "other"):
        (trial / "out" / name).write_text(name)
    (left / "out").mkdir(parents=True)
    (left / "tmp").mkdir()
    (left / "trial").write_bytes(b"" if moment == "before it is named" else os.fsencode(trial))
    if not moment.startswith("before"):
        (trial / "out/model").rename(left / "out/model")
    if moment in ("without a folder", "afterwards"):
        (trial / "out/other").rename(left / "out/other")
        (trial / "out").rmdir()
    if moment == "afterwards":
        (left / "out").rename(trial / "out")
    restore(tmp_path / "standby")
    assert {path.name: path.read_text() for path in (trial / "out").iterdir()} == {"model": "model", "other": "other"}
    assert not (tmp_path / "standby").exists() and not list(cwd.iterdir())

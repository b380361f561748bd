"""Warm starts: what a program sees, that nothing is shared or left, and when it starts cold instead."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from environments.limits import Limits
from tasks.sandbox import confinement
from tasks.sandbox.confinement import Level, VisiblePaths
from tasks.sandbox.program import Program
from tasks.sandbox.warm import template, templates
from tasks.sandbox.warm.kind import ImportsAhead, Kind
from tasks.sandbox.warm.templates import Templates
from tasks.system import orphans
from tasks.system.slot import NOWHERE, Slot
from tests.support.levels import STRONGEST, STRONGEST_AND_NONE, WORKING
from tests.support.processes import wait_for

AHEAD = ImportsAhead(("json", "tempfile", "random"))

WORLD = """
\"\"\"What a program sees of itself.\"\"\"
import json, os, random, resource, signal, socket, sys, tempfile, time
try:
    import beside
except ImportError:
    beside = None

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
    "beside": getattr(beside, "__file__", None), "tempdir": tempfile.gettempdir(), "nice": os.nice(0), "session": os.getsid(0) == os.getpid(),
    "oom": open("/proc/self/oom_score_adj").read(), "home": os.path.expanduser("~"),
    "files": {top: listed(top) for top in (folder, os.getcwd(), out, tempfile.gettempdir(), "/")},
    "modes": {top: oct(os.stat(top).st_mode) for top in (folder, os.getcwd(), out, "/")},
    "stdin": os.fstat(0).st_mode, "encoding": sys.stdout.encoding, "buffered": sys.stdout.line_buffering,
    "writes": os.access(os.getcwd(), os.W_OK),
    "mounts": sorted(line.split()[3:6] + line.split()[-3:] for line in open("/proc/self/mountinfo")),
    "spaces": {name: os.readlink("/proc/self/ns/" + name) == link for name, link in json.loads(sys.argv[2]).items()},
    "host": os.uname().nodename, "interfaces": [name for _, name in socket.if_nameindex()] if sys.argv[1] == "bwrap" else None,
    "dumpable": os.stat("/proc/self/mem").st_uid == os.getuid(), "own": len(os.listdir("/proc/self/fd")),
    "process_time": time.process_time() < 5,
}, default=str, sort_keys=True))
"""


class Trial:
    """A trial's folder, with a program in it."""

    def __init__(self, folder: Path, code: str, level: Level, flags: Sequence[str] = ()) -> None:
        self.folder, self.level, self.flags = folder, level, flags
        (folder / "workspace").mkdir(parents=True)
        (folder / "out").mkdir()
        (folder / "workspace/train.py").write_text(code)
        (folder / "workspace/beside.py").touch()
        confinement.give(folder / "out", level)
        self.view = VisiblePaths((folder / "workspace",), (folder / "out",))
        self.limits = Limits()

    def start(self, *arguments: str, ahead: ImportsAhead = AHEAD, slot: Slot = NOWHERE, pipes: bool = False) -> Program:
        return Program(
            ["python", *self.flags, "train.py", *arguments], cwd=self.folder / "workspace", log=self.folder / "log.txt",
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
@pytest.mark.parametrize("flags", [(), ("-P",), ("-I", "-B")], ids=" ".join)
def test_a_program_sees_the_same_world_cold_and_warm(tmp_path: Path, level: Level, flags: Sequence[str]) -> None:
    slot = Slot("cpu-0", cores=(max(os.sched_getaffinity(0)),))
    seen = []
    spaces = json.dumps(
        {name: str(Path(f"/proc/self/ns/{name}").readlink()) for name in ("mnt", "pid", "net", "ipc", "uts", "user")}
    )
    for number in range(2):
        place = tmp_path / "0007"
        trial = Trial(place, WORLD, level, flags)
        with warm_starts(tmp_path) as (_, told):
            status, printed = trial.run(level, spaces, slot=slot, ahead=AHEAD if number else ImportsAhead())
        assert (status, told) == (0, []), printed
        assert (place / "out/written").exists()
        seen.append(json.loads(printed))
        place.rename(tmp_path / f"done-{number}")
    cold, warm_ = seen
    assert bool(cold["beside"]) == (not flags)
    assert warm_.pop("session") and (cold.pop("session") or level == "bwrap"), "there, bubblewrap leads the cold one's"
    for what in cold:
        assert warm_[what] == cold[what], what
    assert not (tmp_path / "templates").exists()


@pytest.mark.parametrize("level", STRONGEST)
def test_a_home_that_a_package_has_found_while_it_was_imported_stays_one(tmp_path: Path, level: Level) -> None:
    """`site` asks for it as packages with a cache do."""
    code = "import os, site; os.makedirs(site.USER_BASE); print(os.path.samefile(site.USER_BASE, os.path.expanduser('~/.local')))"
    trial = Trial(tmp_path / "0001", code, level)
    with warm_starts(tmp_path) as (_, told):
        ahead = ImportsAhead(("site",))
        assert trial.run(ahead=ahead) == (0, "True\n")
        assert not told


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
        with warm_starts(tmp_path) as (_, told):
            ends.append(trial.run(ahead=AHEAD if number else ImportsAhead()))
            assert not told
        trial.folder.rename(tmp_path / f"done-{number}")
    assert ends[0] == ends[1]


def test_no_processor_time_of_its_template_counts(tmp_path: Path) -> None:
    """The imports take more than the program."""
    code = "import time\nend = time.process_time() + 0.05\nwhile time.process_time() < end: pass\ntime.sleep(1.3)\n"
    trial = Trial(tmp_path / "0002", code, "none")
    with warm_starts(tmp_path) as (_, told), trial.start() as program:
        assert program.cpu_seconds() < 0.05
        while program.poll(0.02) is None:
            pass
        assert program.cpu_seconds() < 0.1
        assert all(sample.cpu < 0.1 and sample.elapsed < 5 for sample in program.samples.kept)
    assert not told


DRAWN = """
import json, multiprocessing, random, sys
import numpy.random
print(json.dumps([hasattr(json, "left"), random.random(), numpy.random.rand(), multiprocessing.current_process().authkey.hex()]))
json.left = random.left = True
"""


def test_programs_share_nothing_that_was_drawn_or_left(tmp_path: Path) -> None:
    drawn = []
    with warm_starts(tmp_path) as (_, told):
        for number in range(2):
            trial = Trial(tmp_path / f"000{number}", DRAWN, "none")
            status, printed = trial.run(ahead=ImportsAhead(("json", "random", "numpy.random", "multiprocessing")))
            assert (status, told) == (0, []), printed
            drawn.append(json.loads(printed))
    (left, *first), (also_left, *second) = drawn
    assert not left and not also_left
    assert not set(first) & set(second)


@pytest.fixture
def package() -> Iterator[Callable[[str], tuple[Path, ImportsAhead]]]:
    """Installs a module with that text, for templates only."""
    file = Path(sysconfig.get_path("purelib")) / f"nightshift_test_{os.getpid()}.py"

    def install(text: str) -> tuple[Path, ImportsAhead]:
        file.write_text(text)
        return file, ImportsAhead((file.stem,))

    yield install
    file.unlink(missing_ok=True)


Package = Callable[[str], tuple[Path, ImportsAhead]]


def test_a_package_that_changes_is_imported_anew(tmp_path: Path, package: Package) -> None:
    file, ahead = package("value = 1")
    trial = Trial(tmp_path / "0001", f"import {file.stem} as m; print(m.value)", "none")
    with warm_starts(tmp_path) as (warm, told):
        assert trial.run(ahead=ahead) == (0, "1\n")
        package("value = 2000")
        os.utime(file, (1, 1))
        assert trial.run(ahead=ahead) == (0, "2000\n")
        assert trial.run(ahead=ahead) == (0, "2000\n")
        file.unlink()
        assert trial.run(ahead=ahead)[0] == 1, "there is none"
        assert not told and len(warm._made) == 1


SHARED = {
    "threads": "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    "files open": "import os\nkept = os.pipe()",
    "memory that forks share": "import mmap\nkept = mmap.mmap(-1, 4096)",
    "processes": "import subprocess\nkept = subprocess.Popen(['sleep', '5'])",
    "not imported": "raise ValueError('broken')",
}


@pytest.mark.parametrize("what", SHARED)
def test_what_forks_would_share_or_lack_is_told_and_tried_only_a_few_times(
    tmp_path: Path, package: Package, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(templates, "FAULTS", 2)
    _, ahead = package(SHARED[what])
    trial = Trial(tmp_path / "0001", "print('ran')", "none")
    with warm_starts(tmp_path) as (warm, told):
        assert [trial.run(ahead=ahead) for _ in range(3)] == 3 * [(0, "ran\n")]
        assert len(told) == 3 and all(what in why for why in told) and told[2] == f"{told[1]} (2 times)"
        assert [kind for kind, _ in warm._faults] == 2 * [Kind(ahead)] and not warm._made
    assert orphans.marked("test-warm") == []


def test_a_template_imports_on_the_cores_of_the_first_program(tmp_path: Path, package: Package) -> None:
    file, ahead = package("import os\ncores = os.sched_getaffinity(0)")
    trial = Trial(tmp_path / "0001", f"import {file.stem} as m, os; print(*m.cores, *os.sched_getaffinity(0))", "none")
    core = max(os.sched_getaffinity(0))
    with warm_starts(tmp_path) as (_, told):
        assert trial.run(ahead=ahead, slot=Slot("cpu-0", cores=(core,))) == (0, f"{core} {core}\n")
        assert trial.run(ahead=ahead) == (0, " ".join(map(str, (core, *os.sched_getaffinity(0)))) + "\n")
        assert not told


def test_a_template_that_ends_or_hangs_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "BEGIN_SECONDS", 0.5)
    trial = Trial(tmp_path / "0001", "print('ran')", "none")
    with warm_starts(tmp_path) as (warm, told):
        assert trial.run() == (0, "ran\n")
        for number in (signal.SIGKILL, signal.SIGSTOP):
            before = warm._made[0].process
            before.send_signal(number)
            assert trial.run() == (0, "ran\n")
            assert warm._made[0].process.pid != before.pid and before.poll() is not None
        assert not told and len(warm._made) == 1
    assert orphans.marked("test-warm") == []


@pytest.mark.parametrize("level", WORKING)
def test_a_program_goes_on_when_its_template_is_killed(tmp_path: Path, level: Level) -> None:
    code = "import os, time\nprint('on', flush=True)\ntime.sleep(0.5)\nos._exit(5)"
    trial = Trial(tmp_path / "0001", code, level)
    with warm_starts(tmp_path) as (warm, told), trial.start() as program:
        wait_for(lambda: program.poll(0.02) or program.tail())
        warm._made[0].process.kill()
        warm._made[0].process.wait()
        wait_for(lambda: program.poll(0.02) is not None)
        assert (program.poll(0), program.left_over(), told) == (5, [], [])


def test_a_program_that_imports_nothing_of_its_folder_may_have_any_names_there(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "0001", "import json\nprint(hasattr(json, 'loads'))", "none", ("-I", "-B"))
    (trial.folder / "workspace/json.py").touch()
    with warm_starts(tmp_path) as (warm, told):
        assert trial.run() == (0, "True\n")
        assert not told and warm._made


SETTING = "import os\nos.environ['OMP_NUM_THREADS'] = '2'\nprint('ran')"
DIFFERENT = {
    "a module of its own": ((), "import json\nprint(hasattr(json, 'loads'))", "json.py", "False\n"),
    "a variable": ((), SETTING, "other.py", "ran\n"),
    "a variable, isolated": (("-I", "-B"), SETTING, "json.py", "ran\n"),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_a_program_that_would_import_something_else_starts_cold(tmp_path: Path, what: str) -> None:
    flags, code, other, printed = DIFFERENT[what]
    trial = Trial(tmp_path / "0001", code, "none", flags)
    (trial.folder / "workspace" / other).touch()
    with warm_starts(tmp_path) as (warm, told):
        assert trial.run() == (0, printed)
        assert "imported" in told.pop() and not told
        assert len(warm._made) == 1, "other programs are forked from it"


def test_several_programs_are_forked_at_once(tmp_path: Path) -> None:
    trials = [Trial(tmp_path / f"000{n}", f"import time; time.sleep(0.1); print({n})", "none") for n in range(6)]
    with warm_starts(tmp_path) as (warm, told), ThreadPoolExecutor(6) as threads:
        ended = list(threads.map(Trial.run, trials))
        assert ended == [(0, f"{n}\n") for n in range(6)]
        assert not told and len(warm._made) == 1


@pytest.mark.parametrize("level", STRONGEST_AND_NONE)
def test_a_trial_may_lie_on_another_file_system(tmp_path: Path, level: Level) -> None:
    with in_memory() as other:
        trial = Trial(other / "0001", "import beside; print('ran')", level)
        with warm_starts(tmp_path) as (_, told):
            assert trial.run() == (0, "ran\n")
            assert not told
        assert sorted(path.name for path in trial.folder.iterdir()) == ["log.txt", "out", "workspace"]


@contextmanager
def in_memory() -> Iterator[Path]:
    """A folder of another file system than most."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_package_that_is_not_installed_is_left_out(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "0001", "print('ran')", "none")
    with warm_starts(tmp_path) as (_, told):
        assert trial.run(ahead=ImportsAhead(("no_such_package", "json"))) == (0, "ran\n")
        assert not told


def test_variables_that_are_set_for_the_import_are_gone_afterwards(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "0001", "import os; print(os.environ.get('ONLY_AHEAD'))", "none")
    with warm_starts(tmp_path) as (_, told):
        assert trial.run(ahead=ImportsAhead(("json",), {"ONLY_AHEAD": "1"})) == (0, "None\n")
        assert not told


@pytest.mark.parametrize("level", WORKING)
def test_nothing_outlives_an_engine_that_is_killed(tmp_path: Path, level: Level) -> None:
    engine = f"""
import sys, time
sys.path.insert(0, ".")
from pathlib import Path
from tests.sandbox.test_warm import AHEAD, Trial, warm_starts
place = Path({str(tmp_path)!r})
with warm_starts(place) as (warm, told):
    trial = Trial(place / "0001", "import time; time.sleep(600)", {level!r})
    with trial.start() as program:
        print(program.process.pid, warm._made[0].process.pid, flush=True)
        while True:
            program.poll(0.1)
"""
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", engine], stdout=subprocess.PIPE, cwd=root) as process:
        assert process.stdout is not None
        pids = list(map(int, process.stdout.readline().split()))
        assert len(orphans.marked("test-warm")) >= 2
        process.kill()
    wait_for(lambda: not orphans.marked("test-warm") and not any(map(psutil.pid_exists, pids)))

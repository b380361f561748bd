"""What a trial's program may do to us: each case ends in a Run with a reason, and nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import environments
from environments.limits import Limits
from tasks.evaluate import judge_run
from tasks.sandbox import cgroup
from tasks.sandbox.confinement import Level, VisiblePaths
from tasks.sandbox.isolation import Isolation
from tasks.sandbox.program import CannotStart, Program, Stopped
from tasks.store.workspace import TrialDir
from tasks.system import orphans
from tasks.train import run_program
from tasks.trial import Proposal, Run
from tests.support.levels import WORKING, crossed
from tests.support.processes import NAP, SLEEP, alive, wait_for
from tests.support.toy import SANDBOX, quadratic

SAVE = "import pathlib, sys\nout = pathlib.Path(sys.argv[sys.argv.index('--out') + 1])\n(out / 'm').write_text('x')\n"
READY = "progress = (out / 'progress.jsonl').open('w', buffering=1)\nprint('{\"ready\": true}', file=progress)\n"
"""Its budget begins, however long a busy machine took to start it."""
HANGS = "import time\nwhile True: time.sleep(0.01)\n"


def train(
    tmp_path: Path,
    program: str,
    *,
    marker: str = f"test/{os.getpid()}",
    level: Level | None = None,
    budget: float = 60,
    startup: float = 60,
    grace: float = 30,
) -> Run:
    """Run a program as a trial's, by default with more time than it takes on any machine."""
    folder = quadratic(tmp_path / "env", fit=program)
    times = {"budget_seconds": budget, "startup_seconds": startup, "grace_seconds": grace}
    environment = environments.load(folder, times)
    frozen = tmp_path / "program"
    frozen.mkdir(exist_ok=True)
    (frozen / "fit.py").write_text(program)
    isolation = Isolation(level) if level else SANDBOX
    place = TrialDir(tmp_path / "trial")
    return run_program(marker, environment, isolation, frozen, place, Proposal({"x": 1.0}), seed=7)


def started(tmp_path: Path, code: str, level: Level, marker: str) -> Program:
    return Program(
        ["python", "-c", code], cwd=tmp_path, log=tmp_path / "log", marker=marker, level=level,
        view=VisiblePaths((tmp_path,), ()), limits=Limits(),
    )  # fmt: skip


@pytest.mark.parametrize("level", WORKING)
@pytest.mark.parametrize("fault", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_a_start_that_is_broken_off_leaves_no_process_and_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: Level, fault: BaseException
) -> None:
    begun: list[Program] = []

    def break_off(program: Program) -> bool:
        begun.append(program)
        raise fault

    monkeypatch.setattr(Program, "_hear", break_off)
    with pytest.raises(KeyboardInterrupt if isinstance(fault, KeyboardInterrupt) else CannotStart):
        started(tmp_path, "import time\ntime.sleep(60)", level, "test/off")
    (program,) = begun
    assert program.process.returncode is not None
    assert all(pipe.closed for pipe in program._pipes)
    assert orphans.end("test/off") == []


BAD = [
    ("exits with 3", "print('no such file: data.csv')\nraise SystemExit(3)", "exited with status 3\n| no such file"),
    ("ends without a checkpoint", "print('done')", "left no checkpoint in out/\n| done"),
    (
        "writes broken progress",
        SAVE + "(out / 'progress.jsonl').write_text('{\"ready\": true}\\nloss 0.3\\n')\n",
        "out/progress.jsonl line 2 is not a report: 'loss 0.3'",
    ),
    (
        "is not done in its time",
        SAVE + "(out / 'm').unlink()\n" + READY + HANGS,
        "was stopped at the end of its 1 s budget",
    ),
    (
        "fails while it stops",
        SAVE + "import signal, sys\nsignal.signal(15, lambda *_: sys.exit(4))\n" + READY + HANGS,
        "failed while stopping: exited with status 4",
    ),
]


@pytest.mark.parametrize(("what", "program", "reason", "level"), crossed(BAD))
def test_a_bad_program_is_one_crash_with_a_reason(
    tmp_path: Path, what: str, program: str, reason: str, level: Level
) -> None:
    run = train(tmp_path, program, level=level, budget=1 if HANGS in program else 60)
    assert run.status == "crash", what
    assert run.error is not None and run.error.startswith(reason), (what, run.error)


def test_the_budget_begins_when_the_program_says_that_it_is_ready(tmp_path: Path) -> None:
    run = train(tmp_path, SAVE + READY + HANGS, budget=0.6, startup=600)
    assert run.status == "finished"
    assert 0.6 <= run.seconds < run.wall_seconds < 600


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("./train.sh {out}", "cannot execute './train.sh': Permission denied"),
        ("nosuchprogram", "no program 'nosuchprogram' in "),
    ],
)
def test_a_command_that_cannot_be_executed_is_a_crash_in_training_and_under_judgement(
    tmp_path: Path, command: str, reason: str
) -> None:
    folder = quadratic(tmp_path / "env")
    (folder / "train.sh").write_text("echo hello\n")
    environment = environments.load(folder, {"train_cmd": command})
    place = TrialDir(tmp_path / "trial")
    run = run_program("test/none", environment, SANDBOX, folder, place, Proposal({"x": 1.0}), seed=7)
    assert run.status == "crash" and run.error is not None and run.error.startswith(reason)

    good = environments.load(folder, {"command.eval_cmd": command + " {result}"})
    run = run_program("test/none", good, SANDBOX, folder, place, Proposal({"x": 1.0}), seed=7)
    score = judge_run("test/none", good, SANDBOX, place, run, seed=8)
    assert score.value is None and score.error is not None and score.error.startswith(reason)


@pytest.mark.parametrize("level", WORKING)
def test_all_processes_of_a_program_die_with_its_engine(tmp_path: Path, level: Level) -> None:
    """The engine is killed with -9; one child has detached itself and thrown its marker away."""
    code = (
        "import subprocess, time\n"
        f"subprocess.Popen({SLEEP.split()}, start_new_session=True, env={{}})\n"
        f"subprocess.Popen({SLEEP.split()})\n"
        f"{NAP}\n"
    )
    engine = (
        "import sys; sys.path.insert(0, '.')\n"
        "from pathlib import Path\n"
        "from environments.limits import Limits\n"
        "from tasks.sandbox.confinement import VisiblePaths\n"
        "from tasks.sandbox.program import Program\n"
        f"d = Path({str(tmp_path)!r})\n"
        f"with Program(['python', '-c', {code!r}], cwd=d, log=d / 'log.txt', marker='campaign-x/0001',\n"
        f"        level={level!r}, view=VisiblePaths((d,), ()), limits=Limits()) as program:\n"
        "    print('started', flush=True)\n"
        "    while program.poll(0.05) is None: pass\n"
    )
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", engine], stdout=subprocess.PIPE, cwd=root) as process:
        assert process.stdout is not None and process.stdout.readline() == b"started\n"
        wait_for(lambda: len(alive(SLEEP)) == 2)
        process.kill()
    wait_for(lambda: not alive(SLEEP) and not orphans.marked("campaign-x"))


def test_what_carries_the_marker_of_a_campaign_is_ended_and_no_other() -> None:
    marked, foreign = ({**os.environ, orphans.MARKER: name} for name in ("campaign-y/0001", "campaign-yz/0001"))
    with subprocess.Popen(["sleep", "300"], env=foreign) as other, subprocess.Popen(["sleep", "300"], env=marked):
        assert orphans.end("campaign-y") == ["sleep 300"]
        assert psutil.pid_exists(other.pid) and orphans.marked("campaign-y") == []
        other.kill()


@pytest.mark.parametrize("level", WORKING)
def test_a_killed_keeper_is_noticed_and_nothing_of_its_program_is_left(tmp_path: Path, level: Level) -> None:
    """One child has thrown its marker away: where there are control groups, or namespaces, it goes too."""
    bare = ", env={}" if cgroup.find() or level == "bwrap" else ""
    code = f"import subprocess, time\nsubprocess.Popen({SLEEP.split()}, start_new_session=True{bare})\n{NAP}"
    with started(tmp_path, code, level, "test/kept") as program:
        wait_for(lambda: alive(SLEEP))
        os.kill(program.process.pid, signal.SIGKILL)
        with pytest.raises(Stopped, match="killed"):
            wait_for(lambda: program.poll(0.05) is not None)
        wait_for(lambda: not alive(SLEEP) and not alive(NAP))


CHAIN = f"""
import os, time
end = time.monotonic() + 20
if os.fork() == 0:
    while os.fork() == 0 and time.monotonic() < end:
        pass
    os._exit(0)
{NAP}
"""
"""A chain in which each process leaves as soon as it has a child: it is gone before one can look at it."""


@pytest.mark.parametrize("level", WORKING)
def test_a_chain_that_forks_faster_than_one_can_look_is_ended(tmp_path: Path, level: Level) -> None:
    with started(tmp_path, CHAIN, level, "test/chain"):
        wait_for(lambda: alive(NAP))
    assert not alive(NAP) and not orphans.marked("test/chain")


@pytest.mark.skipif("landlock" not in WORKING, reason="this kernel has no Landlock")
def test_a_program_that_cannot_be_confined_is_not_run(tmp_path: Path) -> None:
    view = VisiblePaths((tmp_path / "gone",), (tmp_path,))
    with pytest.raises(CannotStart, match=r"No such file or directory.*gone"):
        Program(
            ["touch", str(tmp_path / "ran")], cwd=tmp_path, log=tmp_path / "log", marker="test/gone", level="landlock",
            view=view, limits=Limits(),
        )  # fmt: skip
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("level", WORKING)
def test_what_a_program_leaves_running_is_killed_and_costs_nothing(tmp_path: Path, level: Level) -> None:
    leave = f"import subprocess\nsubprocess.Popen({SLEEP.split()}, start_new_session=True)"
    run = train(tmp_path, SAVE + leave, level=level)
    assert not alive(SLEEP)
    assert run.status == "finished", run.error

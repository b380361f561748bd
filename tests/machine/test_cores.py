"""Cores: a run has exactly those of its slot, two runs never share one, and a slot of several is taken whole."""

from __future__ import annotations

import json
import os
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

import environments
from environments import Environment
from environments.limits import Limits
from environments.plugins import Refused
from tasks.evaluate import judge_run
from tasks.machine.slots import Slots, slots_of
from tasks.sandbox.capped_log import SAID
from tasks.sandbox.confinement import Level, VisiblePaths
from tasks.sandbox.isolation import Isolation
from tasks.sandbox.program import Program
from tasks.store.workspace import TrialDir
from tasks.system.slot import Slot
from tasks.train import run_program
from tasks.trial import Proposal
from tests.support.levels import STRONGEST_AND_NONE, WORKING
from tests.support.toy import FIT, JUDGE, QUADRATIC, quadratic

USABLE = sorted(os.sched_getaffinity(0))
several = pytest.mark.skipif(len(USABLE) < 2, reason="this machine has one core")

TELL = """
import json, os, subprocess, sys, threading
def now(): return sorted(os.sched_getaffinity(0))
told = {"begun": now()}
try:
    os.sched_setaffinity(0, range(os.cpu_count()))
except OSError as refused:
    told["refused"] = str(refused)
told["widened"] = now()
threads = []
thread = threading.Thread(target=lambda: threads.append(now()))
thread.start()
thread.join()
told["thread"] = threads[0]
child = "import os; os.sched_setaffinity(0, range(os.cpu_count())); print(sorted(os.sched_getaffinity(0)))"
told["child"] = json.loads(subprocess.run([sys.executable, "-I", "-c", child], capture_output=True, text=True).stdout)
print(json.dumps(told))
"""

RECORD = "import json, os; told = sorted(os.sched_getaffinity(0))\n"
RECORDING_FIT = f"{RECORD}{FIT}(args.out / 'cores.json').write_text(json.dumps(told))\n"
RECORDING_JUDGE = f"{RECORD}{JUDGE}pathlib.Path(sys.argv[2]).with_name('cores.json').write_text(json.dumps(told))\n"


class Waited(Exception):
    """The slot was not free."""


def give_up(words: str) -> None:
    raise Waited(words)


@pytest.fixture(autouse=True)
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of its own, for the processes of a test too."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))


def slots(tmp_path: Path, cores: int = 1, count: int | None = None) -> Slots:
    return Slots.of_cores(tmp_path, cores, None if count is None else range(count))


def told_in(place: Path, level: Level, slot: Slot) -> dict[str, list[int]]:
    """What a program in a slot tells of its cores, before and after it has asked for all of the machine."""
    place.mkdir()
    (place / "code.py").write_text(TELL)
    with Program(
        ["python", "-I", "code.py"], cwd=place, log=place.with_suffix(".log"), marker="cores/1", level=level,
        view=VisiblePaths((place,), ()), limits=Limits(), slot=slot,
    ) as program:  # fmt: skip
        while program.poll(0.02) is None:
            pass
        told: dict[str, list[int]] = json.loads(program.tail().splitlines()[-1].removeprefix(SAID))
        return told


def made(folder: Path, cores: int) -> Environment:
    toml = f"cores = {cores}\n{QUADRATIC}"
    return environments.load(quadratic(folder, RECORDING_FIT, RECORDING_JUDGE, toml))


@several
@pytest.mark.parametrize("level", STRONGEST_AND_NONE)
def test_two_programs_side_by_side_never_share_a_core(tmp_path: Path, level: Level) -> None:
    one, told = slots(tmp_path), dict[str, dict[str, list[int]]]()

    def run(name: str, slot: Slot) -> None:
        told[name] = told_in(tmp_path / name, level, slot)

    with one.hold(give_up) as first, one.hold(give_up) as second:
        threads = [threading.Thread(target=run, args=pair) for pair in (("a", first), ("b", second))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not {*first.cores} & {*second.cores}
        assert (told["a"]["begun"], told["b"]["begun"]) == ([*first.cores], [*second.cores])
    for each in told.values():
        assert len(each["begun"]) == 1 and each["thread"] == each["widened"]
        if level != "none":
            assert "refused" not in each, "a library that pins its threads must not fail for it"
            assert each["widened"] == each["child"] == each["begun"], "it has got further cores"


@several
def test_training_and_its_judge_run_on_the_cores_of_the_slot_and_nothing_else_stays_there(tmp_path: Path) -> None:
    environment, place = made(tmp_path / "env", 1), TrialDir(tmp_path / "trial")
    place.path.mkdir()
    sandbox = Isolation(WORKING[0])
    with slots(tmp_path).hold(give_up) as first, slots(tmp_path).hold(give_up) as slot:
        assert first.cores != slot.cores
        run = run_program(
            "cores/2", environment, sandbox, environment.folder, place, Proposal({"x": 1.0}), seed=7, slot=slot
        )
        score = judge_run("cores/2", environment, sandbox, place, run, seed=8, slot=slot)
    assert (score.value, score.error) == (0, None)
    for file in (place.out, place.judged):
        assert json.loads((file / "cores.json").read_text()) == [*slot.cores]
    assert sorted(os.sched_getaffinity(0)) == USABLE


def test_a_slot_of_two_cores_is_taken_whole_or_not_at_all(tmp_path: Path) -> None:
    one, pair = slots(tmp_path, count=2), slots(tmp_path, 2, count=2)
    with ExitStack() as first, one.hold(give_up) as second:
        first.enter_context(one.hold(give_up))
        with pytest.raises(Waited, match=f"process {os.getpid()}"), pair.hold(give_up):
            pass
        first.close()
        with pytest.raises(Waited), pair.hold(give_up):
            pass
        with one.hold(give_up) as again:
            assert again.name != second.name, "who waited for both has given the free one back"
    with pair.hold(give_up), pytest.raises(Waited), one.hold(give_up):
        pass


def test_who_wants_two_cores_and_who_wants_one_do_not_block_each_other_for_ever(tmp_path: Path) -> None:
    done: list[int] = []

    def take(cores: int) -> None:
        for _ in range(3):
            with slots(tmp_path, cores, count=3).hold():
                done.append(cores)

    threads = [threading.Thread(target=take, args=(cores,), daemon=True) for cores in (1, 2, 1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(done) == [1] * 6 + [2] * 6


def test_more_cores_than_there_are_is_refused_with_the_remedy(tmp_path: Path) -> None:
    most = len(USABLE)
    with pytest.raises(Refused, match=rf"cores = {most + 1}.*has {most} usable.*--set cores={most}"):
        slots_of(made(tmp_path / "env", most + 1), tmp_path)
    assert len(slots_of(made(tmp_path / "env", most), tmp_path).parts) == 1

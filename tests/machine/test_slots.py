"""Slots: one training at a time in each, whoever holds it or dies, and no process of anybody else's is ended; their GPUs
and cores, which two runs never share."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

import psutil
import pynvml
import pytest

import environments
from environments import Environment
from environments.plugins import Refused
from tasks.evaluate import judge_run
from tasks.machine.gpus import Gpu
from tasks.machine.slots import VISIBLE, Slots, locks_folder, slots_of
from tasks.sandbox.confinement import Level, VisiblePaths
from tasks.sandbox.isolation import Isolation
from tasks.spending import slot_use
from tasks.store.workspace import TrialDir
from tasks.system import orphans
from tasks.train import run_program
from tasks.trial import Proposal
from tests.support.levels import STRONGEST_AND_NONE, WORKING
from tests.support.nvml import nvml
from tests.support.sandboxed import answers
from tests.support.toy import FIT, GREEDY, JUDGE, QUADRATIC, quadratic, start

CHECKOUT = Path(__file__).resolve().parents[2]
CARTPOLE = environments.load(environments.find("cartpole"))
FOUR = [Gpu(index, f"GPU-{letter * 4}", "NVIDIA H200") for index, letter in enumerate("abcd")]
NOBODY = 65534
USABLE = sorted(os.sched_getaffinity(0))
CORES = len(USABLE)
several = pytest.mark.skipif(CORES < 2, reason="this machine has one core")

HOLD = """
import sys
from pathlib import Path
from tasks.machine.slots import Slots
with Slots.of_cores(usable=[0]).hold() as slot:
    {before}
    print("held", flush=True)
    sys.stdin.read()
"""
TRAIN = """import psutil
    from environments.limits import Limits
    from tasks.sandbox.program import Program
    from tasks.sandbox.confinement import VisiblePaths
    there = Path(sys.argv[1]) / "trial"
    there.mkdir()
    view = VisiblePaths((there,), ())
    program = Program(["sh", "-c", "setsid sleep 600; :"], cwd=there, log=there / "log", marker="slots/1", level="none",
                      view=view, limits=Limits(), slot=slot)
    keeper = psutil.Process(program.process.pid)
    while "sleep" not in [process.name() for process in keeper.children(recursive=True)]:
        pass
    print(keeper.pid, *(process.pid for process in keeper.children(recursive=True)), flush=True)"""


class Waited(Exception):
    """The slot was not free."""


@pytest.fixture(autouse=True)
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of its own, for the processes of a test too."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))


@pytest.fixture
def one(tmp_path: Path) -> Slots:
    """A machine with a single slot."""
    return Slots.of_cores(usable=[0])


@contextmanager
def another(home: Path, before: str = "pass") -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the slot until its input ends, and says so."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD.format(before=before), str(home)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=CHECKOUT,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def give_up(words: str) -> None:
    raise Waited(words)


def runs(pid: int) -> bool:
    """Whether a process lives; one that has given its memory back does not."""
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and bool(process.environ())
    except psutil.NoSuchProcess:
        return False


# One at a time


def test_a_slot_is_held_by_one_process_and_who_waits_is_told_by_which(tmp_path: Path, one: Slots) -> None:
    said: list[str] = []
    with another(tmp_path) as other:
        assert line(other) == "held"

        def let_go(words: str) -> None:
            said.append(words)
            assert other.stdin is not None
            other.stdin.close()

        with one.hold(let_go) as slot:
            assert slot.name == "cpu-0"
    assert len(said) == 1 and said[0].startswith(f"cpu-0 is held by process {other.pid} (python")


# What is left of an earlier life


@pytest.mark.parametrize("before", [signal.SIGCONT, signal.SIGSTOP, signal.SIGKILL])
def test_what_a_killed_engine_left_is_gone_before_the_slot_is_used_again(
    tmp_path: Path, one: Slots, before: signal.Signals
) -> None:
    """Its supervisor ends it, unless that was stopped, as a program without a sandbox can, or was killed as well."""
    with another(tmp_path, TRAIN) as dead:
        keeper, *programs = map(int, line(dead).split())
        assert line(dead) == "held"
        os.kill(keeper, before)
        dead.kill()
        dead.wait()
    assert before == signal.SIGCONT or any(map(runs, programs))
    with one.hold():
        assert not any(map(runs, (keeper, *programs)))


def test_nothing_of_a_living_engine_is_ended(one: Slots) -> None:
    with subprocess.Popen(["sleep", "600"], env={orphans.ENGINE: orphans.this_engine()}) as ours:
        for _ in range(2):
            with one.hold(give_up):
                pass
            (locks_folder() / f"{one.parts[0].locks[0]}.holder").write_text(orphans.this_engine())
        assert runs(ours.pid)
        ours.kill()


# GPUs


@pytest.fixture
def quiet_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four GPUs that nobody computes on."""
    nvml(monkeypatch, [gpu.uuid for gpu in FOUR])
    monkeypatch.delenv(VISIBLE, raising=False)


@pytest.mark.usefixtures("quiet_driver")
@pytest.mark.parametrize("level", WORKING)
def test_a_program_sees_the_gpus_of_its_slot_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: Level
) -> None:
    monkeypatch.setenv(VISIBLE, "0,1,3,2")
    shown = f"import json, os\nprint(json.dumps(os.environ.get({VISIBLE!r})))"
    gpu = VisiblePaths((), (), gpu=True)
    pairs = slots_of(on("cuda", gpus=2))
    with pairs.hold(give_up) as first, pairs.hold(give_up) as second:
        assert (first.name, second.name) == ("gpu-0-1", "gpu-3-2")
        assert answers(tmp_path / "one", level, shown, gpu, first) == "0,1"
        assert answers(tmp_path / "two", level, shown, gpu, second) == "3,2"
        assert answers(tmp_path / "cpu", level, shown, slot=first) == ""
    assert answers(tmp_path / "none", level, shown, gpu) == "0,1,3,2"


def test_a_gpu_that_another_process_uses_is_waited_for_while_no_other_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    slots = Slots.of_gpus(FOUR[:2])
    with subprocess.Popen(["/bin/sleep", "600"]) as process:

        def end(words: str) -> None:
            said.append(words)
            assert runs(process.pid)
            process.kill()
            process.wait()

        nvml(
            monkeypatch, ["GPU-aaaa", "GPU-bbbb"], lambda uuid: [process.pid] * (uuid[-1] == "a" and runs(process.pid))
        )
        with slots.hold(give_up) as other:
            assert other.name == "gpu-1"
            with slots.hold(end) as slot:
                assert slot.name == "gpu-0"
    (words,) = said
    assert f"gpu-0 is used by process {process.pid} (sleep)" in words and "gpu-1 is held by" in words


def on(device: str, gpus: int = 1, **more: object) -> Environment:
    return CARTPOLE.model_copy(update={"device": device, "gpus": gpus, **more})


@pytest.mark.parametrize(
    ("environment", "stated", "names"),
    [
        (on("cuda"), None, ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]),
        (on("auto"), "2,GPU-bb", ["gpu-2", "gpu-1"]),
        (on("auto"), "MIG-7", ["gpu-0"]),
        (on("auto", cores=CORES), "", [f"cpu-{'-'.join(map(str, USABLE))}"]),
        (on("cuda", gpus=2), None, ["gpu-0-1", "gpu-2-3"]),
        (on("cuda", gpus=2), "1,2,3", ["gpu-1-2"]),
        (on("cpu", cores=0), None, [f"shared-{number}" for number in range(64)]),
    ],
)
@pytest.mark.usefixtures("quiet_driver")
def test_the_environment_and_what_is_visible_say_which_slots_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: Environment, stated: str | None, names: list[str]
) -> None:
    if stated is not None:
        monkeypatch.setenv(VISIBLE, stated)
    assert [part.name for part in slots_of(environment).parts] == names


def test_a_driver_that_fails_and_too_few_gpus_or_cores_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml(monkeypatch, fault=pynvml.NVMLError_DriverNotLoaded)
    with pytest.raises(Refused, match=r"device = 'cuda'.*Driver Not Loaded"):
        slots_of(on("cuda"))
    assert not any(part.gpus for part in slots_of(on("auto")).parts)
    nvml(monkeypatch, [gpu.uuid for gpu in FOUR])
    monkeypatch.setenv(VISIBLE, "3")
    with pytest.raises(Refused, match=r"cartpole needs 2 GPUs in a slot, .*CUDA_VISIBLE_DEVICES is '3'"):
        slots_of(on("auto", gpus=2))
    with pytest.raises(Refused, match=rf"cores = {CORES + 1}.*has {CORES} usable.*--set cores={CORES}"):
        slots_of(on("cpu", cores=CORES + 1))


# Cores

TELL = """
import json, os, subprocess, sys
def now(): return sorted(os.sched_getaffinity(0))
told = {"begun": now()}
try:
    os.sched_setaffinity(0, range(os.cpu_count()))
except OSError as refused:
    told["refused"] = str(refused)
told["widened"] = now()
child = "import os; os.sched_setaffinity(0, range(os.cpu_count())); print(sorted(os.sched_getaffinity(0)))"
told["child"] = json.loads(subprocess.run([sys.executable, "-I", "-c", child], capture_output=True, text=True).stdout)
print(json.dumps(told))
"""

RECORD = "import json, os; told = sorted(os.sched_getaffinity(0))\n"
RECORDING_FIT = f"{RECORD}{FIT}(args.out / 'cores.json').write_text(json.dumps(told))\n"
RECORDING_JUDGE = f"{RECORD}{JUDGE}pathlib.Path(sys.argv[2]).with_name('cores.json').write_text(json.dumps(told))\n"


@several
@pytest.mark.parametrize("level", STRONGEST_AND_NONE)
def test_two_programs_side_by_side_never_share_a_core(tmp_path: Path, level: Level) -> None:
    slots = Slots.of_cores()
    with slots.hold(give_up) as first, slots.hold(give_up) as second:
        assert not {*first.cores} & {*second.cores}
        for name, slot in (("a", first), ("b", second)):
            told = answers(tmp_path / name, level, TELL, slot=slot)
            assert told["begun"] == [*slot.cores] and len(slot.cores) == 1
            if level != "none":
                assert "refused" not in told, "a library that pins its threads must not fail for it"
                assert told["widened"] == told["child"] == told["begun"], "it has got further cores"


@several
def test_training_and_its_judge_run_on_the_cores_of_the_slot_and_nothing_else_stays_there(tmp_path: Path) -> None:
    folder = quadratic(tmp_path / "env", RECORDING_FIT, RECORDING_JUDGE, f"cores = 1\n{QUADRATIC}")
    environment, place = environments.load(folder), TrialDir(tmp_path / "trial")
    sandbox = Isolation(WORKING[0])
    slots = Slots.of_cores()
    with slots.hold(give_up) as first, slots.hold(give_up) as slot:
        assert first.cores != slot.cores
        trained = run_program(
            "cores/2", environment, sandbox, environment.folder, place, Proposal({"x": 1.0}), seed=7, slot=slot
        )
        score = judge_run("cores/2", environment, sandbox, place, trained, seed=8, slot=slot)
    assert (score.value, score.error) == (0, None)
    for file in (place.out, place.judged):
        assert json.loads((file / "cores.json").read_text()) == [*slot.cores]
    assert sorted(os.sched_getaffinity(0)) == USABLE


def test_a_slot_of_two_cores_is_taken_whole_or_not_at_all(tmp_path: Path) -> None:
    one, pair = (Slots.of_cores(cores, range(2)) for cores in (1, 2))
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


def test_the_time_of_slots_is_what_programs_ran_and_the_rest() -> None:
    ran = [{"event": "slot free", "train": 14, "start": 2, "judge": 3}, {"event": "slot free", "train": 14}]
    assert slot_use(ran, 66) == {"training": 0.4242, "start-up": 0.0303, "judging": 0.0455, "other": 0.5}
    assert slot_use([{"event": "slot"}], 20) == {}


def test_who_waits_comes_before_who_gives_the_slot_back_and_wants_it_again(one: Slots) -> None:
    order: list[str] = []
    waits = threading.Event()

    def other() -> None:
        with one.hold(lambda _: waits.set()):
            order.append("other")

    thread = threading.Thread(target=other)
    with one.hold():
        thread.start()
        assert waits.wait(30)
    with one.hold():
        order.append("again")
    thread.join()
    assert order == ["other", "again"]


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
def test_every_user_of_the_machine_shares_the_slots(one: Slots) -> None:
    def as_nobody() -> int:
        """0 if another user can hold the slot now."""
        child = os.fork()
        if not child:
            try:
                os.setuid(NOBODY)
                with one.hold(give_up):
                    os._exit(0)
            finally:
                os._exit(1)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    for folder in locks_folder().parents[:-2]:
        folder.chmod(0o755)
    with one.hold(give_up):
        assert as_nobody() == 1
    assert as_nobody() == 0
    with one.hold(give_up):
        pass


NOTES = f"""
import time
began = time.monotonic()
time.sleep(0.05)
{FIT}
(args.out / "interval.json").write_text(json.dumps([began, time.monotonic()]))
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_campaigns_that_share_one_slot_never_train_at_the_same_time(
    tmp_path: Path, home: Path, lone_server: str
) -> None:
    environment = quadratic(tmp_path / "quadratic", fit=NOTES, toml=f'device = "cpu"\ncores = {CORES}\n{QUADRATIC}')
    ends = ["--proposer", "random_search", "--trials", "24", *GREEDY, "--tracking", "off"]
    both = [start("run", str(environment), "--name", name, *ends, server=lone_server) for name in ("a", "b")]
    try:
        said = [process.communicate(timeout=800)[0] for process in both]
    finally:
        for process in both:
            process.kill()
    assert [process.returncode for process in both] == [0, 0], said
    paths = home.glob("*/trials/*/out/interval.json")
    trials = sorted((json.loads(path.read_text()), path.parts[-5]) for path in paths)
    assert len(trials) == 50
    assert all(end <= begin for ((_, end), _), ((begin, _), _) in pairwise(trials))
    assert sum(one != other for (_, one), (_, other) in pairwise(trials)) > 10, "they take turns"

"""Slots: one training at a time in each, whoever holds it or dies, and no process of anybody else's is ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

import environments
from blocks.machine import Machine
from environments import Environment
from environments.limits import Limits
from environments.plugins import Refused
from environments.remote import HttpEndpoint
from flows.cli.doctor.gpus import slots as doctors_slots
from tasks.machine.gpus import Gpu, visible
from tasks.machine.slot_layout import Layout, here, saved_layout
from tasks.machine.slots import Slots, holder, several_are_held
from tasks.sandbox.capped_log import SAID
from tasks.sandbox.confinement import Level, VisiblePaths
from tasks.sandbox.isolation import findings
from tasks.sandbox.program import Program
from tasks.system import interrupt, orphans
from tasks.system.slot import NOWHERE, VISIBLE, Slot
from tests.support.fake_nvidia_smi import nvidia_smi, told
from tests.support.toy import FIT, GREEDY, nightshift, quadratic, start

CHECKOUT = Path(__file__).resolve().parents[2]
WORKING: list[Level] = [finding.level for finding in findings() if finding.works]
CARTPOLE = environments.load(environments.find("cartpole"))
FOUR = [Gpu(index, f"GPU-{letter * 4}", "NVIDIA H200", None, None) for index, letter in enumerate("abcd")]
LIST = "\n".join(f"{gpu.index}, {gpu.uuid}, 143771, 0, {gpu.name}" for gpu in FOUR)
NOBODY = 65534

HOLD = """
import sys
from pathlib import Path
from tasks.machine.slots import Slots
with Slots(Path(sys.argv[1]), cpu_slots=1, folder=Path(sys.argv[2])).hold() as slot:
    {before}
    print("held", flush=True)
    sys.stdin.read()
"""
TRAIN = """import psutil
    from environments.limits import Limits
    from tasks.sandbox.program import Program
    from tasks.sandbox.confinement import VisiblePaths
    there = Path(sys.argv[2]).parent / "trial"
    there.mkdir()
    view = VisiblePaths((there,), ())
    program = Program(["sh", "-c", "setsid sleep 600"], cwd=there, log=there / "log", marker="slots/1", level="none",
                      view=view, limits=Limits(), slot=slot)
    keeper = psutil.Process(program.process.pid)
    while "sleep" not in [process.name() for process in keeper.children(recursive=True)]:
        pass
    print(keeper.pid, *(process.pid for process in keeper.children(recursive=True)), flush=True)"""


class Waited(Exception):
    """The slot was not free."""


@pytest.fixture
def one(tmp_path: Path) -> Slots:
    """A machine with a single slot."""
    return Slots(tmp_path, cpu_slots=1, folder=tmp_path / "slots")


@contextmanager
def another(slots: Slots, before: str = "pass") -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the slot until its input ends, and says so."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD.format(before=before), str(slots.home), str(slots.folder)],
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
    """Whether a process lives; one that nobody has collected does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def run(place: Path, level: Level, code: str, slot: Slot, gpu: bool = False) -> str:
    """The last line that a program prints in a slot."""
    place.mkdir()
    (place / "code.py").write_text(code)
    view = VisiblePaths((place,), (), gpu=gpu)
    with Program(
        ["python", "-I", "code.py"], cwd=place, log=place.with_suffix(".log"), marker="slots/1", level=level,
        view=view, limits=Limits(), slot=slot,
    ) as program:  # fmt: skip
        while program.poll(0.02) is None:
            pass
        return program.tail().splitlines()[-1].removeprefix(SAID)


# One at a time


def test_a_slot_is_held_by_one_process_and_who_waits_is_told_by_which(one: Slots) -> None:
    said: list[str] = []
    with another(one) as other:
        assert line(other) == "held"

        def let_go(words: str) -> None:
            said.append(words)
            assert other.stdin is not None
            other.stdin.close()

        with one.hold(let_go) as slot:
            assert slot.name == "cpu-0"
    assert said == [f"cpu-0 is held by process {other.pid} ({Path(sys.executable).name} -c ...)"]


def test_a_slot_is_held_by_one_thread_and_there_are_as_many_as_were_asked_for(tmp_path: Path) -> None:
    two = Slots(tmp_path, cpu_slots=2, folder=tmp_path / "slots")
    assert not several_are_held()
    with two.hold(give_up) as first, two.hold(give_up) as second:
        assert several_are_held()
        assert (first.name, second.name) == ("cpu-0", "cpu-1")
        with pytest.raises(Waited, match=r"cpu-0 .*cpu-1"), two.hold(give_up):
            pass
    with two.hold(give_up) as again:
        assert again.name == "cpu-0"


def test_cpu_slots_are_those_of_a_home(tmp_path: Path, one: Slots) -> None:
    with one.hold(), Slots(tmp_path / "elsewhere", cpu_slots=1, folder=one.folder).hold(give_up) as slot:
        assert slot.name == "cpu-0"


def test_without_a_number_there_is_a_slot_for_every_core_that_can_be_used(tmp_path: Path) -> None:
    assert len(Slots(tmp_path).parts) == len(os.sched_getaffinity(0))


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


def test_who_waits_can_be_asked_to_end(one: Slots) -> None:
    with one.hold(), interrupt.asked(), pytest.raises(KeyboardInterrupt), one.hold():
        pass


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

    for folder in one.folder.parents:
        if folder.is_relative_to(tempfile.gettempdir()) and folder != Path(tempfile.gettempdir()):
            folder.chmod(0o755)
    with one.hold(give_up):
        assert as_nobody() == 1
    assert as_nobody() == 0
    with one.hold(give_up):
        pass


def test_a_link_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(Refused, match="folder"), Slots(tmp_path, folder=tmp_path / "link").hold():
        pass


# What is left of an earlier life


@pytest.mark.parametrize("before", [signal.SIGCONT, signal.SIGSTOP, signal.SIGKILL])
def test_what_a_killed_engine_left_is_gone_before_the_slot_is_used_again(one: Slots, before: signal.Signals) -> None:
    """Its supervisor ends it, unless that was stopped, as a program without a sandbox can, or was killed as well."""
    with another(one, TRAIN) as dead:
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
            (one.folder / f"{one.parts[0].locks[0]}.holder").write_text(orphans.this_engine())
        assert runs(ours.pid)
        ours.kill()


def test_a_note_that_says_nonsense_is_no_holder(one: Slots) -> None:
    one.folder.mkdir()
    for text in ("", "no engine", "0", f"{os.getpid()} another boot"):
        (one.folder / "cpu.holder").write_text(text)
        assert holder("cpu", one.folder) == ""
    (one.folder / f"{one.parts[0].locks[0]}.holder").write_text("no engine")
    with one.hold(give_up):
        pass


def test_the_doctor_tells_who_holds_a_slot_and_what_is_left_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    one = Slots(tmp_path, cpu_slots=1)
    assert doctors_slots(tmp_path).fact == "none is held"
    with one.hold():
        check = doctors_slots(tmp_path)
        assert (check.state, check.fact) == ("ok", f"cpu-0 is held by process {os.getpid()} (this one)")
    assert doctors_slots(tmp_path).fact == "none is held"
    (one.folder / f"{one.parts[0].locks[0]}.holder").write_text("7 a dead engine")
    with subprocess.Popen(["/bin/sleep", "600"], env={orphans.ENGINE: "7 a dead engine"}) as left:
        check = doctors_slots(tmp_path)
        left.kill()
    assert check.state == "note" and f"cpu-0 is free, but still used by process {left.pid} (sleep)" in check.fact


# What programs do in one


@pytest.mark.parametrize("level", WORKING)
def test_a_program_sees_the_gpus_of_its_slot_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: Level
) -> None:
    monkeypatch.setenv("PATH", nvidia_smi(tmp_path / "bin", told(LIST)))
    monkeypatch.setenv(VISIBLE, "0,1,2,3")
    shown = f"import os\nprint(repr(os.environ.get({VISIBLE!r})))"
    found = here(tmp_path, on("cuda"), Layout(((0, 1), (3, 2))))
    pairs = Slots(tmp_path, found.groups, folder=tmp_path / "slots")
    with pairs.hold(give_up) as first, pairs.hold(give_up) as second:
        assert (first.name, second.name) == ("gpu-0-1", "gpu-3-2")
        assert run(tmp_path / "one", level, shown, first, gpu=True) == "'GPU-aaaa,GPU-bbbb'"
        assert run(tmp_path / "two", level, shown, second, gpu=True) == "'GPU-dddd,GPU-cccc'"
        assert run(tmp_path / "cpu", level, shown, first) == "''"
    assert run(tmp_path / "none", level, shown, NOWHERE, gpu=True) == "'0,1,2,3'"


def test_programs_of_several_threads_do_not_end_one_another(tmp_path: Path) -> None:
    def briefly() -> None:
        run(tmp_path / "brief", "none", "print(1)", NOWHERE)

    (tmp_path / "long").mkdir()
    with Program(
        ["sleep", "600"], cwd=tmp_path / "long", log=tmp_path / "long.log", marker="slots/2", level="none",
        view=VisiblePaths((), ()), limits=Limits(),
    ) as program:  # fmt: skip
        thread = threading.Thread(target=briefly)
        thread.start()
        thread.join()
        assert program.poll(0.2) is None


# GPUs


@pytest.fixture
def quiet_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four GPUs that nobody computes on."""
    monkeypatch.setenv("PATH", nvidia_smi(tmp_path / "bin", told(LIST)))
    monkeypatch.delenv(VISIBLE, raising=False)


@pytest.mark.usefixtures("quiet_driver")
def test_a_group_of_gpus_is_taken_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "slots"
    first, second, pair = (Slots(tmp_path, (group,), folder=folder) for group in (FOUR[:1], FOUR[1:2], FOUR[1::-1]))
    with second.hold():
        with pytest.raises(Waited, match="gpu-1-0"), pair.hold(give_up):
            pass
        with first.hold(give_up) as slot:
            assert slot.gpus == ("GPU-aaaa",)
    with pair.hold(give_up) as both:
        assert both.gpus == ("GPU-bbbb", "GPU-aaaa")
        for alone in (first, second):
            with pytest.raises(Waited), alone.hold(give_up):
                pass


def computing(pid: int) -> str:
    """A script that shows a process on the first GPU as long as it lives."""
    row = f"case $(cut -d' ' -f3 /proc/{pid}/stat 2>/dev/null) in Z|'') ;; *) echo 'GPU-aaaa, {pid}, 9, blender';; esac"
    return f"case $1 in --query-gpu=*) echo '{LIST}';; *) {row};; esac\n"


@pytest.mark.parametrize("trial", ["night-1/0007/1", ""])
def test_a_gpu_that_another_process_uses_is_waited_for_and_the_process_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trial: str
) -> None:
    slots = Slots(tmp_path, (tuple(FOUR[:1]),), folder=tmp_path / "slots")
    said: list[str] = []
    with subprocess.Popen(["/bin/sleep", "600"], env={orphans.MARKER: trial} if trial else {}) as process:
        monkeypatch.setenv("PATH", nvidia_smi(tmp_path / "bin", computing(process.pid)))

        def end(words: str) -> None:
            said.append(words)
            assert runs(process.pid)
            process.kill()
            process.wait()

        with slots.hold(end):
            pass
    (words,) = said
    assert f"gpu-0 is used by process {process.pid} (sleep)" in words
    assert f"trial {trial}" in words if trial else "none of ours" in words


def test_a_gpu_that_somebody_else_uses_is_passed_over_while_another_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", nvidia_smi(tmp_path / "bin", computing(os.getpid())))
    slots = Slots(tmp_path, ((FOUR[0],), (FOUR[1],)), folder=tmp_path / "slots")
    with slots.hold(give_up) as slot:
        assert slot.name == "gpu-1"
        with pytest.raises(Waited, match=f"gpu-0 .*{os.getpid()}.*gpu-1 is held by"), slots.hold(give_up):
            pass


def test_a_driver_that_is_silent_for_a_while_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = tmp_path / "answers"
    script = f"case $1 in --query-gpu=*) echo '{LIST}';; *) [ -e {answers} ] || exit 9;; esac"
    monkeypatch.setenv("PATH", nvidia_smi(tmp_path / "bin", script))

    def answer(words: str) -> None:
        assert "cannot be listed" in words
        answers.touch()

    with Slots(tmp_path, (tuple(FOUR[:1]),), folder=tmp_path / "slots").hold(answer) as slot:
        assert slot.name == "gpu-0"


def on(device: str, gpus: int = 1) -> Environment:
    return CARTPOLE.model_copy(update={"device": device, "gpus": gpus})


@pytest.mark.parametrize(
    ("device", "stated", "layout", "names"),
    [
        ("cuda", None, Layout(), ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]),
        ("auto", None, Layout(), ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]),
        ("auto", "2,GPU-bb", Layout(), ["gpu-2", "gpu-1"]),
        ("auto", "", Layout(cpu_slots=2), ["cpu-0", "cpu-1"]),
        ("cpu", None, Layout(cpu_slots=3), ["cpu-0", "cpu-1", "cpu-2"]),
        ("cuda", None, Layout(((0, 1), (2, 3))), ["gpu-0-1", "gpu-2-3"]),
        ("cuda", "2,3", Layout(((0, 1), (2, 3))), ["gpu-2-3"]),
    ],
)
@pytest.mark.usefixtures("quiet_driver")
def test_the_device_says_which_slots_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, stated: str | None, layout: Layout, names: list[str]
) -> None:  # fmt: skip
    if stated is not None:
        monkeypatch.setenv(VISIBLE, stated)
    assert [part.name for part in here(tmp_path, on(device), layout).parts] == names


@pytest.mark.usefixtures("quiet_driver")
def test_a_layout_that_this_machine_cannot_have_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Refused, match=r"\[\[0, 4\]\].* 0, 1, 2, 3"):
        here(tmp_path, on("auto"), Layout(((0, 4),)))
    monkeypatch.setenv(VISIBLE, "0,2")
    with pytest.raises(Refused, match="CUDA_VISIBLE_DEVICES is '0,2'"):
        here(tmp_path, on("auto"), Layout(((0, 1), (2, 3))))


@pytest.mark.usefixtures("quiet_driver")
def test_a_run_that_needs_two_gpus_gets_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = on("cuda", gpus=2)
    assert [part.name for part in here(tmp_path, pair).parts] == ["gpu-0-1", "gpu-2-3"]
    assert [part.name for part in here(tmp_path, pair, Layout(((0,), (1, 3)))).parts] == ["gpu-1-3"]
    monkeypatch.setenv(VISIBLE, "1,2,3")
    assert [part.name for part in here(tmp_path, pair).parts] == ["gpu-1-2"]
    monkeypatch.setenv(VISIBLE, "3")
    with pytest.raises(Refused, match="cartpole needs 2 GPUs in a slot"):
        here(tmp_path, pair)


@pytest.mark.usefixtures("quiet_driver")
def test_what_another_machine_trains_holds_a_gpu_here_only_where_that_answers_the_judge(tmp_path: Path) -> None:
    away = {"trainer": "http", "http": HttpEndpoint(url="http://127.0.0.1:9")}
    judged_by_a_model = environments.load(environments.find("arithmetic")).model_copy(update={**away, "device": "auto"})
    assert [part.name for part in here(tmp_path, judged_by_a_model).parts] == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]
    for other in (on("auto").model_copy(update=away), judged_by_a_model.model_copy(update={"device": "cpu"})):
        assert here(tmp_path, other).groups == () and len(here(tmp_path, other).parts) == 64


def test_a_driver_that_fails_is_refused_where_a_gpu_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", nvidia_smi(tmp_path / "bin", "echo 'no driver'; exit 9"))
    with pytest.raises(Refused, match=r"device = 'cuda'.*status 9: no driver"):
        here(tmp_path, on("cuda"))
    assert here(tmp_path, on("auto")).groups == ()


@pytest.mark.parametrize(
    ("stated", "uuids"),
    [
        (None, ["GPU-aaaa", "GPU-bbbb", "GPU-cccc", "GPU-dddd"]),
        ("3, 0", ["GPU-dddd", "GPU-aaaa"]),
        ("1,9,2", ["GPU-bbbb"]),
        ("-1", []),
        ("NoDevFiles", []),
        ("GPU-c", ["GPU-cccc"]),
        ("MIG-7,0", ["MIG-7", "GPU-aaaa"]),
    ],
)
def test_the_variable_is_read_as_cuda_reads_it(stated: str | None, uuids: list[str]) -> None:
    assert [gpu.uuid for gpu in visible(FOUR, stated)] == uuids


# Two campaigns

NOTES = (
    """\
import json, os, time
began = time.clock_gettime(time.CLOCK_BOOTTIME)
time.sleep(0.05)
"""
    + FIT
    + """
(args.out / "interval.json").write_text(json.dumps([began, time.clock_gettime(time.CLOCK_BOOTTIME)]))
"""
)


@pytest.fixture
def saved(lone_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server whose Machine block says that there is one slot."""
    from prefect.settings import PREFECT_API_URL, temporary_settings

    monkeypatch.setenv("PREFECT_API_URL", lone_server)
    with temporary_settings({PREFECT_API_URL: lone_server}):
        Machine(cpu_slots=1).save("nightshift", overwrite=True)
        with monkeypatch.context() as without:  # a server that a command connects to sets no variable
            without.delenv("PREFECT_API_URL")
            assert saved_layout() == Layout(cpu_slots=1)
        yield lone_server
        Machine.delete("nightshift")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_campaigns_that_share_one_slot_never_train_at_the_same_time(tmp_path: Path, home: Path, saved: str) -> None:
    environment = quadratic(tmp_path / "quadratic", fit=NOTES)
    ends = ["--proposer", "random_search", "--trials", "24", *GREEDY, "--tracking", "off"]
    both = [start("run", str(environment), "--name", name, *ends, server=saved) for name in ("a", "b")]
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


@pytest.mark.slow
def test_more_trials_at_once_than_there_are_slots_are_refused(tmp_path: Path, saved: str) -> None:
    assert saved_layout() == Layout(cpu_slots=1)
    environment = quadratic(tmp_path / "quadratic")
    done = nightshift("run", str(environment), "--parallel", "2", "--tracking", "off", server=saved)
    assert done.returncode == 2
    assert "parallel = 2, but this machine has 1 slot for quadratic (cpu-0): lower it, or" in done.stderr

"""The slots of this machine, each for one training at a time.

A slot is a group of GPUs, or a share of the processor's cores. Each GPU and each core has a file lock, in one folder
for all campaigns and commands of the machine, which the engine holds and the kernel frees when the engine dies:

    NAME.lock      a file lock           NAME.holder    the engine that holds it

A holder's note beside a lock that is free is that of an engine that was killed. What it left is ended before the next
training begins. Processes that are not Nightshift's are never touched: a GPU that one uses is not free.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeVar

import psutil
from filelock import FileLock, Timeout

from environments import Environment
from environments.plugins import Refused
from environments.safe_open import open_file
from tasks.machine import gpus
from tasks.machine.gpus import Gpu, GpuError
from tasks.system import interrupt, orphans
from tasks.task_key import digest_of

VISIBLE = "CUDA_VISIBLE_DEVICES"
POLL_SECONDS = 0.2
OTHER_MAKES = ("kfd", "dxg")
"""Devices below /dev of AMD's and WSL's GPUs, which nvidia-smi does not list."""
SHARED_SLOTS = 64
"""Slots that have no core for themselves."""

Work = Literal["start", "train", "judge"]
"""What programs do in a slot: they start (interpreter, imports), train, or are judged, for which controls count too."""

T = TypeVar("T")


@dataclass(frozen=True)
class Slot:
    """A part of this machine that one training at a time may use."""

    name: str
    """Such as `cpu-0`, `cpu-0-1` for two cores, or `gpu-0-1` for two GPUs that are used together."""
    gpus: tuple[str, ...] = ()
    """UUIDs of its GPUs, in the order in which programs see them; empty for a CPU slot."""
    names: tuple[str, ...] = ()
    """The same as programs see them: by number, since prime-rl and vLLM fail at UUIDs; a part of a GPU by its UUID."""
    cores: tuple[int, ...] = ()
    """The processor cores that its programs are kept on; empty: those of the engine."""
    locks: tuple[str, ...] = ()
    """Names of its locks, in the order in which every process takes them."""
    use: dict[Work, float] = field(default_factory=dict, init=False, compare=False, repr=False)
    """Seconds for which programs ran in it since it was taken, by what they did."""

    def used(self, work: Work, seconds: float) -> None:
        self.use[work] = max(round(self.use.get(work, 0.0) + seconds, 3), 0.0)

    @contextmanager
    def on_its_cores(self) -> Iterator[None]:
        """Keep the calling thread, and the processes that it starts, on the slot's cores while the block runs."""
        if not self.cores:
            yield
            return
        before = os.sched_getaffinity(0)  # to the kernel, 0 is this thread and not the whole process
        os.sched_setaffinity(0, self.cores)
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)

    def variables(self, gpu: bool) -> dict[str, str]:
        """Environment variables of its programs; `gpu` says whether they may use one at all."""
        if not gpu:
            return {VISIBLE: ""}
        # The order in which the driver counts.
        return {VISIBLE: ",".join(self.names), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if self.gpus else {}


NOWHERE = Slot("none")
"""For programs that need no slot."""


def locks_folder() -> Path:
    return Path(tempfile.gettempdir()) / "nightshift-slots"


@dataclass(frozen=True)
class Slots:
    """The slots of this machine that a campaign may use."""

    parts: tuple[Slot, ...]
    queue: str
    """The lock of the first to wait for one of them."""

    @classmethod
    def of_gpus(cls, visible: Sequence[Gpu], each: int = 1) -> Slots:
        """Groups of so many GPUs; those that are left over fill no group."""
        parts = []
        for group in _groups(visible, each):
            locks = sorted("gpu-" + re.sub(r"[^\w-]", "_", gpu.uuid) for gpu in group)
            name = "-".join(str(gpu.index) for gpu in group)
            names = tuple(gpu.uuid if gpu.uuid.startswith("MIG-") else str(gpu.index) for gpu in group)
            parts.append(Slot(f"gpu-{name}", tuple(gpu.uuid for gpu in group), names, locks=tuple(locks)))
        return cls(tuple(parts), f"queue-{digest_of(' '.join(sorted(gpu.uuid for gpu in visible)))}")

    @classmethod
    def of_cores(cls, each: int = 1, usable: Sequence[int] | None = None) -> Slots:
        """Groups of so many of the usable cores (those of this process). With `each` 0 they share all cores, and are
        kept on none.
        """
        if each == 0:
            names = [f"shared-{number}" for number in range(SHARED_SLOTS)]
            return cls(tuple(Slot(name, locks=(name,)) for name in names), "queue-shared")
        cores = sorted(os.sched_getaffinity(0) if usable is None else usable)
        parts = [
            Slot(f"cpu-{'-'.join(map(str, group))}", cores=tuple(group), locks=tuple(f"cpu-{c}" for c in group))
            for group in _groups(cores, each)
        ]
        return cls(tuple(parts), "queue-cores")  # one queue for groups of all sizes

    @contextmanager
    def hold(self, waiting: Callable[[str], None] | None = None) -> Iterator[Slot]:
        """Hold one slot while the block runs; wait until one is free, and after a second tell `waiting` who uses the
        slots. The first to wait gets the next one. Raises KeyboardInterrupt when this process was asked to end.
        """
        locks_folder().mkdir(exist_ok=True)
        if locks_folder().is_symlink():
            raise Refused(f"{locks_folder()} must be a folder for the locks of slots, and is a link: remove it")
        with suppress(PermissionError):  # another user has made it; in a sticky one filelock takes no lock of others
            locks_folder().chmod(0o777)
        with ExitStack() as held:
            with ExitStack() as turn:  # else a campaign that gives back a slot would have it again at once
                slot: Slot | str = "others wait for the next slot"
                is_first, tries = False, 0
                while not isinstance(slot, Slot):
                    if is_first := is_first or _locked(self.queue, turn):
                        slot = self._first_free(held)
                    if isinstance(slot, str):
                        tries += 1
                        if waiting and tries == 5:  # whoever has one sooner, such as a run beside it, has not waited
                            waiting(slot)
                        interrupt.wait(POLL_SECONDS)
            yield slot

    def _first_free(self, held: ExitStack) -> Slot | str:
        obstacles = []
        for part in self.parts:
            with ExitStack() as locks:
                if not (obstacle := _obstacle(part, locks)):
                    held.push(locks.pop_all())
                    return replace(part)  # it counts its own use
                obstacles.append(obstacle)
        return "; ".join(obstacles)


def slots_of(environment: Environment) -> Slots:
    """The slots for an environment's programs: GPUs if its device allows and there are any, else cores. Refused if no
    slot has as many as a run needs, or device is cuda and there is no GPU.

    GPUs of other makers are not locked. What another machine trains only waits here, unless a model on a GPU of this
    machine answers the judge.
    """
    judged_on_gpus = environment.device != "cpu" and getattr(environment.judge, "backend", "openai") != "openai"
    if environment.remote and not judged_on_gpus:
        return Slots.of_cores(0)
    needs = f"a run of {environment.name} needs"
    if environment.device != "cpu":
        found, faults = gpus.find()
        stated = os.environ.get(VISIBLE)
        if seen := gpus.visible(found, stated):
            if (slots := Slots.of_gpus(seen, environment.gpus)).parts:
                return slots
            has = f"this machine has {len(found)}, and {VISIBLE} is {stated!r}"
            raise Refused(f"{needs} {environment.gpus} GPUs in a slot, and {has}: correct these")
        if environment.device == "cuda" and not any(Path("/dev", name).exists() for name in OTHER_MAKES):
            why = "; ".join(faults) or "this machine has no usable GPU"
            raise Refused(f"{environment.name} has device = 'cuda', but {why}: see `nightshift doctor`")
    usable = len(os.sched_getaffinity(0))
    if (slots := Slots.of_cores(environment.cores)).parts:
        return slots
    has = f"this machine has {usable} usable: begin with --set cores={usable}"
    raise Refused(f"{needs} {environment.cores} cores (cores = {environment.cores}), and {has}")


def _groups(items: Sequence[T], each: int) -> list[Sequence[T]]:
    return [items[at : at + each] for at in range(0, len(items) - each + 1, each)]


def _obstacle(part: Slot, held: ExitStack) -> str:
    """Take all locks of a slot, which go to `held`, or say why that is not possible."""
    if not all(_locked(name, held) for name in part.locks):
        holders = [int(engine.partition(" ")[0]) for engine in map(_noted, part.locks) if orphans.is_alive(engine)]
        return f"{part.name} is held by {describe(holders[0]) if holders else 'a process that has not said which'}"
    for engine in map(_noted, part.locks):
        if engine and not orphans.is_alive(engine):
            try:
                orphans.end(engine, orphans.ENGINE)
            except TimeoutError as hung:
                return f"{part.name} is still used by what a killed engine left: {hung}"
    try:
        pids = [pid for uuid in part.gpus for pid in gpus.processes_on(uuid)]
    except GpuError as fault:
        return f"the processes on {part.name} cannot be listed: {fault}"
    if pids:
        return f"{part.name} is used by {describe(pids[0])}: wait for its end, or hide its GPU with {VISIBLE}"
    for note in map(_note, part.locks):
        note.unlink(missing_ok=True)  # it may be another user's
        with note.open("x") as file:  # through no link that somebody lays there meanwhile
            file.write(orphans.this_engine())
        held.callback(note.unlink, missing_ok=True)
    return ""


def _locked(name: str, held: ExitStack) -> bool:
    """Take a lock, which goes to `held`; False if another thread or process holds it."""
    with suppress(Timeout):
        held.enter_context(FileLock(locks_folder() / f"{name}.lock", mode=0o666).acquire(0))
        return True
    return False


def describe(pid: int) -> str:
    """A process in words, as far as it is known. Its arguments may hold secrets."""
    name = "a program"
    with suppress(psutil.Error):  # it has just ended
        name = "this one" if pid == os.getpid() else psutil.Process(pid).name()
    return f"process {pid} ({name})"


def _note(lock: str) -> Path:
    return locks_folder() / f"{lock}.holder"


def _noted(lock: str) -> str:
    """The engine that a holder's note names, alive or dead; empty without one."""
    with suppress(OSError, UnicodeDecodeError), open_file(_note(lock)) as file:  # anybody can write there
        return file.read(200).decode()
    return ""

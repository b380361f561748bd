"""Run one untrusted program: confined, with limits, and with none of its processes left afterwards.

The engine starts a supervisor (tasks/sandbox/supervisor.py), which confines the program at one of the levels of
tasks/sandbox/confinement.py and ends all of its processes. Its resources are bounded by the kernel where possible, and
checked twice a second besides. At every level it sees only a few harmless variables of the engine's environment, cannot
outlive its trial or its engine, and cannot fill the disk.

    with Program(["python", "train.py"], cwd=workspace, log=trial / "log.txt", marker="night-1/0007", level="bwrap",
                 view=VisiblePaths((workspace,), (out,)), limits=environment.limits) as program:
        while program.poll(0.05) is None:
            ...
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from environments.judges import Misbehaved
from environments.limits import Limits
from tasks.machine.gpus import memory_in_use
from tasks.machine.slots import NOWHERE, Slot
from tasks.sandbox import cgroup, confinement, outputs, supervisor
from tasks.sandbox.confinement import Level, VisiblePaths
from tasks.sandbox.outputs import DISK_RESERVE
from tasks.system import file_trees, interrupt
from tasks.system.orphans import ENGINE, MARKER, SUPERVISOR, end, this_engine
from tasks.system.redact import capped, clean, known_secrets, scrub
from tasks.trial import ResourceSample

LOOK_SECONDS = 0.5
"""Between two checks of its resources: one costs a few milliseconds of a core that may be training."""
SUPERVISOR_SECONDS = 20.0
"""How long a supervisor may take to start or end everything; only processes that hang in the kernel need longer."""
MOST_SAMPLES = 60
GIB, MIB = 2**30, 2**20
PASSED_ON = ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ")
"""The engine's variables that a program may see. All others, keys above all, are withheld."""
SAID = "| "
"""Begins each line of a program's words where they stand among ours, so that none passes for ours."""
END_BYTES = LONGEST_LINE = 2**16
TAIL_LINES, LINE_CHARACTERS = 12, 500
"""Lines of its output in the reason of a crash, and the longest of them."""


class NotAProgram(Exception):
    """The command line names a file that is missing or not executable."""


class Stopped(Misbehaved):
    """The program exceeded a limit or attacked its supervisor, and was stopped; the message says which."""


class CannotStart(Exception):
    """The machine could not start or confine a process: an infrastructure failure, not the trial's."""


def passed_on() -> dict[str, str]:
    return {name: os.environ[name] for name in PASSED_ON if name in os.environ}


def child_environment(home: str, marker: str, python: Path) -> dict[str, str]:
    """All environment variables of a program, with its interpreter first on PATH."""
    return passed_on() | {
        "PATH": os.pathsep.join([str(python.parent), "/usr/local/bin", "/usr/bin", "/bin"]),
        **dict.fromkeys(("HOME", "TMPDIR"), home),
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
        **dict.fromkeys(("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"), "1"),
        "SPT_NOENV": "1",  # or setproctitle overwrites the environment, and the marker with it
        MARKER: marker,
        ENGINE: this_engine(),
    }


def find_program(name: str, cwd: Path, path: str, python: Path) -> str:
    """The file to start: `python` is always its interpreter, and a file in `cwd` needs no `./`. Raises NotAProgram."""
    if name in ("python", "python3"):
        return str(python)
    beside = str(cwd / name) if (cwd / name).is_file() else None  # or where an absolute name says
    found = beside if "/" in name else shutil.which(name, path=path) or beside
    if found is None:
        remedy = "name one that is there, or `python`; what a shell would read takes sh -c '...' or `env` before it"
        raise NotAProgram(f"no program {name!r} in {cwd} or on {path}: {remedy}")
    if not os.access(found, os.X_OK):
        raise NotAProgram(f"cannot execute {name!r}: Permission denied: chmod +x, or begin with sh or `python`")
    return found


class ScrubbedLog:
    """A log file of what is printed, without the engine's secrets, and the end of it."""

    def __init__(self, path: Path) -> None:
        self._file, self._secrets = path.open("wb"), known_secrets()
        self._line = self._end = b""
        self.written = 0
        """Bytes printed by the program."""

    def write(self, chunk: bytes) -> None:
        """Line by line, so that a secret in one is seen whole."""
        self.written += len(chunk)
        data = self._line + chunk
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if len(data) - end > LONGEST_LINE:
            end = len(data)
        self._line = data[end:]
        self._put(data[:end])

    def close(self) -> None:
        self._put(self._line)
        self._line = b""
        self._file.close()

    def _put(self, data: bytes) -> None:
        clear = scrub(data, self._secrets)
        self._file.write(clear)
        self._file.flush()
        self._end = (self._end + clear)[-END_BYTES:]

    def tail(self) -> list[str]:
        """The last lines, safe to print (tasks/system/redact.py)."""
        last = clean((self._end + self._line).decode(errors="replace").rstrip())[-TAIL_LINES:]
        return [capped(line, LINE_CHARACTERS) for line in last]


def allowed_memory(limits: Limits) -> int:
    """Memory that a program may use, in bytes."""
    stated = limits.memory_gb
    return psutil.virtual_memory().total * 3 // 4 if stated is None else int(stated * GIB)


def rlimits(limits: Limits, level: Level, grouped: bool, gpu: bool) -> dict[str, int]:
    """Resource limits of each process. Without a control group they bound memory and processes too: memory as address
    space, except on a GPU, where programs reserve address space without using it."""
    # The machine's handler of core dumps runs as root; 1 is the only core limit that keeps it from being started.
    bounds = {"RLIMIT_CORE": 1, "RLIMIT_FSIZE": int(limits.file_gb * GIB)}
    if not grouped and not gpu:
        bounds["RLIMIT_AS"] = allowed_memory(limits)
    if not grouped:
        user = os.geteuid() if (owner := confinement.owner(level)) is None else owner
        facts = [process.info for process in psutil.process_iter(["uids", "num_threads"])]
        threads = [fact["num_threads"] or 0 for fact in facts if fact["uids"] and fact["uids"].real == user]
        bounds["RLIMIT_NPROC"] = limits.processes + sum(threads)  # the kernel counts all threads of the user
    return bounds


@dataclass
class ResourceUsage:
    """What every process below a supervisor uses; one that ends meanwhile is left out: what it held is free again."""

    processes: int = 0
    memory: int = 0
    """Resident sets (or, exactly, each one's share of them), and files in memory that have no name, in bytes."""
    unlinked: int = 0
    """Files on the disk that have no name any more and are held open, in bytes."""
    cpu: float = 0.0
    """Processor time of every process so far, in seconds: of those that live, and of those that were waited for."""

    @classmethod
    def of(cls, supervisor: int, disk: int, exact: bool = False) -> ResourceUsage:
        """`disk`: the device that the trial is on."""
        use, nameless = cls(), dict[tuple[int, int], int]()
        with suppress(psutil.NoSuchProcess):
            top = psutil.Process(supervisor)
            use.cpu += sum(top.cpu_times()[2:4])  # what it waited for: orphans, and the program itself
            for process in top.children(recursive=True):
                use.processes += 1
                with suppress(psutil.Error):
                    use.cpu += sum(process.cpu_times()[:4])  # its own, and of the children that it waited for
                    use.memory += process.memory_full_info().pss if exact else process.memory_info().rss
                with suppress(OSError), os.scandir(f"/proc/{process.pid}/fd") as descriptors:
                    for descriptor in descriptors:
                        with suppress(OSError):  # closed meanwhile
                            status = descriptor.stat()
                            if stat.S_ISREG(status.st_mode) and not status.st_nlink:
                                nameless[status.st_dev, status.st_ino] = status.st_blocks * 512
        for (device, _), size in nameless.items():
            if device == disk:
                use.unlinked += size
            else:
                use.memory += size
        return use


class Program:
    """One program, from its start to the end of the last of its processes.

    Its standard error goes to `log`, and its standard output too unless `pipes` is set. `variables`: all that it has,
    in place of the usual ones. Use it in the thread that creates it: to the kernel, the end of that thread is the end
    of the engine. Raises NotAProgram and CannotStart.
    """

    def __init__(
        self, command: Sequence[str], *, cwd: Path, log: Path, marker: str, level: Level, view: VisiblePaths,
        limits: Limits, pipes: bool = False, slot: Slot = NOWHERE, variables: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.marker, self.slot, self.limits = marker, slot, limits
        self._told: dict[str, Any] = {}
        """All that its supervisor has reported."""
        self._samples: list[ResourceSample] = []
        self.started = self._looked = time.monotonic()
        self._scratch = log.with_name(log.name + ".tmp")
        self._place = log.parent.parent  # not the trial's folder, which it may remove if it is not sandboxed
        self._disk = log.parent.stat().st_dev
        self._wrapped, self._writable = level == "bwrap", view.writable
        self._group: cgroup.Group | None = None
        python, home = view.python.executable, confinement.HOME if self._wrapped else str(self._scratch)
        environment = variables or child_environment(home, marker, python) | slot.variables(view.gpu)
        argv = [find_program(command[0], cwd, environment.get("PATH", os.defpath), python), *command[1:]]
        if (free := shutil.disk_usage(self._place).free) < DISK_RESERVE:
            needs = f"a trial needs {DISK_RESERVE // MIB}"
            raise CannotStart(f"the disk of {self._place} has {free // MIB} MiB left, {needs}")
        file_trees.remove(self._scratch)  # left by an engine that was killed
        self._cleanup = ExitStack()
        try:
            self._log = ScrubbedLog(log)
            self._cleanup.callback(self._log.close)
            self._start(argv, environment, level, view, cwd, pipes)
        except BaseException as fault:
            self.kill()
            if isinstance(fault, OSError):
                raise CannotStart(f"cannot start {argv[0]!r}: {fault}") from fault
            raise

    def _start(
        self, argv: list[str], environment: Mapping[str, str], level: Level, view: VisiblePaths, cwd: Path, pipes: bool
    ) -> None:
        """Start the supervisor, and wait until it reports that the program runs."""
        self._cleanup.callback(file_trees.remove, self._scratch)
        self._scratch.mkdir()
        size = int(self.limits.scratch_gb * GIB)
        plan = confinement.plan(level, view, argv, cwd=cwd, scratch=self._scratch, scratch_bytes=size)
        if groups := cgroup.find():
            self._group = groups.make(allowed_memory(self.limits), self.limits.processes)
            self._cleanup.callback(self._group.remove)
        self._selector = selectors.DefaultSelector()
        self._cleanup.callback(self._selector.close)
        self._report, say = os.pipe()
        self._cleanup.callback(os.close, self._report)
        plan |= {
            "env": dict(environment), "cores": self.slot.cores,
            "cgroups": self._group.entrances if self._group else [],
            "rlimits": rlimits(self.limits, level, self._group is not None, view.gpu),
            "engine": os.getpid(), "report": say,
        }  # fmt: skip
        # Not on a command line, which everybody can read: a variable may be a key.
        with os.fdopen(say, "wb"), os.fdopen(os.memfd_create("plan"), "w+") as told:
            json.dump(plan, told)
            told.seek(0)
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", supervisor.__file__, str(told.fileno())], cwd=cwd, bufsize=0,
                env={SUPERVISOR: self.marker, ENGINE: this_engine(), **passed_on()}, start_new_session=True,
                pass_fds=(say, told.fileno()), stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE if pipes else subprocess.STDOUT,
            )  # fmt: skip
        self._cleanup.enter_context(self.process)
        self._cleanup.callback(self._end_supervisor)
        self._selector.register(self._report, selectors.EVENT_READ)
        self._take_in(SUPERVISOR_SECONDS)
        noise = self.process.stderr or self.process.stdout
        assert noise is not None
        os.set_blocking(noise.fileno(), False)  # the program can open this pipe too, and empty it before us
        self._selector.register(noise, selectors.EVENT_READ)
        if "started" in self._told:
            return
        self.kill()  # where it hangs or has died, a program that it may have started must not run on unsupervised
        said = " ".join(self._log.tail()[-3:])
        failed = f"its supervisor failed, or did not answer within {SUPERVISOR_SECONDS:g} s {said}"
        fault = f"{plan['argv'][0]!r}: {self._told.get('why', failed)}"
        if self._told.get("executing") and not self._wrapped:
            raise NotAProgram(f"cannot execute {fault}")
        raise CannotStart(f"cannot start {fault}")

    @property
    def _status(self) -> int | None:
        """Its exit status, once its supervisor has told it: none of its processes is left then."""
        status: int | None = self._told.get("status")
        # Like a shell, bubblewrap reports a signal as 128 + its number.
        return 128 - status if status and self._wrapped and 128 < status <= 128 + 64 else status

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def poll(self, seconds: float) -> int | None:
        """Read its output for at most `seconds`; its exit status once it and all that it left have ended, else None.

        Raises Stopped when it exceeded a limit or attacked its supervisor.
        """
        interrupt.check()
        if self._status is None:
            self._look()
            self._take_in(seconds)
            has_ended = self.process.poll() is not None
            if self._status is not None or has_ended:
                interrupt.settle()
                self._take_in(0)  # its last output may just have arrived
            if self._status is None and has_ended:
                self._end()
                raise Stopped("its supervisor was killed, and with it all of its processes that could be found")
        else:
            self._take_in(0)  # it may have ended before it was looked at
        return self._status

    def terminate(self, grace: float) -> bool:
        """Ask all of its processes to end (SIGTERM); whether the program did so within `grace` seconds."""
        self.process.send_signal(signal.SIGUSR1)
        return self.wait(grace) is not None

    def wait(self, seconds: float) -> int | None:
        """Its exit status once it has ended; None if it has not within so many seconds. Raises Stopped."""
        deadline = time.monotonic() + seconds
        while (status := self.poll(0.02)) is None and time.monotonic() < deadline:
            pass
        return status

    def kill(self) -> None:
        """End all of its processes, and remove what is its own. Safe to call again."""
        self._cleanup.close()

    def _end_supervisor(self) -> None:
        """Have it end all processes and itself, and end what it left where it did not."""
        self.process.terminate()
        self.process.send_signal(signal.SIGCONT)  # without a sandbox a program can have stopped it
        try:
            self.process.wait(SUPERVISOR_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        with suppress(Stopped):  # it is over anyway
            self._take_in(0)
        if self.process.returncode:
            self._end()

    def listen(self, heard: bytearray | None = None) -> None:
        """End its input, and take its standard output, where both are pipes, into its log from now on, and `heard`."""
        given, pipe = self.process.stdin, self.process.stdout
        assert given is not None and pipe is not None, "it is started with pipes"
        given.close()
        os.set_blocking(pipe.fileno(), False)
        self._selector.register(pipe, selectors.EVENT_READ, heard)

    def note(self, chunk: bytes) -> None:
        """Add output to its log, such as what was read from a pipe elsewhere."""
        self._log.write(chunk)
        if self._log.written > self.limits.output_mb * MIB:
            raise Stopped(f"printed more than {self.limits.output_mb:g} MiB (limits.output_mb)")

    def tail(self) -> str:
        """The last lines of its output, each marked as its own."""
        return "\n".join(SAID + line for line in self._log.tail())

    @property
    def resources(self) -> tuple[ResourceSample, ...]:
        """The course of its resources, at equal distances; without the last look, when it may have been ending."""
        taken = self._samples[:-1]
        return tuple(taken[:: len(taken) // MOST_SAMPLES + 1])

    @property
    def peak_memory(self) -> int | None:
        """Most resident memory of all its processes together, in bytes; None if it ended before a look."""
        return max((sample.memory for sample in self._samples), default=None)

    def lacked_memory(self) -> bool:
        """Whether one of its processes was killed for using more memory than it may."""
        return self._group is not None and self._group.ran_out_of_memory()

    def describe(self, status: int) -> str:
        """An exit status in words."""
        if self.lacked_memory():
            return f"ran out of memory: it may use {allowed_memory(self.limits) / GIB:.3g} GiB (limits.memory_gb)"
        if status >= 0:
            return f"exited with status {status}"
        name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
        return f"was ended by {name}{' (out of memory?)' if -status == signal.SIGKILL else ''}"

    def _end(self) -> None:
        """Without a supervisor, end all processes that can be found."""
        if self._group:
            self._group.kill()
        end(self.marker)

    def _look(self) -> None:
        """Every LOOK_SECONDS, check the resources that it uses. Raises Stopped when it exceeds a limit."""
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        pid, limits, allowed = self.process.pid, self.limits, allowed_memory(self.limits)
        now = ResourceUsage.of(pid, self._disk)
        elapsed = round(time.monotonic() - self.started, 2)
        self._samples.append(ResourceSample(elapsed, round(now.cpu, 2), now.memory, memory_in_use(self.slot.gpus)))
        # The quick measure counts shared pages once per process; the exact one decides.
        if not self._group and now.memory > allowed < ResourceUsage.of(pid, self._disk, exact=True).memory:
            raise Stopped(f"used more than {allowed / GIB:.3g} GiB of memory (limits.memory_gb)")
        if now.processes > limits.processes + 2:
            raise Stopped(f"started more than {limits.processes} processes (limits.processes)")
        if now.unlinked > limits.out_gb * GIB:
            raise Stopped(f"holds more than {limits.out_gb:g} GiB in files without a name (limits.out_gb)")
        for folder in self._writable:
            if reason := outputs.excess(folder, limits, besides=now.unlinked):
                raise Stopped(reason)
        temporary = limits.model_copy(update={"out_gb": limits.scratch_gb})
        if reason := outputs.excess(self._scratch, temporary):
            raise Stopped(f"its temporary files (limits.scratch_gb): {reason}")
        if shutil.disk_usage(self._place).free < DISK_RESERVE:
            raise Stopped(f"left less than {DISK_RESERVE // MIB} MiB free on the disk, which is kept for others")

    def _take_in(self, seconds: float) -> None:
        """Read its output and the supervisor's messages, until `seconds` have passed, a message came or both ended."""
        deadline, known = time.monotonic() + seconds, len(self._told)
        while self._selector.get_map() and (ready := self._selector.select(max(deadline - time.monotonic(), 0))):
            for key, _ in ready:
                try:
                    chunk = os.read(key.fd, 2**20)
                except BlockingIOError:  # the program itself has read it
                    continue
                if not chunk:
                    self._selector.unregister(key.fileobj)
                elif key.fileobj == self._report:
                    for line in chunk.splitlines():  # whole ones: only the supervisor holds the other end
                        self._told |= json.loads(line)
                else:
                    if key.data is not None:
                        key.data.extend(chunk)
                    self.note(chunk)
            if time.monotonic() >= deadline or (seconds and len(self._told) > known):
                return

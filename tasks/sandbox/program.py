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
import select
import selectors
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import psutil

from environments.judges import Misbehaved
from environments.limits import Limits
from tasks.machine.gpus import memory_in_use
from tasks.sandbox import cgroup, confinement, outputs, supervisor, usage
from tasks.sandbox.capped_log import SAID, CappedLog
from tasks.sandbox.child_environment import NotAProgram, child_environment, find_program, passed_on
from tasks.sandbox.confinement import Level, VisiblePaths
from tasks.sandbox.outputs import DISK_RESERVE
from tasks.system import file_trees, interrupt
from tasks.system.clock import clock
from tasks.system.orphans import ENGINE, SUPERVISOR, end, this_engine
from tasks.system.slot import NOWHERE, Slot
from tasks.trial import ResourceSample

LOOK_SECONDS = 0.5
"""Between two checks of its resources: one costs a few milliseconds of a core that may be training."""
SUPERVISOR_SECONDS = 20.0
"""How long a supervisor may take to start or end everything; only processes that hang in the kernel need longer."""
MOST_SAMPLES = 60
GIB, MIB = 2**30, 2**20
MEMORY_RESERVE = 256 * MIB
"""Bytes of the machine's memory that stay free where no control group bounds a program's."""


class Stopped(Misbehaved):
    """The program exceeded a limit or attacked its supervisor, and was stopped; the message says which."""


class CannotStart(Exception):
    """The machine could not start or confine a process: an infrastructure failure, not the trial's."""


class Program:
    """One program, from its start to the end of the last of its processes.

    Its standard error goes to `log` (capped), and its standard output too unless `pipes` is set. Use it in the thread
    that creates it: to the kernel, the end of that thread is the end of the engine.

    Raises:
        NotAProgram: there is no such program, or it cannot be executed.
        CannotStart: the machine has no process, memory or disk space left, or cannot confine it at this level.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        log: Path,
        marker: str,
        level: Level,
        view: VisiblePaths,
        limits: Limits,
        pipes: bool = False,
        slot: Slot = NOWHERE,
    ) -> None:
        self.marker, self.slot, self.limits = marker, slot, limits
        self._told: dict[str, Any] = {}
        """All that its supervisor has reported."""
        self._rest = b""
        self._samples: list[ResourceSample] = []
        self.started = self._looked = clock()
        self._scratch = log.with_name(log.name + ".tmp")
        self._place = log.parent.parent  # not the trial's folder, which it may remove if it is not sandboxed
        self._disk = log.parent.stat().st_dev
        self._wrapped, self._writable = level == "bwrap", view.writable
        self._group: cgroup.Group | None = None
        environment = child_environment(confinement.HOME if self._wrapped else str(self._scratch), marker, view.python)
        environment |= slot.variables(view.gpu)
        argv = [find_program(command[0], cwd, environment["PATH"], view.python), *command[1:]]
        free = shutil.disk_usage(self._place).free // MIB
        if free < DISK_RESERVE // MIB:
            raise CannotStart(f"the disk of {self._place} has {free} MiB left, a trial needs {DISK_RESERVE // MIB}")
        file_trees.remove(self._scratch)  # left by an engine that was killed
        self._cleanup = ExitStack()
        try:
            self._log = CappedLog(log)
            self._cleanup.callback(self._log.close)
            self._start(argv, environment, level, view, cwd, pipes)
        except BaseException as fault:
            self.kill()
            if isinstance(fault, OSError):
                raise CannotStart(f"cannot start {argv[0]!r}: {fault}") from fault
            raise

    def _start(
        self, argv: list[str], environment: dict[str, str], level: Level, view: VisiblePaths, cwd: Path, pipes: bool
    ) -> None:
        """Start the supervisor, and wait until it reports that the program runs."""
        self._cleanup.callback(file_trees.remove, self._scratch)
        self._scratch.mkdir()
        size = int(self.limits.scratch_gb * GIB)
        plan = confinement.plan(level, view, argv, cwd=cwd, scratch=self._scratch, scratch_bytes=size)
        if groups := cgroup.find():
            self._group = groups.make(usage.allowed(self.limits), self.limits.processes)
            self._cleanup.callback(self._group.remove)
        plan |= {"env": environment, "cgroups": self._group.entrances if self._group else []}
        plan["rlimits"] = usage.rlimits(self.limits, level, self._group is not None, view.gpu)
        plan["cores"] = self.slot.cores
        self._selector = selectors.DefaultSelector()
        self._cleanup.callback(self._selector.close)
        self._launch(plan, cwd, pipes)
        self._hear()
        told = self._told
        if "started" in told:
            os.set_blocking(self._noise.fileno(), False)
            self._selector.register(self._noise, selectors.EVENT_READ)
            self._selector.register(self._report, selectors.EVENT_READ)
            return
        if not told:  # it hangs or has died: a program that it may have started must not run on unsupervised
            self.process.kill()
            self._end()
        for pipe in self._pipes:
            self._log.write(b"" if pipe is self.process.stdin else pipe.read())
        silent = f"its supervisor failed, or did not answer within {SUPERVISOR_SECONDS:g} s {self._log.tail(3)}"
        why = told.get("why") or silent
        if told.get("executing") and not self._wrapped:
            raise NotAProgram(f"cannot execute {plan['argv'][0]!r}: {why}")
        raise CannotStart(f"cannot start {plan['argv'][0]!r}: {why}")

    def _launch(self, plan: Mapping[str, Any], cwd: Path, pipes: bool) -> None:
        """Start the supervisor's process. It is ended, and then its pipes and its report are closed."""
        self._report, say = os.pipe()
        self._cleanup.callback(os.close, self._report)
        told = json.dumps({**plan, "engine": os.getpid(), "report": say})
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", supervisor.__file__, told],
                cwd=cwd,
                env={SUPERVISOR: self.marker, ENGINE: this_engine(), **passed_on()},
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if pipes else subprocess.STDOUT,
                bufsize=0,
                start_new_session=True,
                pass_fds=(say,),
            )
        finally:
            os.close(say)
        for pipe in self._pipes:
            self._cleanup.callback(pipe.close)
        self._cleanup.callback(self._end_supervisor)

    def _hear(self) -> bool:
        """Take in what the supervisor reports next; False when it has ended, or is silent for SUPERVISOR_SECONDS."""
        ready, _, _ = select.select([self._report], [], [], SUPERVISOR_SECONDS)
        chunk = os.read(self._report, 2**16) if ready else b""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._told |= json.loads(line)  # only the supervisor holds the other end
        return bool(chunk)

    @property
    def _pipes(self) -> list[IO[bytes]]:
        """Those to and from the program."""
        return [pipe for pipe in (self.process.stdin, self.process.stdout, self.process.stderr) if pipe is not None]

    @property
    def _noise(self) -> IO[bytes]:
        """The program's standard error, with its standard output unless that is a pipe of its own."""
        return self._pipes[-1]

    @property
    def _status(self) -> int | None:
        """Its exit status, once its supervisor has told it."""
        status: int | None = self._told.get("status")
        # Like a shell, bubblewrap reports a signal as 128 + its number.
        return 128 - status if status and self._wrapped and 128 < status <= 128 + 64 else status

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def poll(self, seconds: float) -> int | None:
        """Read its output for at most `seconds`; its exit status once it has ended, else None.

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
                self._lost()
        else:
            self._take_in(0)
        return self._status

    def terminate(self, grace: float) -> bool:
        """Ask all of its processes to end (SIGTERM); whether the program did so within `grace` seconds."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGUSR1)
        deadline = clock() + grace
        while clock() < deadline:
            if self.poll(0.02) is not None:
                return True
        return False

    def left_over(self) -> None:
        """Wait for the processes that go on after the program's end: they have a second, and are killed."""
        deadline = clock() + SUPERVISOR_SECONDS
        while "over" not in self._told and self.process.poll() is None and clock() < deadline:
            interrupt.check()
            self._take_in(0.05)
        self._take_in(0)
        if "over" not in self._told:
            self._lost()

    def kill(self) -> None:
        """End all of its processes, and remove what is its own. Safe to call again."""
        self._cleanup.close()

    def _end_supervisor(self) -> None:
        """Have it end all processes and itself, and end what it left where it did not."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.send_signal(signal.SIGCONT)  # without a sandbox a program can have stopped it
        try:
            self.process.wait(SUPERVISOR_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._take_in(0, limited=False)
        if "over" not in self._told:
            self._end()

    def note(self, chunk: bytes, limited: bool = True) -> None:
        """Add output to its log, such as what was read from a pipe elsewhere."""
        self._log.write(chunk)
        if limited and self._log.written > self.limits.output_mb * MIB:
            raise Stopped(f"printed more than {self.limits.output_mb:g} MiB (limits.output_mb)")

    def tail(self) -> str:
        """The last lines of its output, for the reason of a crash; each marked, so that none passes for ours."""
        return "\n".join(f"{SAID}{line}" for line in self._log.tail(12).splitlines())

    def has_raised(self) -> bool:
        """Whether the traceback of an exception is in the last lines of its output; it may have been handled."""
        return self._log.has_traceback()

    @property
    def resources(self) -> tuple[ResourceSample, ...]:
        """The course of its resources, at equal distances; without the last look, when it may have been ending."""
        taken = self._samples[:-1]
        return tuple(taken[:: len(taken) // MOST_SAMPLES + 1])

    @property
    def peak_memory(self) -> int | None:
        """Most resident memory of all its processes together, in bytes; None if it ended before a look."""
        return max((sample.memory for sample in self._samples), default=None)

    @property
    def gpu_memory(self) -> tuple[int, ...] | None:
        """Most memory in use on each GPU of its slot, in bytes; None where nothing was measured."""
        used = [sample.gpu_memory for sample in self._samples if sample.gpu_memory]
        return tuple(map(max, zip(*used, strict=True))) or None

    @property
    def printed(self) -> int:
        """Bytes of its output so far."""
        return self._log.written

    def lacked_memory(self) -> bool:
        """Whether one of its processes was killed for using more memory than it may."""
        return self._group is not None and self._group.ran_out_of_memory()

    def describe(self, status: int) -> str:
        """An exit status in words."""
        if self.lacked_memory():
            return f"ran out of memory: it may use {usage.allowed(self.limits) / GIB:.3g} GiB (limits.memory_gb)"
        return usage.ended(status)

    def _end(self) -> None:
        """Without a supervisor, end all processes that can be found."""
        if self._group:
            self._group.kill()
        end(self.marker)

    def _lost(self) -> None:
        self._end()
        raise Stopped("its supervisor was killed, and with it all of its processes that could be found")

    def _look(self) -> None:
        """Every LOOK_SECONDS, check the resources that it uses. Raises Stopped when it exceeds a limit."""
        if clock() - self._looked < LOOK_SECONDS:
            return
        self._looked = clock()
        now, limits, allowed = usage.measure(self.process.pid, self._disk), self.limits, usage.allowed(self.limits)
        elapsed = round(clock() - self.started, 2)
        self._samples.append(ResourceSample(elapsed, round(now.cpu, 2), now.memory, memory_in_use(self.slot.gpus)))
        # The quick measure counts shared pages once per process; the exact one decides.
        if not self._group and now.memory > allowed < usage.measure(self.process.pid, self._disk, exact=True).memory:
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
        if not self._group and psutil.virtual_memory().available < MEMORY_RESERVE:  # some is hidden, as in sockets
            raise Stopped(
                f"ran on a machine with less than {MEMORY_RESERVE // MIB} MiB of memory left, kept for others"
            )
        if shutil.disk_usage(self._place).free < DISK_RESERVE:
            raise Stopped(f"left less than {DISK_RESERVE // MIB} MiB free on the disk, which is kept for others")

    def _take_in(self, seconds: float, limited: bool = True) -> None:
        """Read its output and the supervisor's messages until `seconds` have passed or it has ended."""
        deadline = clock() + seconds
        while self._selector.get_map() and (ready := self._selector.select(max(deadline - clock(), 0))):
            for key, _ in ready:
                if key.fileobj != self._report:
                    if chunk := self._noise.read(2**20):
                        self.note(chunk, limited)
                        continue
                elif self._hear():
                    continue
                self._selector.unregister(key.fileobj)
            if clock() >= deadline or (seconds and self._status is not None):
                return

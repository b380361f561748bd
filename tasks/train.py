"""Proposal -> Run: prepare the workspace, run the program within its budget, and say how it ended.

The clock, the budget and the end are the engine's. The program reports progress in out/progress.jsonl and leaves a
checkpoint in out/; nothing that it prints or reports is a score.
"""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from environments import FILE, Environment, plainly, plugins
from environments.plugins import Refused
from tasks import fingerprint, workspace
from tasks.checkpoint import At, stored
from tasks.clock import clock
from tasks.edits import EditFailed
from tasks.sandbox import Program, Stopped
from tasks.scrub import clean
from tasks.source.reachable import missing_calls
from tasks.trial import Params, Proposal, Run
from tasks.walls import confine
from tasks.walls.confine import Level
from tasks.walls.handed import NotAProgram
from tasks.walls.isolation import Isolation
from tasks.workspace import TRAINERS, TrialDir

UNSANDBOXED = (
    "the edit is refused: it would run without walls, at isolation none (`nightshift doctor` says what this machine "
    "offers); --allow-unsandboxed runs it all the same"
)
SHUT = (
    "Permission denied", "PermissionError", "No such file", "Read-only file system", "name resolution",
    "Connection refused", "unreachable", "No module named",
)  # fmt: skip
"""What programs say at a door that walls may keep shut."""
NAMED = 3
"""Processes that a reason names; of the others it tells the number."""
MOST_STEPS = 2**53
"""No report of more is taken in: nothing that draws or stores a number holds it exactly."""
POLL_SECONDS = 0.05
PROGRESS_LIMIT = 16 * 2**20
"""Bytes of progress.jsonl beyond which a program is stopped: at 5 reports a second, days."""


class BadProgress(Exception):
    """A line of progress.jsonl that is not a report."""


@dataclass(frozen=True)
class Cut:
    """When a training is stopped, in place of the environment's own budget; both in seconds."""

    startup_seconds: float
    budget_seconds: float


@stored("train")
def train(
    at: At,
    environment: Environment,
    isolation: Isolation,
    program: Path,
    place: TrialDir,
    proposal: Proposal,
    seed: int,
) -> Run:
    """One training run of a proposal, in the trial's directory `place`; a finished trial is never run again."""
    if known := workspace.finished(place):
        return known.runs[-1]
    return run_program(at.marker, environment, isolation, program, place, proposal, seed)


def check(environment: Environment) -> None:
    """Refuse an environment whose program could not even be started."""
    source = environment.folder / FILE
    plugins.require(environment.trainer, plugins.names(TRAINERS), "trainer", f"{source}: trainer")
    own = environment.program or environment.train_cmd != "python train.py"
    if environment.trainer == "command" and not own:
        raise Refused(f"{source}: trainer = 'command' runs your own program: set train_cmd, or program")
    values = placeholders(environment, environment.defaults, Path("out"), seed=0)
    try:
        workspace.fill(environment.train_cmd, values)
    except Refused as wrong:
        raise Refused(f"{source}: train_cmd: {wrong}") from wrong
    _check_calls(environment)


def _check_calls(environment: Environment) -> None:
    """Refuse required calls that the environment's own program does not make: no edit could keep them."""
    if not environment.required_calls:
        return
    files = workspace.baseline_files(environment)
    python = {name: path.read_text("utf-8", "replace") for path, name in files if name.endswith(".py")}
    for call in missing_calls(python, environment.required_calls):
        raise Refused(
            f"{environment.folder / FILE}: required_calls: {call!r} is not called by the program itself "
            f"({', '.join(python) or 'no Python file'}): correct the name, or leave it out"
        )


def placeholders(environment: Environment, params: Params, out: Path, seed: int) -> dict[str, object]:
    """What `train_cmd` may name: every parameter, and the engine's own values (which win)."""
    return {
        **params,
        "seed": seed,
        "out": str(out.absolute()),
        "budget_seconds": environment.budget_seconds,
        "budget_steps": environment.budget_steps,
        "device": environment.device,
        "environment": str(environment.folder.absolute()),
    }


def run_program(
    marker: str,
    environment: Environment,
    isolation: Isolation,
    program: Path,
    place: TrialDir,
    proposal: Proposal,
    seed: int,
    cut: Cut | None = None,
) -> Run:
    """Train once, or until `cut`, of which the program is not told beforehand.

    Whatever the program does, the answer is a Run; only a fault of the machine raises.

    Raises:
        CannotStart: no process could be started, or confined.
    """
    started, before = time.time(), clock()
    session = _Session(environment, isolation.level, place, cut)
    digest: str | None = None
    try:
        if not isolation.may_run(proposal.edit):
            raise EditFailed(UNSANDBOXED)
        digest = workspace.prepare(place, program, environment, proposal, seed)
        confine.give(place.out, isolation.level)
        values = placeholders(environment, proposal.params, place.out, seed)
        session.run(workspace.fill(environment.train_cmd, values), marker)
        error = session.error
    except (EditFailed, NotAProgram) as failed:
        error = str(failed)
    return Run(
        dir=f"{place.path.parent.name}/{place.path.name}",
        seed=seed,
        seconds=round(session.seconds, 3),
        status="crash" if error else "finished",
        error=error,
        peak_memory=session.peak_memory,
        steps=session.progress.steps,
        started=started,
        wall_seconds=round(clock() - before, 3),
        reported=session.progress.reported,
        startup=session.startup and round(session.startup, 3),
        isolation=isolation.level,
        network=environment.network,
        program=digest,
        checkpoint=None if error else fingerprint.checkpoint(place.out),
    )


class _Session:
    """One started program and its clock, until it has ended one way or another."""

    def __init__(self, environment: Environment, level: Level, place: TrialDir, cut: Cut | None) -> None:
        self.environment = environment
        self.cut = cut or Cut(environment.startup_seconds, environment.budget_seconds)
        self.level = level
        self.place = place
        self.progress = Progress(place.progress, environment.metric)
        self.seconds = 0.0
        self.startup: float | None = None
        self.peak_memory: int | None = None
        self.error: str | None = None

    def run(self, command: list[str], marker: str) -> None:
        view = confine.of(self.environment, readable=(self.place.workspace,), writable=(self.place.out,))
        with Program(
            command, cwd=self.place.workspace, log=self.place.log, marker=marker, level=self.level, view=view,
            limits=self.environment.limits,
        ) as program:  # fmt: skip
            try:
                reason = self._watch(program) or self._leftovers(program)
            except (BadProgress, Stopped) as wrong:
                reason = str(wrong)
            program.kill()
            self.peak_memory = program.peak_memory
            tail = program.tail()
        out, limits = self.place.out, self.environment.limits
        reason = (
            reason or fingerprint.fault(out) or fingerprint.excess(out, limits) or self._missing_checkpoint()
        )
        if reason:
            self.error = f"{reason}\n{tail}".rstrip() + _hint(self.level, tail)

    def _watch(self, program: Program) -> str | None:
        """Let it run to its own end or the budget's; why that is a crash, or None."""
        ready: float | None = None
        while (status := program.poll(POLL_SECONDS)) is None:
            self.progress.read()
            now = clock()
            if ready is None and (self.progress.ready or now - program.started > self.cut.startup_seconds):
                ready = now
                self.startup = ready - program.started if self.progress.ready else None
            if ready is not None and now - ready >= self.cut.budget_seconds:
                self.seconds = now - ready
                return self._stop(program)
        self.progress.read()
        if ready is None and self.progress.ready:  # it was over before anybody looked
            self.startup = 0.0
        self.seconds = clock() - (ready or program.started)
        return program.describe(status) if status else None

    def _stop(self, program: Program) -> str | None:
        """The budget is over: SIGTERM, a grace, and the kill that `Program` ends with."""
        grace = self.environment.grace_seconds
        if not program.terminate(grace):
            return f"did not stop within {grace:g} s of SIGTERM at the end of its budget, and was killed"
        self.progress.read()
        status = program.poll(0)
        # 143 is how a shell passes on its child's end by SIGTERM.
        return (
            None
            if status in (0, -signal.SIGTERM, 143)
            else f"failed while stopping: {program.describe(status or 0)}"
        )

    def _leftovers(self, program: Program) -> str | None:
        if left := program.left_over():
            names = [" ".join(clean(name))[:80] for name in left[:NAMED]]
            named = "; ".join(names + ([f"and {len(left) - NAMED} more"] if len(left) > NAMED else []))
            return f"left {len(left)} process(es) running after it had ended ({named}): killed"
        return None

    def _missing_checkpoint(self) -> str | None:
        with os.scandir(self.place.out) as entries:
            if any(entry.name != "progress.jsonl" for entry in entries):
                return None
        return "left no checkpoint in out/"


def _hint(level: Level, tail: str) -> str:
    """What to think of first when a program speaks of a door that walls keep shut; empty when it does not."""
    if level == "none" or not any(sign in tail for sign in SHUT):
        return ""
    hint = f"\n(behind walls, {level}: it reads its workspace and what `readable` lists, writes out/ and TMPDIR, "
    hint += "and has no network without `network = true`"
    shared = level == "landlock" and ("SemLock" in tail or "/dev/shm" in tail)
    return hint + ("; shared memory needs bwrap)" if shared else ")")


class Progress:
    """The reports of a running program, read as they come."""

    def __init__(self, path: Path, metric: str) -> None:
        self._path = path
        self._metric = metric
        self._offset = 0
        self._line = 0
        self.ready = False
        self.steps: int | None = None
        self.reported: float | None = None

    def read(self) -> None:
        """Take in the complete lines that are new.

        Raises:
            BadProgress: a line that is no report, or far too many of them.
        """
        try:
            with plainly.open_file(self._path) as file:
                file.seek(self._offset)
                new = file.read(PROGRESS_LIMIT)
        except FileNotFoundError:
            return
        except OSError as fault:
            raise BadProgress(
                f"out/progress.jsonl cannot be read ({fault.strerror}): it must be a file"
            ) from fault
        complete = new[: new.rfind(b"\n") + 1]
        self._offset += len(complete)
        if self._offset + len(new) - len(complete) >= PROGRESS_LIMIT:
            raise BadProgress(f"wrote more than {PROGRESS_LIMIT // 2**20} MiB to out/progress.jsonl")
        for line in complete.splitlines():
            self._line += 1
            self._take(line)

    def _take(self, line: bytes) -> None:
        report = parse_report(line)
        if report is None:
            shown = line[:80].decode(errors="replace")
            raise BadProgress(f"out/progress.jsonl line {self._line} is not a report: {shown!r}")
        self.ready = True  # a program that reports without having said so is ready all the same
        step = report.get("step")
        if isinstance(step, int) and not isinstance(step, bool) and 0 <= step < MOST_STEPS:
            self.steps = step
        self.reported = value_of(report, self._metric, self.reported)


def parse_report(line: bytes) -> dict[str, object] | None:
    """One report: `{"ready": true}`, or an object with a numeric `elapsed` or `step`; None when it is neither."""
    try:
        report = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(report, dict):
        return None
    numbers = [report.get("elapsed"), report.get("step")]
    numeric = any(isinstance(value, int | float) and not isinstance(value, bool) for value in numbers)
    return report if report.get("ready") is True or numeric else None


def value_of(report: dict[str, object], metric: str, otherwise: float | None) -> float | None:
    """What a report says of a metric; `otherwise` when that is nothing, or no finite number."""
    metrics = report.get("metrics")
    value = metrics.get(metric) if isinstance(metrics, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return otherwise
    return (
        float(value) if abs(value) <= 1e100 else otherwise
    )  # nan compares as false; nothing larger can be drawn

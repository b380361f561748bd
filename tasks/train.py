"""Proposal -> Run: prepare the workspace, run the program within its budget, and say how it ended.

The clock, the budget and the end are the engine's. The program reports progress in out/progress.jsonl and leaves a
checkpoint in out/; nothing that it prints or reports is a score.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from environments import FILE, Environment, plugins
from environments.plugins import Refused
from tasks.cancellers import Canceller
from tasks.checkpoint import At, stored
from tasks.deciding.comparable import comparable
from tasks.editing.edits import EditFailed
from tasks.editing.required_calls import missing_calls
from tasks.machine.gpu_memory import Sampler
from tasks.sandbox import confinement, outputs
from tasks.sandbox.child_environment import NotAProgram
from tasks.sandbox.confinement import Level
from tasks.sandbox.isolation import Isolation
from tasks.sandbox.program import CannotStart, Program, Stopped
from tasks.sandbox.progress import BadProgress, Failure, Progress
from tasks.store import workspace
from tasks.store.ledger import machine
from tasks.store.workspace import TRAINERS, TrialDir
from tasks.system.clock import clock
from tasks.system.redact import clean
from tasks.system.slot import NOWHERE, Slot
from tasks.trial import TWENTIETHS, Curve, Due, History, Params, Proposal, Run

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
POLL_SECONDS = 0.05
NO_CHECKPOINT = "left no checkpoint in out/"
DATA = frozenset({".cfg", ".ini", ".json", ".md", ".toml", ".txt", ".yaml", ".yml"})
"""Suffixes of files that are settings and no code."""
CANCEL = "cancel"
"""The file in a program's workspace that asks it to end at once, without a checkpoint, and says why."""

Look = Callable[[Curve], str | None]
"""Why a run whose curve this is so far should end now; None to go on."""


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
    history: History,
    canceller: Canceller | None,
    spare: bool,
    slot: Slot,
) -> Run:
    """One training run of a proposal, in the trial's directory `place`; a finished trial is never run again.

    Args:
        canceller: Who may end it early, by what `history` shows; None for nobody.
        spare: Whether it runs to its end all the same, and only says when it would have been cancelled.
    """
    if known := workspace.settled(place, at.part):
        return known[0]
    look: Look | None = None
    if canceller is not None:
        seen = comparable(history, machine())
        look = partial(canceller.look, seen, higher_is_better=environment.higher_is_better)
    return run_program(
        at.marker, environment, isolation, program, place, proposal, seed, look=look, spared=spare, slot=slot
    )


def check(environment: Environment) -> None:
    """Refuse an environment whose program could not even be started."""
    source = environment.folder / FILE
    plugins.require(environment.trainer, plugins.names(TRAINERS), "trainer", f"{source}: trainer")
    own = environment.program or environment.train_cmd != "python train.py"
    if environment.trainer == "command" and not own:
        raise Refused(f"{source}: trainer = 'command' runs your own program: set train_cmd, or program")
    if CANCEL in (Path(name).parts[0] for name in environment.program):
        raise Refused(f"{source}: program: {CANCEL!r} is the file that ends a training early: rename yours")
    values = placeholders(environment, environment.defaults, Path("out"), seed=0)
    for key in ("train_cmd", "check_cmd"):
        try:
            workspace.fill(getattr(environment, key) or environment.train_cmd, values)
        except Refused as wrong:
            raise Refused(f"{source}: {key}: {wrong}") from wrong
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
        "prepared": str(environment.prepared or ""),
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
    look: Look | None = None,
    spared: bool = False,
    slot: Slot = NOWHERE,
) -> Run:
    """Train once, or until `cut`, of which the program is not told beforehand.

    Whatever the program does, the answer is a Run; only a fault of the machine raises.

    Args:
        look: Asked at every twentieth of the budget, once anything was reported; its first reason cancels the run.
        spared: Then note the reason alone, and let the run go on to its end.

    Raises:
        CannotStart: no process could be started, or confined; or the program says that the machine is at fault, and
            is one that no edit can have made say so.
    """
    started, before = time.time(), clock()
    session = _Session(environment, isolation.level, place, slot, cut, look, spared)
    digest: str | None = None
    try:
        if not isolation.may_run(proposal.edit):
            raise EditFailed(UNSANDBOXED)
        digest = workspace.prepare(place, program, environment, proposal, seed)
        confinement.give(place.out, isolation.level)
        values = placeholders(environment, proposal.params, place.out, seed)
        session.run(workspace.fill(environment.train_cmd, values), marker)
    except (EditFailed, NotAProgram) as failed:
        session.error = str(failed)
    failure = session.failure
    if failure and failure.retry and session.status == "crash" and _is_beyond_edits(environment):
        raise CannotStart(f"{failure.reason} (log: {place.log})")
    return Run(
        dir=f"{place.path.parent.name}/{place.path.name}",
        seed=seed,
        seconds=round(session.seconds, 3),
        status=session.status,
        error=session.error,
        peak_memory=session.peak_memory,
        gpu_memory=session.gpu_memory,
        steps=session.progress.steps,
        started=started,
        wall_seconds=round(clock() - before, 3),
        reported=session.progress.reported,
        startup=session.startup and round(session.startup, 3),
        isolation=isolation.level,
        network=environment.network,
        program=digest,
        checkpoint=outputs.checkpoint(place.out) if session.status == "finished" else None,
        curve=session.progress.curve,
        due=session.due,
        machine=machine(),
    )


class _Session:
    """One started program and its clock, until it has ended one way or another."""

    def __init__(
        self, environment: Environment, level: Level, place: TrialDir, slot: Slot, cut: Cut | None, look: Look | None,
        spared: bool,
    ) -> None:  # fmt: skip
        self.environment = environment
        self.cut = cut or Cut(environment.startup_seconds, environment.budget_seconds)
        self.level = level
        self.place = place
        self.slot = slot
        self.look = look
        self.spared = spared
        self.progress = Progress(place.progress, environment.metric, environment.budget_steps)
        self.seconds = 0.0
        self.startup: float | None = None
        self.peak_memory: int | None = None
        self.gpu_memory: tuple[int, ...] | None = None
        self.error: str | None = None
        self.failure: Failure | None = None
        """What it says itself of why it failed, where the engine did not have to stop it."""
        self.due: Due | None = None
        self._looked = 0

    @property
    def status(self) -> Literal["finished", "cancelled", "crash"]:
        if self.due and not self.due.spared:
            return "cancelled"
        return "crash" if self.error else "finished"

    def run(self, command: list[str], marker: str) -> None:
        view = confinement.of(self.environment, readable=(self.place.workspace,), writable=(self.place.out,))
        with Program(
            command, cwd=self.place.workspace, log=self.place.log, marker=marker, level=self.level, view=view,
            limits=self.environment.limits, slot=self.slot,
        ) as program, Sampler(self.slot.gpus) as sampler:  # fmt: skip
            try:
                reason = self._watch(program) or self._leftovers(program)
                self.failure = self.progress.failure
                reason = self.failure.reason if self.failure else reason
            except (BadProgress, Stopped) as wrong:
                reason = str(wrong)
            program.kill()
            self.peak_memory = program.peak_memory
            self.gpu_memory = sampler.peaks
            tail = program.tail()
        if self.status == "cancelled":  # how it took that, and what it left, no longer matters
            return
        out, limits = self.place.out, self.environment.limits
        reason = reason or outputs.fault(out) or outputs.excess(out, limits) or self._missing_checkpoint()
        if reason:
            self.error = f"{reason}\n{tail}".rstrip() + _hint(self.level, tail)

    def _watch(self, program: Program) -> str | None:
        """Let it run to its own end, the budget's or an early one; why it has not finished, or None."""
        ready: float | None = None
        while (status := program.poll(POLL_SECONDS)) is None:
            self.progress.read()
            now = clock()
            if ready is None and (self.progress.ready or now - program.started > self.cut.startup_seconds):
                ready = now
                self.startup = ready - program.started if self.progress.ready else None
            if ready is None:
                continue
            self._passed(now - ready)
            if self.seconds >= self.cut.budget_seconds:
                return self._stop(program)
            if self._is_cancelled():
                self._cancel(program)
                self.seconds = clock() - ready
                return "cancelled"
        self.progress.read()
        if ready is None and self.progress.ready:  # it was over before anybody looked
            self.startup = 0.0
        if ready is None:
            self.seconds = clock() - program.started
        else:
            self._passed(clock() - ready)
        return program.describe(status) if status else None

    def _passed(self, seconds: float) -> None:
        """So many seconds of its budget have passed."""
        self.seconds, budget = seconds, self.cut.budget_seconds
        self.progress.passed(TWENTIETHS if seconds >= budget else int(seconds * TWENTIETHS / budget))

    def _is_cancelled(self) -> bool:
        """Whether it is to end now, asked at every twentieth but the last, which leaves nothing to save."""
        curve = self.progress.curve
        lengths = range(self._looked + 1, min(len(curve), TWENTIETHS - 1) + 1)
        self._looked = len(curve)
        for length in lengths:
            so_far = curve[:length]
            if self.due or self.look is None or all(value is None for value in so_far):
                continue
            if reason := self.look(so_far):
                self.due = Due(length / TWENTIETHS, reason, self.spared)
        return self.status == "cancelled"

    def _cancel(self, program: Program) -> None:
        """Ask it to end, with a file that it finds at its next report; after a grace by SIGTERM, then by the kill."""
        assert self.due is not None
        note = self.place.workspace / f".{CANCEL}"
        with suppress(OSError):  # without walls its workspace may be gone: SIGTERM reaches it all the same
            note.write_text(self.due.reason + "\n")
            note.chmod(0o444)  # whatever the umask: it may run as another user
            note.replace(note.with_name(CANCEL))
        grace = self.environment.grace_seconds
        with suppress(Stopped):  # at whichever limit: it is ended
            deadline = clock() + grace
            while clock() < deadline:
                if program.poll(POLL_SECONDS) is not None:
                    return
            program.terminate(grace)

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
        return NO_CHECKPOINT


def _is_beyond_edits(environment: Environment) -> bool:
    """Whether an edit can change nothing that runs, only settings: then what runs is the environment's own."""
    started = [word for word in environment.train_cmd.split() if not word.startswith("-")][:2]  # python FILE
    names = {Path(word).name for word in started}
    return all(Path(name).suffix in DATA and Path(name).name not in names for name in environment.editable)


def _hint(level: Level, tail: str) -> str:
    """What to think of first when a program speaks of a door that walls keep shut; empty when it does not."""
    if level == "none" or not any(sign in tail for sign in SHUT):
        return ""
    hint = f"\n(behind walls, {level}: it reads its workspace and what `readable` lists, writes out/ and TMPDIR, "
    hint += "and has no network without `network = true`"
    shared = level == "landlock" and ("SemLock" in tail or "/dev/shm" in tail)
    return hint + ("; shared memory needs bwrap)" if shared else ")")

"""Proposal -> Run: prepare the workspace, run the program within its budget, and record how it ended.

The program reports progress in out/progress.jsonl and leaves a checkpoint in out/; nothing that it reports is a score.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from prefect import State, task

from environments import FILE, Environment, plugins
from environments.judges import Misbehaved
from environments.plugins import Refused
from tasks.bench import Bench, RunPlan
from tasks.cancellers import ReasonToStop
from tasks.checkpoint import KEPT, ended
from tasks.editing.edits import EditFailed
from tasks.machine.slots import NOWHERE, Slot
from tasks.remote import places
from tasks.remote_session import Cut, RemoteSession, TrainingSession
from tasks.run_checks import plausible
from tasks.sandbox import confinement, outputs
from tasks.sandbox.advice import advice
from tasks.sandbox.confinement import Level
from tasks.sandbox.isolation import Isolation
from tasks.sandbox.program import CannotStart, NotAProgram, Program, Stopped
from tasks.store import workspace
from tasks.store.ledger import machine
from tasks.store.workspace import TRAINERS, TrialDir
from tasks.task_key import TaskKey
from tasks.trial import Params, Proposal, Run

UNSANDBOXED = (
    "the edit is refused: isolation is none, so it would run without a sandbox; `nightshift doctor` shows what this "
    "machine offers, --allow-unsandboxed runs it anyway"
)
POLL_SECONDS, FINEST_POLL_SECONDS = 0.05, 0.005
NO_CHECKPOINT = "left no checkpoint in out/"
"""Beginning of the reason of a run that left nothing."""
DATA = frozenset({".cfg", ".ini", ".json", ".md", ".toml", ".txt", ".yaml", ".yml"})
"""Suffixes of settings files, which are not code."""
CANCEL = "cancel"
"""The file in a workspace that asks the program to end without a checkpoint; it contains the reason."""


@task(**KEPT, cache_key_fn=lambda _, given: f"{given['key']}/train")
def train(key: TaskKey, bench: Bench, plan: RunPlan, reason_to_stop: ReasonToStop | None = None) -> State[Run]:
    """One training run of a proposal. (reason_to_stop: why a run with this progress should end early)"""
    environment = bench.environment
    with bench.slot(key) as slot:
        run = run_program(
            key.marker(bench.launched), environment, bench.isolation, bench.program, bench.dir(plan), plan.proposal,
            bench.ledger.seed("train", key), reason_to_stop=reason_to_stop, slot=slot,
        )  # fmt: skip
        run = plausible(environment, run, bench.ledger.path)
    how = f"stopped early: {run.due.reason}; " if run.due and run.status == "cancelled" else ""
    steps = f", {run.steps:,} steps by its own count" if run.steps is not None else ""
    return ended(run, f"{how}trained {run.seconds:.4g} s{steps}", run.error if run.status == "crash" else None)


def check(environment: Environment) -> None:
    """Refuse an environment whose program cannot be started."""
    source = environment.folder / FILE
    trainers = ("command", *plugins.names(TRAINERS), *plugins.names(places.PACKAGE))
    plugins.require(environment.trainer, trainers, "trainer", f"{source}: trainer")
    own = environment.program or environment.train_cmd != "python train.py"
    if environment.trainer == "command" and not own:
        raise Refused(f"{source}: trainer = 'command' runs your own program: set train_cmd, or program")
    if environment.trainer in ("ppo", "sac") and "id" not in environment.judge.problem():
        raise Refused(f"{source}: trainer = {environment.trainer!r} plays [control] id, and there is none: set it")
    taskset = environment.judge.model_dump().get("taskset")
    if environment.trainer == "grpo" and taskset in environment.program and taskset != "taskset.py":
        raise Refused(f"{source}: trainer = 'grpo' asks and pays by taskset.py, and program has {taskset!r}: rename it")
    values = placeholders(environment, environment.defaults, Path("out"), seed=0)
    for key in ("train_cmd", "check_cmd"):
        command = getattr(environment, key) or environment.train_cmd
        workspace.fill(command, values, f"{source}: {key}: ")
        named = {match[1] for match in workspace.PLACEHOLDER.finditer(command)}
        if environment.remote and key == "train_cmd" and (local := named & {"environment", "prepared"}):
            raise Refused(
                f"{source}: {key}: {{{min(local)}}} is a folder of this machine, and trainer {environment.trainer!r} "
                "trains on another: leave it out, and have its files in program"
            )
        for name in named & environment.defaults.keys() & placeholders(environment, {}, Path("out"), seed=0).keys():
            raise Refused(
                f"{source}: {key}: {{{name}}} is filled in by the engine, so the parameter {name!r} would never "
                "arrive: rename the parameter"
            )


def placeholders(environment: Environment, params: Params, out: Path, seed: int) -> dict[str, object]:
    """The placeholders of `train_cmd`: every parameter, and the engine's own values (which win)."""
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
    marker: str, environment: Environment, isolation: Isolation, program: Path, place: TrialDir, proposal: Proposal,
    seed: int, cut: Cut | None = None, reason_to_stop: ReasonToStop | None = None, slot: Slot = NOWHERE,
) -> Run:  # fmt: skip
    """Train once. Whatever the program does, the result is a Run; only a fault of the machine raises (CannotStart)."""
    started, before = time.time(), time.monotonic()
    asked, digest = (environment, place, reason_to_stop, cut), None
    session: _Session | RemoteSession
    if environment.remote:
        session = RemoteSession(*asked, proposal=proposal)
    else:
        session = _Session(*asked, level=isolation.level, slot=slot)
    try:
        if not isolation.may_run(proposal.edit):
            raise EditFailed(UNSANDBOXED)
        digest = workspace.prepare(place, program, environment, proposal, seed)
        confinement.give(place.out, isolation.level)
        values = placeholders(environment, proposal.params, place.out, seed)
        values |= {"out": RemoteSession.out} if environment.remote else {}
        session.run(workspace.fill(environment.train_cmd, values), marker)
    except (EditFailed, NotAProgram) as failed:
        session.error = str(failed)
    wall = time.monotonic() - before
    if cut:  # a control belongs to the judgement
        slot.used("judge", wall)
    else:
        slot.used("train", session.seconds)
        slot.used("start", wall - session.seconds)
    failure = session.failure
    if failure and failure.retry and session.status == "crash" and _is_beyond_edits(environment):
        raise CannotStart(f"{failure.reason} (log: {place.log})")
    progress, checkpoint = session.progress, outputs.checkpoint(place.out) if session.status == "finished" else None
    return Run(
        f"{place.path.parent.name}/{place.path.name}", seed, round(session.seconds, 3), session.status, session.error,
        session.peak_memory, progress.steps, started, round(time.monotonic() - before, 3),
        progress.reported, session.startup and round(session.startup, 3), isolation=session.level,
        program=digest, checkpoint=checkpoint, curve=progress.curve,
        due=session.due, machine=machine(), job=os.environ.get("SLURM_JOB_ID", ""),
        resources=session.resources, usd=session.usd, note=progress.note,
    )  # fmt: skip


@dataclass(kw_only=True)
class _Session(TrainingSession):
    level: Level
    slot: Slot

    def run(self, command: list[str], marker: str) -> None:
        view = confinement.of(self.environment, readable=(self.place.workspace,), writable=(self.place.out,))
        with Program(
            command, cwd=self.place.workspace, log=self.place.log, marker=marker, level=self.level, view=view,
            limits=self.environment.limits, slot=self.slot,
        ) as program:  # fmt: skip
            try:
                try:
                    reason = self._watch(program)
                finally:
                    if not self.progress.ready:  # nobody knows how much of it was preparation
                        self.seconds = time.monotonic() - program.started
                # One whose process was killed at its own limit may take that for a fault of the machine.
                self.failure = None if reason and program.lacked_memory() else self.progress.failure
                reason = f"said: {self.failure.reason}" if self.failure else reason
            except Misbehaved as wrong:
                reason = str(wrong)
            program.kill()
            self.peak_memory = program.peak_memory
            self.resources = program.resources
            tail = program.tail()
        if self.status == "cancelled":  # what it left no longer matters
            return
        out, limits = self.place.out, self.environment.limits
        reason = reason or outputs.fault(out) or outputs.excess(out, limits)
        if not (reason or outputs.newest(out)):
            reason = f"{NO_CHECKPOINT}: save within its {self.times.budget_seconds:g} s, also as you go or at SIGTERM"
        if reason:
            self.error = f"{reason}\n{tail}".rstrip() + advice(self.level, self.environment, tail)

    def _watch(self, program: Program) -> str | None:
        """Let it run until it ends, its budget ends or it is cancelled; why it has not finished, or None."""
        ready: float | None = None
        poll = min(POLL_SECONDS, max(self.times.budget_seconds, FINEST_POLL_SECONDS))  # a control may have less time
        while (status := program.poll(poll)) is None:
            self.progress.read()
            now = time.monotonic()
            if ready is None and (self.progress.ready or now - program.started > self.times.startup_seconds):
                ready = now
                self.startup = ready - program.started if self.progress.ready else None
            if ready is None:
                continue
            self.passed(now - ready)
            if self.seconds >= self.times.budget_seconds:
                return self._stop(program)
            if self.is_to_stop():
                self._cancel(program)
                self.seconds = time.monotonic() - ready
                return "cancelled"
        self.progress.read_all()
        if ready is None and self.progress.ready:  # it ended before the first poll
            ready, self.startup = program.started, 0.0
        if ready is not None:
            self.passed(time.monotonic() - ready)
        return program.describe(status) if status else None

    def _cancel(self, program: Program) -> None:
        """Ask it to end with the file `cancel`; after a grace with SIGTERM, then with SIGKILL."""
        assert self.due is not None
        note = self.place.workspace / f".{CANCEL}"
        with suppress(OSError):  # unsandboxed, it may have removed its workspace: SIGTERM still reaches it
            note.write_text(self.due.reason + "\n")
            note.chmod(0o444)  # whatever the umask: it may run as another user
            note.replace(note.with_name(CANCEL))
        grace = self.environment.grace_seconds
        with suppress(Stopped):  # it exceeded a limit, and has been ended
            program.wait(grace)
            program.terminate(grace)

    def _stop(self, program: Program) -> str | None:
        grace = self.environment.grace_seconds
        if not program.terminate(grace):
            return f"did not stop within {grace:g} s of SIGTERM at the end of its budget, and was killed"
        self.progress.read_all()
        status = program.poll(0)
        if status in (0, -signal.SIGTERM, 143):  # 143 is a shell's status when SIGTERM ended its child
            return None
        return f"failed while stopping: {program.describe(status or 0)}"


def _is_beyond_edits(environment: Environment) -> bool:
    """Whether edits can change settings only, so that the code that runs is the environment's own."""
    started = [word for word in environment.train_cmd.split() if not word.startswith("-")][:2]  # python FILE
    names = {Path(word).name for word in started}
    return all(Path(name).suffix in DATA and Path(name).name not in names for name in environment.editable)

"""A launch as a Slurm job: submitted once, adopted while it lives, ended with its campaign.

The job runs what a worker of a process pool would: the flow `trial`, in a flow run that the campaign has created under
the launch's idempotency key. So the run is seen in Prefect while it waits in Slurm's queue, and its state there says
how it ended, where it could. Slurm's controller is asked for the rest, such as a preemption or a failed node.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefect.states import Cancelled, Crashed, Pending, to_state_create

from environments.plugins import Refused
from flows.engine.deployment_run import AWAY_SECONDS, CANCEL_SECONDS, FLOW, POLL_SECONDS, CannotLaunch, Child, key
from flows.engine.slurm import commands
from flows.engine.slurm.commands import AtLimit, JobState, SlurmAway
from flows.engine.slurm.request import JobRequest, environment_of_a_job, log_of, pattern, script
from tasks.store.launch_files import VISIBLE_SECONDS, Launches
from tasks.system import interrupt
from tasks.system.clock import clock
from tasks.system.files import write_atomic
from tasks.system.redact import capped, clean

if TYPE_CHECKING:
    from uuid import UUID

    from prefect import State
    from prefect.client.schemas.objects import FlowRun

LOOK_SECONDS = 2.0
"""Interval of questions to Slurm's controller about one job: it serves the whole cluster."""
TAIL_LINES = 5

log = logging.getLogger(__name__)


@dataclass
class SlurmJob(Child):
    """One launch: a job of Slurm's."""

    request: JobRequest
    job: str = field(default="", init=False)
    """Its number."""
    _state: JobState | None = field(default=None, init=False)
    """As last seen."""
    _looked: float = field(default=float("-inf"), init=False)
    _told: str = field(default="", init=False)
    _away: float | None = field(default=None, init=False)
    """Since when the controller does not answer."""

    @property
    def name(self) -> str:
        return "Slurm"

    @property
    def _facts(self) -> dict[str, object]:
        return {"job": self.job, "queued": round(self.waited, 1)}

    def _create(self, parameters: dict[str, Any]) -> UUID:
        from prefect.client.schemas.actions import FlowRunCreate
        from prefect.client.schemas.objects import FlowRun

        waits: State[None] = Pending(message="in Slurm's queue")
        wanted = FlowRunCreate(
            flow_id=self.client.create_flow_from_name(FLOW), parameters=parameters, tags=self._tags,
            name=f"{parameters['campaign']} {parameters['run']}", idempotency_key=key(self.asked, self.number),
            state=to_state_create(waits),
        )  # fmt: skip
        answer = self.client.request("POST", "/flow_runs/", json=wanted.model_dump(mode="json", exclude_unset=True))
        answer.raise_for_status()
        return FlowRun.model_validate(answer.json()).id

    def _begun(self) -> UUID:
        child = super()._begun()
        while not self.job:
            try:
                self.job = self._job(child)
            except SlurmAway as silent:
                self._say_away(silent)
                interrupt.wait(LOOK_SECONDS)
        self._away = None
        return child

    def _job(self, child: UUID) -> str:
        """The number of the launch's job: the noted one, one that was submitted before it could be noted, or a new one.

        Raises SlurmAway: then it may have been submitted all the same, and is found by its name.
        """
        if noted := self.launches.job(self.number):
            return noted
        name = job_name(self)
        job, what = commands.find(name), "found"
        if job is None:
            job, what = self._submit(name, child), "submitted"
        self.launches.submitted(self.number, job)
        self.note(what, job=job)
        return job

    def _submit(self, name: str, child: UUID) -> str:
        folder, at = self.launches.folder, self.asked.at
        file = folder / f"{self.number}.sh"
        write_atomic(file, script(child))
        comment = f"nightshift {self.server.ledger.campaign.name} trial {at.number} {key(self.asked, self.number)}"
        own = [f"--job-name={name}", f"--comment={comment}", f"--output={pattern(log_of(folder, self.number))}"]
        try:
            return commands.submit([*own, *self.request.arguments(self.asked.step)], str(file), environment_of_a_job())
        except Refused:
            self.launches.close(self.number)
            raise

    def _never_begun(self, run: FlowRun) -> str | None:
        return None  # Slurm knows more, see `_death`

    def _death(self, run: FlowRun | None) -> str | None:
        death = super()._death(run)
        if self.asked.is_done(self.server.ledger.results):
            return None
        if death is not None:
            self._cancel()  # one that was requeued would begin again
            self._until_over()
            return f"{self._state.words}: {death}" if self._state and self._state.is_over else death
        return self._look(run)

    def _look(self, run: FlowRun | None) -> str | None:
        """Why the job is dead by what Slurm says; None while it is not."""
        if clock() - self._looked < LOOK_SECONDS:
            return None
        self._looked = clock()
        try:
            state = commands.look(self.job)
        except SlurmAway as silent:  # the job goes on, and so does its heartbeat
            self._say_away(silent)
            return None
        self._away, self._state = None, state or self._state
        if run and run.state and run.state.is_cancelling():  # by a person, in Prefect
            self._cancel()
        why = self._lost_by(state)
        return why and self._dead(run, why)

    def _lost_by(self, state: JobState | None) -> str | None:
        """Why nothing more can be expected of a job in that state; None while something can."""
        if state is None:
            return f"Slurm does not know job {self.job} any more"
        if state.is_queued:
            self._tell_queue(state)
            return None
        self.waited = state.queued
        if state.restarts or state.state in commands.STANDS_STILL:  # its budget passes while it stands still
            return state.words
        if state.is_over and not self._has_results(VISIBLE_SECONDS if state.state == "COMPLETED" else 0.0):
            return f"{state.words}{self._tail()}"
        return None

    def _has_results(self, patience: float) -> bool:
        """Whether the results of a job that is over are visible within so many seconds."""
        deadline = clock() + patience
        while not (done := self.asked.is_done(self.server.ledger.results)) and clock() < deadline:
            interrupt.wait(POLL_SECONDS)
        return done

    def _tell_queue(self, state: JobState) -> None:
        if state.reason != self._told:
            self._told = state.reason
            who = f"Slurm's queue: {state.words.removeprefix('Slurm ')}"
            self.server.ledger.event("waiting", number=self.asked.at.number, job=self.job, who=who)

    def _dead(self, run: FlowRun | None, why: str) -> str:
        """End what may be left of the job, and say so in Prefect, where a killed run seems to run for ever."""
        self._cancel()
        self._until_over()
        # It may have said meanwhile what was wrong: an error of ours, or storage that is not shared.
        if run and (now := self.server.hear(lambda: self._read(run.id))) and now.state:
            if now.state.is_failed():
                super()._death(now)
            if not now.state.is_final():
                crashed: State[None] = Crashed(message=why)
                self.server.hear(lambda: self.client.set_flow_run_state(now.id, crashed, force=True))
        return why

    def _end(self, child: UUID) -> None:
        self._cancel()
        deadline = clock() + CANCEL_SECONDS
        while not self._is_over() and clock() < deadline:
            time.sleep(POLL_SECONDS)
        now = self._read(child)
        if now and now.state and not now.state.is_final():  # it never began, or was killed
            cancelled: State[None] = Cancelled(message="the campaign called it back")
            self.client.set_flow_run_state(child, cancelled, force=True)

    def _until_over(self) -> None:
        """Wait until the job has ended: two launches of a run would wait for each other."""
        deadline = clock() + CANCEL_SECONDS
        while not self._is_over() and clock() < deadline:
            interrupt.wait(POLL_SECONDS)
        if self._state and not self._state.is_over:
            self._cancel()

    def _is_over(self) -> bool:
        try:
            state = commands.look(self.job)
        except SlurmAway:
            return False
        self._state = state or self._state
        return state is None or state.is_over

    def _cancel(self) -> None:
        try:
            commands.cancel(self.job)
        except SlurmAway as silent:
            log.warning("Slurm job %s could not be cancelled: %s", self.job, silent)

    def _say_away(self, silent: SlurmAway) -> None:
        """Note once that Slurm does not do what it was asked. Raises CannotLaunch where that lasts AWAY_SECONDS."""
        if self._away is None:
            self._away = clock()
            self.note("waits", reason=str(silent))
            log.warning("Slurm: %s; waiting", silent)
        if clock() - self._away > AWAY_SECONDS and not isinstance(silent, AtLimit):
            raise CannotLaunch(f"Slurm's controller did not answer for {AWAY_SECONDS / 60:g} min: {silent}")

    def _tail(self) -> str:
        """The last lines of the job's output."""
        try:
            text = log_of(self.launches.folder, self.number).read_text(errors="replace")
        except OSError:
            return ""
        lines = [line for line in clean(text) if line.strip()][-TAIL_LINES:]
        return f": {capped(' '.join(lines), 500)}" if lines else ""


def job_name(child: Child) -> str:
    """The name of a launch's job, by which it is found again."""
    return f"nightshift-{key(child.asked, child.number)}".replace("/", "-").replace(" ", "-")


def end_left(campaign: Path) -> list[str]:
    """Cancel the jobs of launches that nobody waits for any more; their numbers. Raises SlurmAway."""
    noted = [(Launches(campaign, file.parent.name), int(file.stem)) for file in campaign.glob("launches/*/*.job")]
    left = [(launches, number) for launches, number in sorted(noted, key=str) if launches.waits_for(number)]
    active: frozenset[str] = commands.active() if left else frozenset()
    ended = []
    for launches, number in left:
        if (job := launches.job(number)) and job in active:
            commands.cancel(job)
            launches.close(number)
            ended.append(job)
    return ended

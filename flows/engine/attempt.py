"""An attempt at a trial: its runs, under way and done, and what it needs next."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from prefect import allow_failure
from prefect.futures import PrefectFuture
from prefect.utilities.annotations import quote

from environments import Environment
from environments.score import Score
from flows.engine import stopping
from tasks.bench import Bench, RunPlan, Units, folder_of
from tasks.checkpoint import result_of
from tasks.control import control
from tasks.decide import NeedsControl, weigh
from tasks.rules import BASELINE_SCORES, JudgedTrial, NeedsRerun, Rule
from tasks.run_checks import plausible_beside, same_play
from tasks.system.clock import covered
from tasks.task_key import TaskKey
from tasks.trial import History, Proposal, Rerun, Run, Trial, Verdict

if TYPE_CHECKING:
    from flows.engine.night import Night, Terms


@dataclass(frozen=True)
class Train:
    """The step that trains and judges a run."""

    plan: RunPlan
    of: int | None = None
    """The trial that is trained again, for a rerun; None for a trial's own run."""


@dataclass(frozen=True)
class Control:
    """The step that scores a would-be champion without its training."""

    plan: RunPlan
    trained: Run


Step = Train | Control
Future = PrefectFuture[Any]


@dataclass
class Measurement:
    bench: Bench
    plan: RunPlan
    first: Future
    """It trains, or it is the control."""
    judged: Future | None = None

    @property
    def last_task(self) -> Future:
        return self.judged or self.first

    @property
    def waited_for(self) -> concurrent.futures.Future[Any]:
        ended: concurrent.futures.Future[Any] = self.last_task.wrapped_future  # type: ignore[attr-defined]
        return ended

    def result(self, night: Terms, siblings: Sequence[Run] = ()) -> tuple[Run, Score]:
        """The run and its score, once both tasks have ended. Raises what the machine met. (siblings: other runs of the
        same proposal that are not in the history)
        """
        assert self.judged is not None, "a control has no run"
        environment = self.bench.environment
        run, judged = result_of(self.first), result_of(self.judged)
        run = plausible_beside(environment, night.history, self.plan.proposal, run, night.ledger.path, siblings)
        if run.status == "crash":
            judged = Score.missing(run.error or "crash", environment.higher_is_better)
        return run, judged


def controlled(night: Terms, step: Control, bench: Bench, after: Sequence[Future]) -> Measurement:
    """Control a would-be champion (tasks/control.py)."""
    arguments = map(quote, (step.plan, step.trained, night.need(step.plan, bench), night.reference))
    task = control.submit(quote(step.plan.key), bench, *arguments, wait_for=after, return_state=False)
    return Measurement(bench, step.plan, task)


@dataclass
class Attempt:
    night: Night = field(repr=False)
    key: TaskKey
    proposal: Proposal
    proposed: Sequence[Future] = ()
    """The task that proposed it; none for one that is run again."""
    steps: list[tuple[Step, Measurement]] = field(default_factory=list)
    is_last: bool = False
    """Whether there was no time for another run of it."""

    @property
    def number(self) -> int:
        return self.key.number

    @property
    def pending(self) -> list[concurrent.futures.Future[Any]]:
        return [one.waited_for for _, one in self.steps if not one.waited_for.done()]

    @property
    def last_tasks(self) -> list[allow_failure]:
        """The tasks on which the verdict rests, whether their programs crashed or not."""
        return [allow_failure(one.last_task) for _, one in self.steps]

    @property
    def evidence(self) -> tuple[TaskKey, History, Environment, Rule, JudgedTrial]:
        """The arguments of its verdict, among them all that was decided."""
        return self.key, self.night.history, self.night.environment, self.night.rule, self.tried

    def next_steps(self) -> list[Step]:
        """What is to be run before it can be decided: its training seeds, `parallel` at a time while enough of them can
        still have a score; then what the verdict asks for. None: it can be decided."""
        seeds, fewest = self._seeds
        scores = [score for _, score in self._own]
        if sum(score.value is None for score in scores) <= seeds - fewest and len(scores) < seeds:
            at_once = min(self.night.spec.parallel, seeds - len(scores))
            return [Train(self._plan(len(scores) + 1 + later, at_once)) for later in range(at_once)]
        _, seen, environment, rule, tried = self.evidence
        decision = weigh(seen, environment, rule, tried)
        if isinstance(decision, NeedsRerun) and (environment.deterministic or not self._rerun_fits()):
            self.is_last = True
            decision = weigh(seen, environment, rule, self.tried)
        if isinstance(decision, NeedsRerun):
            return [Train(self._rerun(decision.of, len(tried.reruns) + 1), decision.of)]
        return [Control(self.steps[0][1].plan, tried.runs[0])] if isinstance(decision, NeedsControl) else []

    @property
    def tried(self) -> JudgedTrial:
        runs, scores = zip(*self._own, strict=True)
        reruns, control = list[Rerun](), None
        for step, made in self.steps:
            if isinstance(step, Control):
                control = result_of(made.first)
            elif step.of is not None:
                siblings = runs if step.of == self.number else ()
                reruns.append(Rerun(step.of, *made.result(self.night, siblings)))
        score = Score.over(scores, self._seeds[1])
        return JudgedTrial(self.number, self.proposal, runs, score, tuple(reruns), control, self.is_last)

    def trial(self, verdict: Verdict) -> Trial:
        tried, night = self.tried, self.night
        runs = [*tried.runs, *(rerun.run for rerun in tried.reruns)]
        trained = covered((run.started, run.started + run.wall_seconds) for run in runs)  # before a kill
        return Trial(
            self.number, self.key.attempt, night.next_order, self.proposal, tried.runs, tried.score, verdict,
            max(night.bench.busy(self.number), trained), tried.reruns,
        )  # fmt: skip

    def _rerun_fits(self) -> bool:
        night = self.night
        in_time = stopping.rerun_fits(night.spec, night.environment, night.history, night.lock.spent)
        return in_time and not night.money.shortage(night.history)

    @property
    def _seeds(self) -> tuple[int, int]:
        """Its training seeds, and how many of them must have a score."""
        night = self.night
        if self.number:
            return night.spec.replicates, night.spec.replicates
        runs = night.rule.baseline_runs(night.spec.replicates, night.environment.deterministic)
        return runs, min(runs, BASELINE_SCORES)

    @property
    def _own(self) -> list[tuple[Run, Score]]:
        made: list[tuple[Run, Score]] = []
        environment, folder = self.night.environment, self.night.ledger.path
        for step, one in self.steps:
            if isinstance(step, Control) or step.of is not None:
                continue
            run, score = one.result(self.night, tuple(run for run, _ in made))
            if made and (reason := same_play(folder, environment.metric, (run, score), made[0])):
                run = replace(run, status="crash", error=reason)
                score = Score.missing(reason, environment.higher_is_better)
            made.append((run, score))
        return made

    def _plan(self, seed: int, at_once: int) -> RunPlan:
        """The run under the n-th training seed. Runs side by side are not stopped early: each would wait for none."""
        part = f"run-{seed}" if seed > 1 else ""
        plan = self._planned(self.proposal, part, stops_early=seed == 1 and at_once == 1)
        if self.number or seed == 1 or self.night.environment.deterministic:
            return plan
        return replace(plan, echo=Units(self.night.ledger.key(self.number, "", self.key.attempt)))

    def _rerun(self, of: int, count: int) -> RunPlan:
        own = of == self.number
        proposal = self.proposal if own else self.night.trial(of).proposal
        plan = self._planned(proposal, f"again-{count}" if own else f"again-{count}-of-{of:04d}")
        return replace(plan, use="confirm")

    def _planned(self, proposal: Proposal, part: str, stops_early: bool = False) -> RunPlan:
        ledger, attempt = self.night.ledger, self.key.attempt
        key, trial_dir = ledger.key(self.number, part, attempt), ledger.place(self.number, part, attempt)
        return RunPlan(key, proposal, folder_of(ledger.path, trial_dir), stops_early=stops_early)

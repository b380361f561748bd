"""An attempt at a trial: its runs, under way and done, and what it needs next."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from prefect.futures import PrefectFuture

from environments import Environment
from environments.score import Score
from flows.engine.stopping import rerun_fits
from tasks.bench import Bench, RunPlan, Units
from tasks.checkpoint import result_of
from tasks.decide import NeedsControl, weigh
from tasks.rules import BASELINE_SCORES, JudgedTrial, NeedsRerun, Rule
from tasks.run_checks import plausible_beside, same_play
from tasks.store.ledger import directory
from tasks.system.spans import covered
from tasks.task_key import TaskKey
from tasks.trial import History, Proposal, Rerun, Run, Trial, Verdict

if TYPE_CHECKING:
    from flows.engine.night import Night


Future = PrefectFuture[Any]


@dataclass
class Measurement:
    bench: Bench
    plan: RunPlan
    first: Future
    """It trains, or it is the control."""
    judged: Future | None = None
    launch: Future | None = None
    """It has another machine make the results of both."""

    @property
    def last_task(self) -> Future:
        return self.judged or self.first

    @property
    def waited_for(self) -> concurrent.futures.Future[Any]:
        ended: concurrent.futures.Future[Any] = self.last_task.wrapped_future  # type: ignore[attr-defined]
        return ended

    def first_result(self) -> Any:
        """The result of its first task. Raises what the machine met, or why no other machine has made it."""
        if self.launch:
            result_of(self.launch)
        return result_of(self.first)

    def result(self, night: Night, siblings: Sequence[Run] = ()) -> tuple[Run, Score]:
        """The run and its score, once both tasks have ended. Raises what the machine met. (siblings: other runs of the
        same proposal that are not in the history)
        """
        assert self.judged is not None, "a control has no run"
        environment = self.bench.environment
        run, judged = self.first_result(), result_of(self.judged)
        run = plausible_beside(environment, night.history, self.plan.proposal, run, night.ledger.path, siblings)
        if run.status == "crash":
            judged = Score.missing(run.error or "crash", environment.higher_is_better)
        return run, judged


@dataclass(eq=False)  # two are never the same
class Attempt:
    night: Night = field(repr=False)
    key: TaskKey
    proposal: Proposal
    proposed: Sequence[Future] = ()
    """The task that proposed it; none for one that is run again."""
    made: list[Measurement] = field(default_factory=list)
    tried: JudgedTrial = field(init=False)
    """What its runs show, once there are enough for a verdict, or for what a verdict needs besides."""

    @property
    def number(self) -> int:
        return self.key.number

    @property
    def is_running(self) -> bool:
        return not all(one.waited_for.done() for one in self.made)

    @property
    def evidence(self) -> tuple[TaskKey, History, Environment, Rule, JudgedTrial]:
        """The arguments of its verdict, among them all that was decided."""
        return self.key, self.night.history, self.night.environment, self.night.rule, self.tried

    def next_runs(self) -> list[RunPlan]:
        """What is to be run before it can be decided: its training seeds, `parallel` at a time while enough of them can
        still have a score; then what the verdict asks for. None: it can be decided."""
        night, own = self.night, self._own()
        seeds = night.spec.replicates
        if self.number == 0:
            seeds = night.rule.baseline_runs(seeds, night.environment.deterministic)
        fewest = seeds if self.number else min(seeds, BASELINE_SCORES)
        if sum(score.value is None for _, score in own) <= seeds - fewest and len(own) < seeds:
            at_once = min(night.spec.parallel, seeds - len(own))
            return [self._seed(len(own) + 1 + later, at_once) for later in range(at_once)]
        self.tried = self._judged(own, fewest)
        decision = weigh(*self.evidence[1:])
        if isinstance(decision, NeedsRerun):
            return [self._plan(f"again-{len(self.tried.reruns) + 1}", use="confirm")]
        if isinstance(decision, NeedsControl):
            return [replace(self.made[0].plan, control_of=self.tried.runs[0])]
        return []

    def trial(self, verdict: Verdict) -> Trial:
        tried, order = self.tried, 1 + max((trial.order for trial in self.night.history), default=-1)
        runs = [*tried.runs, *(rerun.run for rerun in tried.reruns)]
        trained = covered((run.started, run.started + run.wall_seconds) for run in runs)  # before a kill
        return Trial(
            self.number, self.key.attempt, order, self.proposal, tried.runs, tried.score, verdict,
            max(self.night.bench.busy(self.number), trained), tried.reruns,
        )  # fmt: skip

    def _own(self) -> list[tuple[Run, Score]]:
        """Its training seeds, as far as they are run."""
        made: list[tuple[Run, Score]] = []
        environment, folder = self.night.environment, self.night.ledger.path
        for one in self.made:
            if one.plan.control_of or one.plan.use == "confirm":
                continue
            run, score = one.result(self.night, tuple(run for run, _ in made))
            if made and (reason := same_play(folder, environment.metric, (run, score), made[0])):
                run = replace(run, status="crash", error=reason)
                score = Score.missing(reason, environment.higher_is_better)
            made.append((run, score))
        return made

    def _judged(self, own: Sequence[tuple[Run, Score]], fewest: int) -> JudgedTrial:
        """What its runs show. (fewest: how many of its training seeds must have a score)"""
        runs, scores = zip(*own, strict=True)
        reruns, control = list[Rerun](), None
        for one in self.made:
            if one.plan.control_of:
                control = one.first_result()
            elif one.plan.use == "confirm":
                reruns.append(Rerun(self.number, *one.result(self.night, runs)))
        score, is_last = Score.over(scores, fewest), self.night.environment.deterministic or not rerun_fits(self.night)
        return JudgedTrial(self.number, self.proposal, runs, score, tuple(reruns), control, is_last)

    def _seed(self, number: int, at_once: int) -> RunPlan:
        """The run under the n-th training seed. Runs side by side are not stopped early: each would wait for none; nor
        the baseline, and what a person has run again.
        """
        compared = number > 1 and self.number == 0 and not self.night.environment.deterministic
        stops_early = self.number > 0 and self.key.attempt == number == at_once == 1
        part, echo = f"run-{number}" if number > 1 else "", Units(self.key) if compared else None
        return self._plan(part, stops_early=stops_early, echo=echo)

    def _plan(self, part: str, **more: Any) -> RunPlan:
        folder = f"trials/{directory(self.number, self.key.attempt, part)}"
        return RunPlan(replace(self.key, part=part), self.proposal, folder, **more)

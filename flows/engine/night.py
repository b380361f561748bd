"""A night: a campaign that this process runs, with what its loop, its certificate and its reruns work with."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from prefect import State, get_run_logger, runtime
from prefect.states import Completed, Failed

from environments import Environment
from environments.score import Score, Wait
from flows.engine import launching
from flows.engine.attempt import Attempt
from flows.engine.preparation import ensure_prepared
from flows.engine.recovery import cancellable, crash_earlier_runs, heed_the_server
from flows.engine.stopping import ASKED, Stop
from flows.report.page import record_episode, write_report
from flows.spec.campaign_spec import CampaignSpec
from flows.spending import CampaignBudget, check_budget
from flows.views import run_log
from flows.views.run_log import REST_SECONDS, Artifact
from tasks.bench import Bench, RunPlan
from tasks.checkpoint import results_in
from tasks.control import baseline_need
from tasks.describe import headline
from tasks.record import reconcile
from tasks.stats.certificate import own_certificates
from tasks.store.campaign_lock import CampaignLock
from tasks.store.ledger import Ledger
from tasks.system import interrupt
from tasks.system.clock import clock
from tasks.system.home import home
from tasks.tracking.background import Background
from tasks.tracking.connection import locate
from tasks.tracking.sync import sync
from tasks.trial import Curve, History, Run, Trial, baseline

POLL_SECONDS = 0.5
"""Interval of checks for signals while tasks run."""
IDLE_SECONDS = 2.0
"""Interval of checks for an approval while none runs."""
HEED_SECONDS = 5.0
"""Least interval, between trials, of questions whether a person has paused or cancelled the run: each is a request."""


def bench_of(
    spec: CampaignSpec, ledger: Ledger, transfer: Environment | None = None, budget: float = 1.0, launched: bool = False
) -> Bench:
    """Where and how runs are made; the rest as in `Bench`."""
    slots, price = spec.slots(transfer or ledger.environment), spec.advanced.usd_per_hour
    return Bench(ledger, spec.isolation, slots, spec.parallel, transfer, budget, price, launched)


class Terms:
    """The terms on which the runs of a campaign are made, by what was decided before them."""

    def __init__(self, spec: CampaignSpec, ledger: Ledger, history: History, bench: Bench) -> None:
        self.spec, self.ledger, self.bench = spec, ledger, bench
        self.environment: Environment = ledger.environment
        self.history = history
        """Every decided trial, in the order of the decisions."""

    def early_stop(self, plan: RunPlan) -> Callable[[Curve], str | None] | None:
        """Why a run with this progress should end early; None where none may be stopped."""
        canceller = self.spec.loaded_canceller(self.environment)
        if canceller is None or not self.history or not plan.stops_early:
            return None
        return partial(canceller.look, self.history, higher_is_better=self.environment.higher_is_better)

    def need(self, plan: RunPlan, bench: Bench) -> Wait | None:
        """What the baseline needed under judgement; None in another environment, whose baseline is not known."""
        return baseline_need(self.history, plan.proposal) if bench.environment.name == self.environment.name else None

    @property
    def reference(self) -> tuple[Run, Score]:
        """The baseline's first run with a score, with which a champion is controlled."""
        known = baseline(self.history)
        assert known is not None, "a control is asked for where there is a champion"
        judged = list(zip(known.runs, known.score.each, strict=False))  # the last run may have crashed
        return next((one for one in judged if one[1].value is not None), judged[0])


class Night(Terms):
    def __init__(
        self,
        spec: CampaignSpec,
        ledger: Ledger,
        lock: CampaignLock,
        history: History,
        follow_up: Callable[[History], None],
    ) -> None:
        super().__init__(spec, ledger, history, bench_of(spec, ledger))
        self.benches = [self.bench]
        self.lock, self.rule = lock, spec.loaded_rule
        self.money = CampaignBudget(spec, ledger, ledger.environment)
        self.nothing_for: tuple[object, ...] = ()
        """What was known when there was last nothing to propose: nobody is asked again before it changes."""
        self.ending: Stop | None = None
        self._follow_up = follow_up

    def bench_for(self, transfer: Environment | None, budget: float) -> Bench:
        """The bench of a certificate: its own in another environment, or with another training budget."""
        if transfer is None and budget == 1:
            return self.bench
        self.benches.append(bench_of(self.spec, self.ledger, transfer, budget))
        return self.benches[-1]

    def trial(self, number: int) -> Trial:
        return next(trial for trial in self.history if trial.number == number)

    def rerun_due(self, under_way: Sequence[Attempt]) -> Attempt | None:
        busy = {one.number for one in under_way}
        for number, attempt in self.ledger.pending_attempts().items():
            if number not in busy:
                return Attempt(self, self.ledger.key(number, attempt=attempt), self.trial(number).proposal)
        return None

    def ended(self, under_way: Sequence[Attempt]) -> list[Attempt]:
        """The attempts without a run under way, new ones among them; waits a moment for one, or for a person."""
        interrupt.check()
        if not under_way:
            interrupt.wait(IDLE_SECONDS)
        elif all(one.pending for one in under_way):
            self.wait_for([future for one in under_way for future in one.pending])
        return [one for one in under_way if not one.pending]

    def wait_for(self, futures: Sequence[concurrent.futures.Future[Any]]) -> None:
        """Return when one of these has ended, or after IDLE_SECONDS."""
        for _ in range(int(IDLE_SECONDS / POLL_SECONDS)):
            interrupt.check()
            if concurrent.futures.wait(futures, POLL_SECONDS, concurrent.futures.FIRST_COMPLETED).done:
                return

    def remember(self, history: History) -> None:
        self.history = history
        self._follow_up(history)

    def close(self, stop: Stop) -> None:
        """End the night; what is left is done where the block of `opened` ends."""
        if stop.state == "finished":
            try:
                record_episode(self.ledger, self.spec.isolation.level, self.spec.advanced.allow_unsandboxed)
            except Exception as fault:  # noqa: BLE001 (the result is known, and the report can do without)
                self.ledger.event("view", failed="episode", error=f"{type(fault).__name__}: {fault}")
        self.ending = stop

    @property
    def state(self) -> State[str]:
        assert self.ending is not None, "it was closed"
        if self.ending.state == "failed":
            return Failed(message=f"{self.spec.name}: {self.ending.reason}")
        result = headline(self.history, own_certificates(self.ledger.certificates()))
        return Completed(message=f"{self.spec.name}: {result}; {self.ending.reason}", data=self.spec.name)

    def close_benches(self) -> None:
        """End what still runs: of a night that is cut off, nobody needs it."""
        for bench in self.benches:
            bench.close()


@contextmanager
def opened(spec: CampaignSpec, **facts: object) -> Iterator[Night]:
    """Hold a campaign while the block runs, a new one or one that goes on, and complete its records at the end.

    The block calls `Night.close`; one that an exception ends leaves a campaign that can be resumed. Refused if it
    cannot run, or another process runs it.

    Args:
        facts: What distinguishes this life of the campaign from one that searches: `certify`, `rerun`.
    """
    run = runtime.flow_run
    if not facts:
        spec.check()
        spec.loaded_proposer.preflight(check_budget(spec))
        launching.check(spec.launch)
    ledger = spec.open()
    with (
        cancellable() as server, CampaignLock(ledger, run.id, page=run.ui_url, **facts) as lock,
        results_in(ledger.results),
    ):  # fmt: skip
        spec.store(ledger)
        crash_earlier_runs(ledger, run.id)
        ensure_prepared(ledger)
        history = reconcile(ledger)
        store = locate(spec.tracking, home())
        get_run_logger().info(f"MLflow: {store or 'off'}")
        artifact, warn = Artifact(ledger, run.id, write_report), get_run_logger().warning
        with Background(ledger, "tracking", lambda: sync(ledger, store, "running").problem, warn) as recording:
            with Background(ledger, "view", artifact.update, warn, REST_SECONDS) as views:
                heeded = clock()

                def follow_up(history: History) -> None:
                    nonlocal heeded
                    run_log.decided(history)
                    if clock() - heeded > HEED_SECONDS:
                        heed_the_server(server)
                        heeded = clock()

                night = Night(spec, ledger, lock, history, follow_up)
                run_log.begin(ledger, history)
                try:
                    yield night
                finally:
                    night.close_benches()
                ending = night.ending or ASKED
                views.close(lambda: artifact.update(ending))
                run_log.end(ledger, night.history, ending.reason)
            recording.close(lambda: sync(ledger, store, ending.state).problem)  # with certificate and final picture
        ledger.event("end", state=ending.state, reason=ending.reason)

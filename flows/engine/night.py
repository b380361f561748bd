"""A night: a campaign that this process runs, with what its loop, its certificate and its reruns work with."""

from __future__ import annotations

import concurrent.futures
import contextlib
import contextvars
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from prefect import State, get_run_logger, runtime
from prefect.exceptions import Pause
from prefect.states import Completed, Failed

from environments import Environment
from environments.plugins import Refused
from environments.score import Score, Wait
from flows.budget import CampaignBudget, check_budget
from flows.engine import launching
from flows.engine.attempt import Attempt, Measurement
from flows.engine.recovery import cancellable, crash_earlier_runs, heed_the_server
from flows.engine.stopping import ASKED
from flows.report.page import record_episode, write_report
from flows.spec.campaign_spec import CampaignSpec
from flows.views import run_log
from flows.views.run_log import REST_SECONDS, Artifact
from tasks import preparing
from tasks.bench import Bench, RunPlan
from tasks.checkpoint import results_in
from tasks.control import baseline_need
from tasks.describe import headline
from tasks.record import reconcile
from tasks.store import campaign_lock
from tasks.store.ledger import Ledger
from tasks.system import interrupt
from tasks.system.home import home
from tasks.tracking.connection import locate
from tasks.tracking.sync import sync
from tasks.trial import Curve, History, Run, Trial, baseline

POLL_SECONDS = 0.05
IDLE_SECONDS = 2.0
"""Interval of looks at the stop rules, and for an approval, while no run ends."""
CLOSE_SECONDS = 300.0
"""How long a campaign waits at its end for a server that is slow."""
NEWS = ("settled", "looked", "certified", "ablated")
"""Events after which there is more to show in MLflow and in the report."""


def bench_of(
    spec: CampaignSpec, ledger: Ledger, transfer: Environment | None = None, budget: float = 1.0, launched: bool = False
) -> Bench:
    """Where and how runs are made; the rest as in `Bench`."""
    slots, price = spec.slots(transfer or ledger.environment), spec.advanced.usd_per_hour
    return Bench(ledger, spec.isolation, slots, spec.parallel, transfer, budget, price, launched)


class Night:
    """What a campaign's loop, its certificate and its reruns work with; a launched run has one of its own."""

    def __init__(self, spec: CampaignSpec, ledger: Ledger, history: History, bench: Bench | None = None) -> None:
        self.spec, self.ledger, self.bench = spec, ledger, bench or bench_of(spec, ledger)
        self.environment: Environment = ledger.environment
        self.rule = spec.loaded_rule
        self.money = CampaignBudget(spec, ledger, ledger.environment)
        self.history = history
        """Every decided trial, in the order of the decisions."""
        self.running: set[concurrent.futures.Future[Any]] = set()
        """The runs that are under way."""
        self.nothing_for: tuple[object, ...] = ()
        """What was known when there was last nothing to propose: nobody is asked again before it changes."""
        self.pause: Pause | None = None
        """What a person has asked the server for: nothing new begins, and it ends so."""
        self.ending = ASKED
        """How it ends, which the block of `opened` says."""

    def early_stop(self, plan: RunPlan) -> Callable[[Curve], str | None] | None:
        """Why a run with this progress should end early; None where none may be stopped."""
        canceller = self.spec.loaded_canceller(self.environment)
        if canceller is None or not self.history or not plan.stops_early:
            return None
        return partial(canceller.look, self.history, higher_is_better=self.environment.higher_is_better)

    def need(self, plan: RunPlan, bench: Bench) -> Wait | None:
        """What the baseline needed under judgement; None in another environment, whose baseline is not known."""
        return baseline_need(self.history, plan.proposal) if bench.environment.name == self.environment.name else None

    def follow(self, made: Measurement) -> Measurement:
        """Count a measurement among what is under way, until it has ended."""
        self.running.add(made.waited_for)
        made.waited_for.add_done_callback(self.running.discard)
        return made

    def end_runs(self) -> None:
        """End what still runs: of a night that is cut off, nobody needs it."""
        if self.running:
            with interrupt.asked():
                concurrent.futures.wait([*self.running])

    @property
    def reference(self) -> tuple[Run, Score]:
        """The baseline's first run with a score, with which a champion is controlled."""
        known = baseline(self.history)
        assert known is not None, "a control is asked for where there is a champion"
        judged = list(zip(known.runs, known.score.each, strict=False))  # the last run may have crashed
        return next((one for one in judged if one[1].value is not None), judged[0])

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
        if all(one.is_running for one in under_way):
            self.wait()
        if not under_way:
            self.heed()
        return [one for one in under_way if not one.is_running]

    def wait(self) -> None:
        """Return when a run has ended, or after IDLE_SECONDS."""
        runs, until = len(self.running), time.monotonic() + IDLE_SECONDS
        while len(self.running) >= runs and time.monotonic() < until:
            interrupt.wait(POLL_SECONDS)

    def remember(self, history: History) -> None:
        self.history = history
        run_log.decided(history)
        self.heed()

    def heed(self) -> None:
        """See whether a person has paused it, or cancelled it without a worker. Raises KeyboardInterrupt: it was."""
        self.pause = self.pause or heed_the_server()

    @property
    def state(self) -> State[str]:
        if self.ending.state == "failed":
            return Failed(message=f"{self.spec.name}: {self.ending.reason}")
        result = headline(self.history, self.ledger.own_certificates())
        return Completed(message=f"{self.spec.name}: {result}; {self.ending.reason}", data=self.spec.name)


class Background:
    """Acts at the beginning of a `with` block, after each trial and certificate, and at the end by `close`.

    Faults never end a campaign: each is an event and a warning, once until it works again.
    """

    def __init__(
        self, ledger: Ledger, kind: str, act: Callable[[], str], warn: Callable[[str], None], rest: float = 1.0
    ) -> None:
        """
        Args:
            kind: Of the events that tell of faults.
            act: Brings it up to date; says what is not, else nothing. What it raises is a fault too.
            rest: Seconds between two calls, and at most for the last one where `close` was not called.
        """
        self._ledger, self._kind, self._act, self._warn, self._rest = ledger, kind, act, warn, rest
        self._problem = ""
        self._over = threading.Event()
        # Prefect's settings, the server's address among them, are variables of the context.
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._work,), name=kind, daemon=True)

    def __enter__(self) -> Background:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(self._rest)  # of a campaign that was cut off: a last time

    def close(self, act: Callable[[], str]) -> None:
        """Act a last time, on the campaign's end, and wait for that, a bounded time."""
        self._act = act
        self._over.set()
        until = time.monotonic() + CLOSE_SECONDS
        while self._thread.is_alive() and time.monotonic() < until:
            interrupt.check()
            self._thread.join(POLL_SECONDS)
        if self._thread.is_alive():
            self._say(f"{self._kind}: not done within {CLOSE_SECONDS:g} s")

    def _work(self) -> None:
        known, is_over = -1, False
        while not is_over:
            is_over = self._over.is_set()
            try:
                news = sum(event["event"] in NEWS for event in self._ledger.events())
                if is_over or news != known:
                    known = news
                    self._say(self._act())
            except Exception as fault:  # noqa: BLE001 (a damaged file, a full disk, a server: no fault here ends a campaign)
                self._say(f"{type(fault).__name__}: {fault}")
            self._over.wait(self._rest)

    def _say(self, problem: str) -> None:
        """Tell of a problem, unless there was one already."""
        if problem and not self._problem:
            with contextlib.suppress(OSError):  # no room on the disk for that either
                self._ledger.event(self._kind, error=problem)
            self._warn(f"{problem}; the campaign goes on, and what is missing comes later")
        self._problem = problem


def ensure_prepared(ledger: Ledger, elsewhere: Environment | None = None) -> None:
    """Prepare a campaign's frozen environment, or another that is frozen with it, unless that is done. Refused if it
    cannot be prepared, or its content differs from what the campaign began with.
    """
    environment = elsewhere or ledger.environment
    if environment.prepare:
        final = preparing.prepare(environment, ledger.path.parent, lambda words: ledger.event("preparing", words=words))
        made, wanted = preparing.read(final), 0 if elsewhere else getattr(environment.judge, "questions", 0)
        if made and (has := min(made.questions.get(pool, 0) for pool in ("search", "confirm"))) < wanted:
            raise Refused(f"{environment.name}: a look asks {wanted} questions, a pool has {has}: lower text.questions")


@contextmanager
def opened(spec: CampaignSpec, **facts: object) -> Iterator[Night]:
    """Hold a campaign while the block runs, a new one or one that goes on, and complete its records at the end.

    The block sets `Night.ending`; one that an exception ends leaves a campaign that can be resumed. Refused if it
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
        cancellable(), campaign_lock.hold(ledger, run.id, page=run.ui_url, api=run.api_url, **facts),
        results_in(ledger.results),
    ):  # fmt: skip
        spec.store(ledger)
        crash_earlier_runs(ledger, run.id)
        ensure_prepared(ledger)
        history = reconcile(ledger)
        store = locate(spec.tracking, home())
        get_run_logger().info(f"MLflow: {store or 'off'}")
        artifact, warn = Artifact(ledger, run.id, write_report), get_run_logger().warning
        with (
            Background(ledger, "tracking", lambda: sync(ledger, store, "running").problem, warn) as recording,
            Background(ledger, "view", artifact.update, warn, REST_SECONDS) as views,
        ):
            night = Night(spec, ledger, history)
            run_log.begin(ledger, history)
            try:
                yield night
            finally:
                night.end_runs()
            ending = night.ending
            if ending.state == "finished":
                try:
                    record_episode(ledger, spec.isolation.level, spec.advanced.allow_unsandboxed)
                except Exception as fault:  # noqa: BLE001 (the result is known, and the report can do without)
                    ledger.event("view", failed="episode", error=f"{type(fault).__name__}: {fault}")
            views.close(lambda: artifact.update(ending))
            run_log.end(ledger, night.history, ending.reason)
            recording.close(lambda: sync(ledger, store, ending.state).problem)  # with certificate and final picture
        ledger.event("end", state=ending.state, reason=ending.reason)
        if night.pause:
            raise night.pause

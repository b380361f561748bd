"""Campaign state: the decided trials, and the steps that decide one more.

Trials may train side by side, in threads, but are decided and recorded one after another, in the order in which they
finish. That order is stored (`Trial.settle`), so a resumed campaign sees the same history.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from flows.engine import stopping
from flows.engine.runner import Runner
from flows.spec.campaign_spec import CampaignSpec
from flows.spending.budget import CampaignBudget
from flows.views import run_log
from tasks.cache_key import history_digest
from tasks.decide import weigh
from tasks.deciding.values import JudgedTrial
from tasks.machine.slots import Slots
from tasks.record import record
from tasks.spending.spent import slots_usd
from tasks.store import workspace
from tasks.store.ledger import Ledger
from tasks.system import interrupt
from tasks.system.clock import clock, covered
from tasks.tracking.sender import Sender
from tasks.trial import History, Proposal, Trial, Verdict

LOOK_SECONDS = 0.1
"""Interval of checks whether the baseline is decided."""


@dataclass
class CampaignState:
    """The trials of a running campaign, from proposal to record."""

    spec: CampaignSpec
    ledger: Ledger
    sender: Sender
    slots: Slots
    history: History
    """Every decided trial, in the order of the decisions."""
    show: Callable[[History], None]
    budget: CampaignBudget
    nothing_for: tuple[object, ...] = ()
    """What was known when there was last nothing to propose: nobody is asked again before it changes."""
    _trained_ahead: set[int] = field(default_factory=set, init=False)
    _settling: threading.Lock = field(default_factory=threading.Lock, init=False)

    @property
    def runner(self) -> Runner:
        return Runner(self.spec, self.ledger, self.history, self.slots)

    def trial(self, number: int, proposal: Proposal) -> None:
        """Train, judge, decide and record one trial. Beside a baseline that crashes it stays undecided."""
        began, begun = clock(), time.time()
        if number and not self.history:
            began += self._beside_the_baseline(number, proposal)
            if stopping.crashed_baseline(self.history):
                return
        runner = self.runner
        tried = runner.trial(number, proposal)
        if known := workspace.finished(self.ledger.place(number)):
            # A recomputed verdict (flows/engine/redecide.py) may have asked for its reruns in another order.
            tried = replace(tried, reruns=known.reruns)
        while True:
            with self._settling:  # another trial may have been decided meanwhile, and changed the champion
                runner = replace(runner, history=self.history)
                wanted = weigh(runner.history, self.ledger.environment, self.spec.loaded_rule, tried)
                if isinstance(wanted, Verdict):
                    # Waits for slots and other machines say nothing of how long a trial takes.
                    seconds = max(clock() - began - runner.queued_seconds, 0.0) + _trained_before(tried, begun)
                    self._record(runner, tried, runner.decide(tried), seconds)
                    return
            tried = runner.more(tried, wanted)

    def _beside_the_baseline(self, number: int, proposal: Proposal) -> float:
        """Train a trial while the baseline is under way, and wait for its decision; returns the seconds of waiting."""
        runner = self.runner
        runner.train_ahead(number, proposal)
        began = clock()
        self._trained_ahead.add(number)
        while not self.history:
            interrupt.wait(LOOK_SECONDS)
        return clock() - began + runner.queued_seconds

    @property
    def resting(self) -> frozenset[int]:
        """Trials that have trained beside the baseline and wait for its decision, without a slot."""
        return frozenset() if self.history else frozenset(self._trained_ahead)

    def _record(self, runner: Runner, tried: JudgedTrial, verdict: Verdict, seconds: float) -> None:
        at, is_new = self.ledger.at(tried.number), workspace.finished(self.ledger.place(tried.number)) is None
        trial = Trial(
            tried.number, at.attempt, len(runner.history), tried.proposal, tried.runs, tried.score, verdict, seconds,
            tried.reruns, slots_usd=slots_usd(self.ledger, tried.number),
        )  # fmt: skip
        self.history += (record(self.ledger, self.sender, runner.history, trial),)
        self.show(self.history)
        if is_new:
            run_log.decided(self.history)

    def decided(self) -> int | None:
        """The trial that an earlier process decided and did not record; None if there is none.

        It is the next trial to record: its verdict was computed for exactly this history.
        """
        digest = history_digest(self.history)
        decisions = self.ledger.results.glob(f"{self.ledger.campaign.campaign_id}/*/*/*/decide-{digest}")
        numbers = (int(path.parts[-3]) for path in decisions)
        return next((n for n in numbers if not workspace.finished(self.ledger.place(n))), None)


def _trained_before(tried: JudgedTrial, begun: float) -> float:
    """Seconds that runs of a trial took in earlier processes; this one took it up at `begun`, in Unix time."""
    runs = [*tried.runs, *(rerun.run for rerun in tried.reruns if not rerun.calibrated)]
    return covered((run.started, run.started + run.wall_seconds) for run in runs if run.started < begun)

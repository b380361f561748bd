"""The night: what a campaign has decided so far, and how one more trial comes to be decided.

Several trials may be under way at once, in threads; they train side by side, and are decided and recorded one after
another, in the order in which they come to their end. That order is stored (`Trial.settle`), so another life sees the
same history.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from flows.engine.runner import Bench
from flows.spec.campaign_spec import CampaignSpec
from tasks.checkpoint import history_digest, whole
from tasks.decide import weigh
from tasks.deciding.values import JudgedTrial
from tasks.machine.slots import Slots
from tasks.record import record
from tasks.store import workspace
from tasks.store.ledger import Ledger
from tasks.system.clock import clock
from tasks.tracking.outbox import Outbox
from tasks.trial import History, Proposal, Trial, Verdict


class CampaignState:
    """A campaign's trials, from their proposals to their records."""

    def __init__(
        self,
        spec: CampaignSpec,
        ledger: Ledger,
        outbox: Outbox,
        slots: Slots,
        history: History,
        show: Callable[[History], None],
    ) -> None:
        self.spec, self.ledger, self.outbox, self.slots = spec, ledger, outbox, slots
        self._history = history
        self._show = show
        self._settling = threading.Lock()

    @property
    def history(self) -> History:
        """Every trial that is decided, in the order in which they were."""
        return self._history

    @property
    def bench(self) -> Bench:
        return Bench(self.spec, self.ledger, self._history, self.slots)

    def trial(self, number: int, proposal: Proposal) -> None:
        """Train, judge, decide and record one trial."""
        began, bench = clock(), self.bench
        tried = bench.trial(number, proposal)
        if known := workspace.finished(self.ledger.place(number)):
            # A verdict that was given anew (flows/engine/redecide.py) may have asked for them in another order.
            tried = replace(tried, reruns=known.reruns)
        while True:
            with self._settling:  # another may have been decided meanwhile, and raised the bar
                bench = replace(bench, history=self._history)
                wanted = weigh(bench.history, self.ledger.environment, self.spec.loaded_rule, tried)
                if isinstance(wanted, Verdict):
                    self._record(bench, tried, bench.decide(tried), clock() - began)
                    return
            tried = bench.more(tried, wanted)

    def _record(self, bench: Bench, tried: JudgedTrial, verdict: Verdict, seconds: float) -> None:
        at = self.ledger.at(tried.number)
        trial = Trial(
            tried.number, at.attempt, len(bench.history), tried.proposal, tried.runs, tried.score, verdict, seconds,
            tried.reruns,
        )  # fmt: skip
        recorded = record(at, self.ledger, self.outbox, whole(bench.history), whole(trial))
        self._history += (recorded,)
        self._show(self._history)

    def decided(self) -> int | None:
        """The trial that was decided when an earlier life ended, and not recorded; None without one.

        It has to be the next: its verdict was given after just this history.
        """
        digest = history_digest(self._history)
        found = self.ledger.results.glob(f"{self.ledger.campaign.campaign_id}/*/*/*/decide-{digest}")
        numbers = (int(path.parts[-3]) for path in found)
        return next((n for n in numbers if not workspace.finished(self.ledger.place(n))), None)

"""`nightshift sync`: send MLflow what waits of campaigns that are over, or that stopped while it was away.

A campaign that runs sends what waits by itself, after its next trial and at its end.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal, cast

from environments.plugins import Refused
from flows.server import connect
from flows.views import terminal
from flows.views.status import state, stored_spec
from tasks.store import life
from tasks.store.ledger import Ledger, campaigns
from tasks.system.home import home
from tasks.tracking.outbox import Outbox, waiting


@dataclass(frozen=True)
class Sent:
    """What became of the records of one campaign that waited."""

    campaign: str
    sent: int
    waiting: int
    problem: str
    """Why some still wait; empty when none does."""

    @property
    def words(self) -> str:
        told = f"{self.campaign}: {_records(self.sent)} sent"
        return f"{told}, {self.waiting} still waiting: {self.problem}" if self.waiting else told


def sync(name: str | None, as_json: bool) -> int:
    """Send what waits of a campaign, or of every one; 1 where something still waits afterwards.

    Raises:
        Refused: the campaign is running.
    """
    connect.settle_in(home())
    if name is not None and life.is_running(Ledger.open(name)):
        raise Refused(f"campaign {name!r} is running: it sends what waits by itself, after its next trial")
    ledgers = [Ledger.open(one) for one in ([name] if name else campaigns())]
    idle = [ledger for ledger in ledgers if not life.is_running(ledger)]
    done = [send(ledger) for ledger in idle if waiting(ledger, ledger.history())]
    if as_json:
        terminal.print_json([asdict(one) for one in done])
    for one in () if as_json else done:
        print(terminal.clean(one.words))
    if not (done or as_json):
        print("nothing waits for MLflow")
    return 1 if any(one.waiting for one in done) else 0


def send(ledger: Ledger) -> Sent:
    """Send what waits of one campaign that nobody runs."""
    history = ledger.history()
    before = waiting(ledger, history)
    lives = [event for event in ledger.events() if event["event"] == "life"]
    outbox = Outbox(
        ledger, stored_spec(ledger).get("tracking"), lives[-1].get("flow_run_id") if lives else None, history
    )
    how = state(ledger)
    ending = cast(
        Literal["finished", "failed", "stopped"], how if how in ("finished", "failed") else "stopped"
    )
    outbox.close(ending)
    left = waiting(ledger, history)
    return Sent(ledger.campaign.name, before - left, left, outbox.problem)


def _records(count: int) -> str:
    return f"{count} record{'' if count == 1 else 's'}"

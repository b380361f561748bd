"""`nightshift sync`: send the records that wait for MLflow, of campaigns that are not running.

A running campaign sends its records itself, after each trial and at its end.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass

from environments.plugins import Refused
from flows.server import server_process
from flows.views import terminal
from flows.views.status import state, stored_spec
from tasks.store import campaign_lock
from tasks.store.ledger import Ledger, readable
from tasks.system.home import home
from tasks.tracking.outbox import Outbox
from tasks.tracking.receipts import is_left_open, store_of, waiting
from tasks.trial import History


@dataclass(frozen=True)
class Sent:
    """The result for one campaign."""

    campaign: str
    sent: int
    waiting: int
    problem: str
    """Why records still wait; empty when none does."""

    @property
    def words(self) -> str:
        result = f"{self.campaign}: {self.sent} record{'' if self.sent == 1 else 's'} sent"
        return f"{result}, {self.waiting} still waiting: {self.problem}" if self.waiting else result


def sync(name: str | None, as_json: bool) -> int:
    """Send the waiting records of a campaign, or of all; 1 where some still wait or cannot be read, else 0.

    Raises:
        Refused: the campaign is running.
    """
    server_process.settle_in(home())
    if name is not None and campaign_lock.is_running(Ledger.open(name)):
        raise Refused(f"campaign {name!r} is running: it sends its records itself, after its next trial")
    ledgers = [Ledger.open(name)] if name else [*readable()]
    idle = [ledger for ledger in ledgers if not campaign_lock.is_running(ledger)]
    results, refused = list[Sent](), False
    for ledger in idle:
        try:
            if due(ledger, ledger.history()):
                results.append(send(ledger))
        except Refused as fault:
            if name:
                raise
            refused = True
            print(f"{ledger.campaign.name}: left alone: {fault}", file=sys.stderr)
    if as_json:
        terminal.print_json([asdict(result) for result in results])
    else:
        print("\n".join(terminal.clean(result.words) for result in results) or "nothing waits for MLflow")
    return int(refused or any(result.waiting for result in results))


def due(ledger: Ledger, history: History) -> int:
    """Number of records that wait, with the end of a campaign that was cut off."""
    return waiting(ledger, history) + is_left_open(ledger)


def send(ledger: Ledger) -> Sent:
    """Send the waiting records of a campaign that is not running.

    Raises:
        Refused: they would go elsewhere than the campaign's earlier ones.
    """
    history, tracking = ledger.history(), stored_spec(ledger).get("tracking")
    before = due(ledger, history)
    flow_runs = [event.get("flow_run_id") for event in ledger.events() if event["event"] == "life"]
    outbox = Outbox(ledger, tracking, flow_runs[-1] if flow_runs else None, history)
    recorded = store_of(ledger)
    if not tracking and recorded and recorded != outbox.tracker.store:
        raise Refused(
            f"campaign {ledger.campaign.name!r} is recorded in {recorded}, and from here its records would go to "
            f"{outbox.tracker.store or 'nowhere'}: set PREFECT_API_URL or MLFLOW_TRACKING_URI as where it ran, or "
            f"`nightshift resume {ledger.campaign.name} --tracking ADDRESS`"
        )
    end = state(ledger)
    outbox.close("finished" if end == "finished" else "failed" if end == "failed" else "stopped")
    left = due(ledger, history)
    return Sent(ledger.campaign.name, before - left, left, outbox.problem)

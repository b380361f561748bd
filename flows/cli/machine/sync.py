"""`nightshift sync`: record in MLflow what it lacks of campaigns. A running one does so itself after each trial."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass

from environments.plugins import Refused
from flows.server import server_process
from flows.status import state, stored_spec
from flows.views import terminal
from tasks.store import campaign_lock
from tasks.store.ledger import FORMAT, Ledger, readable
from tasks.system.home import home
from tasks.tracking import sync as tracking
from tasks.tracking.connection import locate


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
        return f"{result}, {self.waiting} still waiting: {self.problem}" if self.problem else result


def sync(name: str | None, as_json: bool) -> int:
    """Record what MLflow lacks of a campaign, or of all of this version; 1 where something is still missing, else 0.

    Raises:
        Refused: the campaign is running, or cannot be recorded.
    """
    server_process.settle_in(home())
    if name is not None and campaign_lock.is_running(Ledger.open(name)):
        raise Refused(f"campaign {name!r} is running: it records itself, after its next trial")
    ledgers = [Ledger.open(name)] if name else [one for one in readable() if one.campaign.format == FORMAT]
    ledgers = [ledger for ledger in ledgers if not campaign_lock.is_running(ledger)]
    results, refused = list[Sent](), False
    for ledger in ledgers:
        try:
            if sent := send(ledger):
                results.append(sent)
        except Refused as fault:
            if name:
                raise
            refused = True
            print(f"{ledger.campaign.name}: left alone: {fault}", file=sys.stderr)
    if as_json:
        terminal.print_json([asdict(result) for result in results])
    else:
        lacking = [result for result in results if result.sent or result.problem]
        print("\n".join(terminal.clean(result.words) for result in lacking) or "MLflow has everything")
    return int(refused or any(result.problem for result in results))


def send(ledger: Ledger) -> Sent | None:
    """Record what MLflow lacks of a campaign; None if its tracking is off.

    Raises:
        Refused: it would be recorded elsewhere than before, or is of an earlier version.
    """
    ledger.check_version()
    stated, before = stored_spec(ledger).get("tracking"), tracking.last(ledger).store
    store = locate(stated, home())
    if not stated and before and before != str(store):
        raise Refused(
            f"campaign {ledger.campaign.name!r} is recorded in {before}, and from here its records would go to "
            f"{store or 'nowhere'}: set PREFECT_API_URL or MLFLOW_TRACKING_URI as where it ran, or "
            f"`nightshift resume {ledger.campaign.name} --tracking ADDRESS`"
        )
    if store is None:
        return None
    done = tracking.sync(ledger, store, state(ledger))
    return Sent(ledger.campaign.name, done.sent, tracking.waiting(ledger, ledger.history()), done.problem)

"""`nightshift status`: a campaign's state, champion and trials."""

from __future__ import annotations

from rich.console import Console

from environments.plugins import Refused
from flows.views import tables, terminal
from flows.views.status import document
from tasks.store.ledger import Ledger, campaigns
from tasks.system.home import home


def print_status(ledger: Ledger, as_json: bool, last: int | None = None) -> int:
    """Print a campaign's status; the exit code: 1 if the campaign failed, else 0.

    Args:
        last: How many trials are shown; None: all of them.
    """
    status = document(ledger)
    if as_json:
        terminal.print_json(status)
    else:
        console = Console(highlight=False)
        console.print(tables.campaign_table(status, console.width, last))
        terminal.outcome(status, console)
        terminal.what_next(status, ledger.path, console)
    return 1 if status["state"] == "failed" else 0


def newest() -> str:
    """The name of the newest campaign.

    Raises:
        Refused: there is none.
    """
    if not campaigns():
        raise Refused(f"there is no campaign in {home()} yet: begin one with `nightshift run cartpole`")
    return campaigns()[-1]

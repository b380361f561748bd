"""`nightshift status`: a campaign's state, champion and trials."""

from __future__ import annotations

import time

from environments.plugins import Refused
from flows.status import document
from flows.views import overview, terminal
from tasks.store.ledger import Ledger, campaigns
from tasks.system.home import home

ROWS = 99
"""Of what is under way, in a terminal that scrolls."""


def print_csv(ledger: Ledger, last: int | None = None) -> None:
    """Print a campaign's trials as CSV."""
    from flows.views.dataframe import load_history

    trials = load_history(ledger.campaign.name)
    print((trials.tail(last) if last else trials).to_csv(index=False), end="")


def print_status(ledger: Ledger, as_json: bool, last: int | None = None) -> int:
    """Print a campaign's status; the exit code: 1 if the campaign failed, else 0.

    Args:
        last: How many trials are shown; None: all of them.
    """
    status = document(ledger)
    if as_json:
        terminal.print_json(status | {"trials": status["trials"][-last:]} if last else status)
    else:
        console = terminal.console()
        overview.show(status, ledger.path, console, last)
        if status["state"] == "running" and terminal.is_screen(console):
            from flows.views.follow import Follower
            from flows.views.live_view import live_view

            terminal.put(console, live_view(Follower(ledger).look(time.time()), console.width, ROWS))
    return 1 if status["state"] == "failed" else 0


def newest() -> str:
    """The name of the newest campaign.

    Raises:
        Refused: there is none.
    """
    if not campaigns():
        raise Refused(f"there is no campaign in {home()} yet: begin one with `nightshift run cartpole`")
    return campaigns()[-1]

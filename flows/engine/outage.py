"""Outages of the Prefect server during a campaign.

A campaign does not wait for the server: tasks and results are local, its records are sent asynchronously, and an
approval can be given in the terminal. Only the final state of the flow run has to reach the server.
"""

from __future__ import annotations

from prefect.settings import PREFECT_API_URL

from tasks.store.ledger import Ledger
from tasks.system import interrupt
from tasks.system.clock import clock
from tasks.system.daemon import answers

END_SECONDS = 300.0
"""How long the end of a flow run waits for an absent server."""
LOOK_SECONDS = 2.0


def wait_for_the_server(ledger: Ledger) -> None:
    """Return when the Prefect server answers, or after END_SECONDS. Called at the end of a campaign.

    Prefect's engine retries for about a minute to report the final state. If it fails, it takes that for a failure of
    the flow run, and a finished campaign is shown as Failed, or as Running forever.
    """
    url, began = PREFECT_API_URL.value(), clock()
    if url is None or answers(url):
        return
    ledger.event("prefect", away="at the end", url=url)
    while not (back := answers(url)) and clock() - began < END_SECONDS:
        interrupt.wait(LOOK_SECONDS)
    ledger.event("prefect", back=back, seconds=round(clock() - began, 1))

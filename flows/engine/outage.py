"""The Prefect server gone for a while, in the middle of a campaign.

Nothing in a campaign waits for it: tasks and their results are ours, what the server would show of them is sent on the
side, and a form that it does not answer can be answered in the terminal. Only the end of a run has to reach it.
"""

from __future__ import annotations

from prefect.settings import PREFECT_API_URL

from tasks.store.ledger import Ledger
from tasks.system import interrupt
from tasks.system.clock import clock
from tasks.system.daemon import answers

END_SECONDS = 300.0
"""How long the end of a run waits for a server that is away, in seconds."""
LOOK_SECONDS = 2.0


def wait_for_the_server(ledger: Ledger) -> None:
    """Return when the Prefect server answers, or has not for END_SECONDS; to be called when a campaign is over.

    Prefect's engine tries for about a minute to tell how a run ended. Where it cannot, it takes that for a failure of
    the run, so that a campaign that has finished would be shown as Failed, or as Running for ever.
    """
    url, began = PREFECT_API_URL.value(), clock()
    if url is None or answers(url):
        return
    ledger.event("prefect", away="at the end", url=url)
    while not (back := answers(url)) and clock() - began < END_SECONDS:
        interrupt.wait(LOOK_SECONDS)
    ledger.event("prefect", back=back, seconds=round(clock() - began, 1))

"""`nightshift watch`: follow a running campaign from any terminal."""

from __future__ import annotations

import time

from environments.plugins import Refused
from flows.cli.seeing.status import print_status
from flows.status import state
from flows.views import terminal
from flows.views.follow import CampaignWatch
from tasks.store import campaign_lock
from tasks.store.ledger import Ledger


def watch(name: str) -> int:
    """Show a running campaign until it ends; the campaign's exit code, 130 if it was interrupted.

    Ctrl-C ends the watching, not the campaign.
    """
    ledger = Ledger.open(name)
    if not campaign_lock.is_running(ledger):
        raise Refused(f"campaign {name!r} is not running (it is {state(ledger)}): see nightshift status {name}")
    try:
        with CampaignWatch(name, terminal.console()):
            while campaign_lock.is_running(ledger):
                time.sleep(0.2)
    except KeyboardInterrupt:
        print(f"\n{name} goes on; nightshift watch {name} shows it again")
        return 0
    print()
    code = print_status(ledger, as_json=False)
    return 130 if state(ledger) == "interrupted" else code

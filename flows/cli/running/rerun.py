"""`nightshift rerun`: run a trial of an ended campaign again."""

from __future__ import annotations

from flows.cli.running.flow_run import run_and_show
from flows.rerun import check
from flows.rerun import rerun as rerun_flow
from flows.server import server_process
from tasks.store import campaign_lock
from tasks.store.ledger import Ledger
from tasks.system.home import home


def rerun(name: str, number: int, server: str | None, as_json: bool) -> int:
    """Run a trial again; the command's exit code.

    Raises:
        Refused: the campaign is running, or the trial cannot be run again.
    """
    ledger = Ledger.open(name)
    campaign_lock.check_idle(ledger)
    check(ledger, ledger.history(), number)
    ledger.verify()
    api = server_process.stated_server(server, home())
    parameters = {"name": name, "trial": number}
    return run_and_show(rerun_flow, parameters, api, as_json, f"nightshift rerun {name} {number}")

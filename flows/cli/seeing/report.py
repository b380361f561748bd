"""`nightshift report`: the pages of campaigns, written and served."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from environments.plugins import Refused
from flows.cli.seeing.status import newest
from flows.report.seeing import record
from flows.report.write import REPORT, write_comparison, write_index, write_report
from flows.views.terminal import short
from tasks.store.campaign_lock import is_running
from tasks.store.ledger import Ledger
from tasks.system.home import home


def write_reports(campaigns: Sequence[str], *, every: bool, serving: bool) -> int:
    """Write the page that was asked for, and print its path; or serve it with all others, and print its link.

    Args:
        every: The page of all campaigns; served without a campaign's name, it is that page too.
    """
    if every and campaigns:
        raise Refused(f"report --all is the page of all campaigns: leave out {' '.join(campaigns)}, or --all")
    written = _written(campaigns, every or (serving and not campaigns))
    if serving:
        from flows.report.served import serve

        return serve(f"/{written.relative_to(home()).as_posix()}")
    print(short(written))
    return 0


def _written(campaigns: Sequence[str], every: bool) -> Path:
    if every:
        return write_index()
    ledgers = [Ledger.open(name) for name in dict.fromkeys(campaigns or (newest(),))]
    for ledger in ledgers:
        if not is_running(ledger):
            record(ledger, ledger.campaign.isolation)
    if len(ledgers) > 1:
        return write_comparison(ledgers)
    write_report(ledgers[0])
    return ledgers[0].path / REPORT

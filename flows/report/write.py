"""Reports as files: one campaign's beside its results, several in one page in the home."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from flows.report import campaign_index, page, timeline
from flows.report.facts import Facts
from flows.report.shareable import shareable
from flows.status import CampaignEnd
from tasks.store.ledger import Ledger
from tasks.system.files import write_atomic

REPORT = "report.html"
TIMELINE = "timeline.json"
COMPARISON = "comparison.html"


def write_report(ledger: Ledger, ending: CampaignEnd | None = None) -> str:
    """Write a campaign's report.html and timeline.json; returns the report as Markdown.

    The page of all campaigns follows unless this one is running.

    Args:
        ending: The end of a campaign that still holds its lock.
    """
    facts = Facts.of(ledger, ending)
    _write(facts)
    if not facts.is_running:
        campaign_index.write_index()
    return page.markdown(facts)


def write_comparison(ledgers: Sequence[Ledger]) -> Path:
    """Write the reports of several campaigns, and comparison.html beside their directories; returns its path.

    The page of all campaigns follows.
    """
    every = [Facts.of(ledger) for ledger in ledgers]
    for facts in every:
        _write(facts)
    path = ledgers[0].path.parent / COMPARISON
    write_atomic(path, page.comparison(every))
    campaign_index.write_index()
    return path


def _write(facts: Facts) -> None:
    """Write a campaign's own files: the page, what it links to, and its line in the page of all campaigns."""
    write_atomic(facts.ledger.path / REPORT, page.html(facts))
    events = timeline.chrome(facts.timeline, facts.document["spent"]["slots"])
    write_atomic(facts.ledger.path / TIMELINE, shareable(json.dumps(events)))
    campaign_index.keep(facts)

"""Reports as files: one campaign's beside its results, and the pages of several in the home."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from environments.plugins import Refused
from flows import status
from flows.report import page, timeline
from flows.report.facts import Facts
from flows.report.shareable import shareable
from tasks.store.ledger import Ledger, campaigns, check_name
from tasks.system.files import write_atomic
from tasks.system.home import home

REPORT, TIMELINE, INDEX, COMPARISON = "report.html", "timeline.json", "index.html", "comparison.html"
UNREADABLE = "unreadable"


def write_report(ledger: Ledger, ending: status.CampaignEnd | None = None) -> str:
    """Write a campaign's report.html and timeline.json; returns the report as Markdown.

    The page of all campaigns follows unless this one is running.

    Args:
        ending: The end of a campaign that still holds its lock.
    """
    facts = Facts.of(ledger, ending)
    _write(facts)
    if not facts.is_running:
        write_index({facts.name: facts.document["state"]})
    return page.markdown(facts)


def write_comparison(ledgers: Sequence[Ledger]) -> Path:
    """Write the reports of several campaigns, and a page that shows them side by side; returns its path."""
    every = [Facts.of(ledger) for ledger in ledgers]
    for facts in every:
        _write(facts)
    path = home() / COMPARISON
    write_atomic(path, page.campaigns([_row(ledger.campaign.name) for ledger in ledgers], every))
    write_index()
    return path


def write_index(ending: Mapping[str, str] = MappingProxyType({})) -> Path:
    """Write the page of all campaigns; returns its path. (ending: states of those that still hold their locks)"""
    every = [row | {"state": ending.get(row["campaign"], row["state"])} for row in rows()]
    write_atomic(home() / INDEX, page.campaigns(every))
    return home() / INDEX


def rows() -> list[dict[str, Any]]:
    """A line of every campaign of this home, the newest first."""
    return sorted(map(_row, campaigns()), key=lambda row: (row["created"], row["campaign"]), reverse=True)


def _row(name: str) -> dict[str, Any]:
    """A campaign's line, with whether it has a report; of one that cannot be read, why."""
    try:
        check_name(name)  # any folder can hold a campaign.json, and a name becomes a link
        return status.result_row(Ledger.open(name)) | {"report": (home() / name / REPORT).is_file()}
    except (Refused, OSError, ValueError) as fault:
        return {"campaign": name, "state": UNREADABLE, "headline": f"cannot be read: {fault}", "created": 0.0}


def _write(facts: Facts) -> None:
    """Write a campaign's own files: the page, and what it links to."""
    write_atomic(facts.ledger.path / REPORT, page.html(facts))
    events = timeline.chrome(facts.timeline, facts.document["spent"]["slots"])
    write_atomic(facts.ledger.path / TIMELINE, shareable(json.dumps(events)))

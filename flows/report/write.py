"""Reports as files: each campaign's beside its results, and the page of all campaigns in the home."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from environments.plugins import Refused
from flows import status
from flows.report import page, timeline
from flows.report.facts import Facts
from flows.report.shareable import shareable
from tasks.plots.canvas import png
from tasks.recording import episode
from tasks.store.ledger import Ledger, campaigns, check_name
from tasks.system.files import write_atomic
from tasks.system.home import home

REPORT, TIMELINE, INDEX, PICTURE = "report.html", "timeline.json", "index.html", "progress.png"


def write_report(ledger: Ledger, ending: status.CampaignEnd | None = None) -> str:
    """Write a campaign's report.html, timeline.json and progress.png; returns the report as Markdown, with the picture.

    The page of all campaigns follows unless this one is running.

    Args:
        ending: The end of a campaign that still holds its lock.
    """
    facts = Facts.of(ledger, ending)
    write_atomic(ledger.path / REPORT, page.html(facts))
    write_atomic(ledger.path / TIMELINE, shareable(json.dumps(timeline.trace(facts.history, ledger.events()))))
    picture = png(page.picture(facts, titled=True))
    write_atomic(ledger.path / PICTURE, picture)
    if not facts.is_running:
        write_index({facts.name: facts.document["state"]})
    return f"{page.markdown(facts)}\n\n![progress](data:image/png;base64,{base64.b64encode(picture).decode()})\n"


def record_episode(ledger: Ledger, isolation: str, allow_unsandboxed: bool = False) -> None:
    """Record the episode of a campaign's champion, if there is one to record and it is not there."""
    episode.record(ledger, Facts.of(ledger).champion, isolation, allow_unsandboxed)


def write_index(ending: Mapping[str, str] | None = None) -> Path:
    """Write the page of all campaigns; returns its path. (ending: states of those that still hold their locks)"""
    every = [row | {"state": (ending or {}).get(row["campaign"], row["state"])} for row in rows()]
    write_atomic(home() / INDEX, page.campaigns(every))
    return home() / INDEX


def rows() -> list[dict[str, Any]]:
    """A line of every campaign of this home, the newest first."""
    return sorted(map(_row, campaigns()), key=lambda row: (row["created"], row["campaign"]), reverse=True)


def _row(name: str) -> dict[str, Any]:
    """A campaign's line, with whether it has a report; of one that cannot be read, why."""
    try:
        check_name(name)  # any folder can hold a campaign.json, and a name becomes a link
        return status.summary(Ledger.open(name)) | {"report": (home() / name / REPORT).is_file()}
    except (Refused, OSError, ValueError) as fault:
        return {"campaign": name, "state": "unreadable", "headline": f"cannot be read: {fault}", "created": 0.0}

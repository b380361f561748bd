"""The page of all campaigns of a home, index.html, from a line of facts that each report leaves beside it.

So the page costs a small file per campaign, however many trials it has. The facts of a campaign that has none, or was
killed or resumed since, are gathered from its directory once and then kept.
"""

from __future__ import annotations

import fcntl
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from environments.plugins import Refused
from flows import status
from flows.report import page
from flows.report.facts import Facts
from flows.report.shareable import shareable
from tasks.store import campaign_lock
from tasks.store.ledger import Ledger, campaigns, check_name
from tasks.system.files import write_atomic
from tasks.system.home import home

INDEX = "index.html"
SUMMARY = "summary.json"
RUNNING, UNREADABLE = "running", "unreadable"


@dataclass(frozen=True)
class CampaignRow:
    """A campaign in a line of the index, as its last report says."""

    name: str
    state: str
    environment: str = ""
    metric: str = ""
    created: float = 0.0
    """Unix time, in seconds."""
    trials: int = 0
    verdict: str = ""
    tone: str = "plain"
    """A class of the style sheet."""
    gain: str = "-"
    """Of a passed certificate."""
    least: str = ""
    """The end of its interval that counts, in words."""
    cost: str = ""
    ships: bool = False
    """Whether its champion ships."""

    @classmethod
    def of(cls, facts: Facts) -> CampaignRow:
        return cls(
            name=facts.name, state=facts.document["state"], environment=facts.document["environment"],
            metric=facts.document["metric"], created=facts.ledger.campaign.created,
            trials=facts.document["spent"]["trials"], verdict=facts.verdict, tone=facts.tone, gain=facts.gain,
            least=facts.least, cost=", ".join(facts.prices), ships=facts.document["shipped"] == "champion",
        )  # fmt: skip


ROW = TypeAdapter(CampaignRow)


def keep(facts: Facts) -> None:
    """Leave a campaign's line beside its report."""
    line = ROW.dump_json(CampaignRow.of(facts), indent=2).decode()
    write_atomic(facts.ledger.path / SUMMARY, shareable(line) + "\n")


def rows() -> tuple[CampaignRow, ...]:
    """Every campaign of this home, the newest first."""
    return tuple(sorted(map(_row, campaigns()), key=lambda row: (row.created, row.name), reverse=True))


def write_index() -> Path:
    """Write the page of all campaigns; returns its path. Of several writers at once the last has read all lines."""
    path = home() / INDEX
    with (home() / f".{INDEX}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        write_atomic(path, html(rows()))
    return path


def html(every: Sequence[CampaignRow]) -> str:
    """The page, with links to the reports that are there."""
    readable = (row.name for row in every if row.state != UNREADABLE)
    reports = {name for name in readable if (home() / name / "report.html").is_file()}
    return page.index(every, reports)


def _row(name: str) -> CampaignRow:
    """A campaign's line; of one that cannot be read, why."""
    try:
        check_name(name)  # any folder can hold a campaign.json, and a name becomes a link
        kept = _kept(home() / name / SUMMARY)
        may_run = campaign_lock.is_held(home() / name / campaign_lock.LOCK)
        is_plain = kept is not None and kept.state != RUNNING and not may_run
        if kept is not None and (is_plain or kept.state == status.state(Ledger.open(name))):
            return replace(kept, name=name)
        facts = Facts.of(Ledger.open(name))
        keep(facts)
        return CampaignRow.of(facts)
    except (Refused, OSError, ValueError) as fault:
        return CampaignRow(name, UNREADABLE, verdict=f"cannot be read: {fault}", tone="bad")


def _kept(path: Path) -> CampaignRow | None:
    """The line that the last report left; None where there is none, or another version's."""
    try:
        return ROW.validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None

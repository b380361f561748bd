"""What a campaign tells the Prefect server as events: certified, a new champion, stalled.

Automations send them on (flows/server/notifications.py). An announcement is derived from the history and the
certificates, has an id that follows from what it says, and is noted in the ledger once the server has it. So a
resume, a retry or a replay tells nothing twice, and what a kill has cut off is told by the next life.
"""

from __future__ import annotations

import datetime
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from tasks.certifying.certificate import Certificate
from tasks.describe import headline, outcome, unproven, where
from tasks.store.ledger import Ledger
from tasks.trial import History, best

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

TOLD = "told"
"""The ledger's event for an announcement that the server has."""
STALL_SECONDS, STALL_RUNS = 1800.0, 3.0
"""A campaign is stalled when nothing has finished for so long, and for so many times what a run may take."""


@dataclass(frozen=True)
class Announcement:
    what: Literal["certified", "champion", "stalled"]
    key: str
    """Which of its kind in the campaign."""
    subject: str
    text: str


def due(ledger: Ledger, history: History, certificates: Sequence[Certificate]) -> list[Announcement]:
    """What is to be told about a history and its certificates, those of other environments included."""
    every = [*_champion(ledger, history, certificates), *_certified(ledger, certificates)]
    return _untold(ledger, every)


def silence(ledger: Ledger, since: float) -> float | None:
    """Seconds in which nothing has finished, if that is long. `since`: when this life began.

    A training that has just got its slot, and an approval that was just given, end a silence too.
    """
    slots = [event["time"] for event in ledger.events() if event["event"] in ("slot", "answer")]
    finished = [path.stat().st_mtime for path in _results(ledger)]
    silent = time.time() - max([since, *slots, *finished])
    return silent if silent >= max(STALL_SECONDS, STALL_RUNS * _training_seconds(ledger)) else None


def stalled(ledger: Ledger, silent: float, unapproved: Sequence[int] = ()) -> list[Announcement]:
    """That nothing has finished for so many seconds, once; nothing where something has since.

    Args:
        unapproved: Trials that wait for approval, where the campaign can only wait for that.
    """
    name, minutes = ledger.campaign.name, f"{silent / 60:.0f} minutes"
    if unapproved:
        trials = " and ".join(f"trial {number}" for number in unapproved)
        how = f"See `nightshift status {name}`; then `nightshift approve {name} {unapproved[0]}` or `reject`."
        text = f"{name}: nothing has gone on for {minutes}, for want of an approval of {trials}. {how}"
        return _untold(
            ledger, [Announcement("stalled", f"approval-{unapproved[-1]}", f"{name} waits for approval", text)]
        )
    budget = _training_seconds(ledger)
    words = f"nothing has finished for {minutes}, and a training takes {budget / 60:.3g} at most"
    text = f"{name}: {words}. See `nightshift watch {name}` and `nightshift logs {name}`."
    return _untold(ledger, [Announcement("stalled", str(len(_results(ledger))), f"{name} is stalled", text)])


def _training_seconds(ledger: Ledger) -> float:
    """The longest that a training of this life may take: a certificate may have another budget than the campaign."""
    budgets = [ledger.environment.budget_seconds]
    for event in ledger.events():
        if event["event"] == "life":
            del budgets[1:]
        elif event["event"] == "certify":
            budgets.append(event.get("budget_seconds", 0.0))
    return max(budgets)


def _results(ledger: Ledger) -> list[Path]:
    """Of every step that has finished."""
    return [path for path in ledger.results.rglob("*") if path.is_file()]


def tell(client: SyncPrefectClient, ledger: Ledger, flow_run_id: UUID | None, announcement: Announcement) -> None:
    """Give an announcement to the Prefect server, which drops one that it has, and note that it was given."""
    campaign = ledger.campaign
    related = [{"prefect.resource.id": f"prefect.flow-run.{flow_run_id}", "prefect.resource.role": "flow-run"}]
    event: dict[str, Any] = {
        "id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{campaign.campaign_id}/{announcement.what}/{announcement.key}")),
        "occurred": datetime.datetime.now(datetime.UTC).isoformat(),
        "event": f"nightshift.{announcement.what}",
        "resource": {
            "prefect.resource.id": f"nightshift.campaign.{campaign.campaign_id}",
            "prefect.resource.name": campaign.name,
        },
        "related": related if flow_run_id else [],
        "payload": {
            "campaign": campaign.name, "environment": campaign.environment,
            "subject": announcement.subject, "text": announcement.text,
        },
    }  # fmt: skip
    client.request("POST", "/events", json=[event]).raise_for_status()
    ledger.event(TOLD, what=announcement.what, key=announcement.key)


def _champion(ledger: Ledger, history: History, certificates: Sequence[Certificate]) -> Iterator[Announcement]:
    champion, name = best(history), ledger.campaign.name
    if champion is not None and champion.number != 0:
        own = [one for one in certificates if not one.elsewhere]
        key, text = str(champion.number), headline(history, name, own)
        if own and own[-1].passed and own[-1].champion != champion.number:  # then the headline is about that one
            text += f"; {unproven(champion, own)}"
        yield Announcement("champion", key, f"{name} has a new champion", text)


def _certified(ledger: Ledger, certificates: Sequence[Certificate]) -> Iterator[Announcement]:
    for one in certificates:
        if one.passed:
            place = f" in {where(one)}" if one.elsewhere else ""
            key = f"{one.environment}{one.conditions.name}-{one.look}" if one.elsewhere else str(one.look)
            subject = f"{ledger.campaign.name}: trial {one.champion} is certified{place}"
            yield Announcement("certified", key, subject, outcome(one))


def _untold(ledger: Ledger, every: Sequence[Announcement]) -> list[Announcement]:
    told = {(event["what"], event["key"]) for event in ledger.events() if event["event"] == TOLD} if every else set()
    return [one for one in every if (one.what, one.key) not in told]

"""A campaign's flow run in Prefect: its log has the lines of the terminal, and no line for each finished task; its
artifact is the report, which each life updates in place.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any
from uuid import UUID

from prefect import get_run_logger
from prefect.client.schemas.actions import ArtifactCreate

from flows.server.server_process import impatient_client
from flows.status import CampaignEnd, rows
from flows.views.overview import trial_line
from tasks.describe import headline
from tasks.store.ledger import Ledger, machine
from tasks.trial import History, machine_of

REST_SECONDS = 30.0
"""Between two reports: drawing shares the machine with trials. Whoever looks more often has `status --watch`."""
Report = Callable[[Ledger, CampaignEnd | None], str]
"""Writes the report of a campaign, whose end is given once it is known, and returns it as Markdown."""


def begin(ledger: Ledger, history: History) -> None:
    """The first line of a life."""
    known = f". Resumed: {len(history)} trial{'s' * (len(history) > 1)} read from files" if history else ""
    get_run_logger().info(f"{ledger.campaign.name}: {ledger.environment.name}; files in {ledger.path}{known}")
    if words := another_machine(ledger, history):
        get_run_logger().warning(words)


def another_machine(ledger: Ledger, history: History) -> str:
    """The warning that the newest score is from another kind of machine, which is an event too; empty if unknown."""
    before, now = machine_of(history), machine()
    if not before or before == now or ledger.spec.get("launch", "here") != "here":
        return ""
    words = (
        f"from trial {1 + max(trial.number for trial in history)} on it runs on {now}, before on {before}: under a "
        "time budget the faster one trains further, and scores are compared as they are"
    )
    ledger.event("machine", before=before, now=now, words=words)
    return words


def decided(history: History) -> None:
    """The line of the newest trial; a crash is a warning."""
    *_, row = rows(history)
    level = logging.WARNING if row["verdict"] == "crash" else logging.INFO
    get_run_logger().log(level, trial_line(row).plain.strip())


def end(ledger: Ledger, history: History, reason: str) -> None:
    """The result, and why the campaign ended."""
    result = headline(history, ledger.own_certificates())
    get_run_logger().info(f"{ledger.campaign.name}: {result}. It ended: {reason}")


class Artifact:
    """The artifact of a life."""

    def __init__(self, ledger: Ledger, flow_run_id: str | None, report: Report) -> None:
        self._ledger, self._report = ledger, report
        self._flow_run_id = UUID(flow_run_id) if flow_run_id else None
        self._made: UUID | None = None

    def update(self, ending: CampaignEnd | None = None) -> str:
        """Write the report, and make the artifact or update it; an empty text, for Background."""
        page = self._report(self._ledger, ending)
        content: dict[str, Any] = {"data": page, "description": page.partition("\n")[0].removeprefix("## ")}
        with impatient_client() as client:  # the next report is the next attempt
            if self._made:  # by hand, since update_artifact() would also put the whole content into an event
                client.request("PATCH", "/artifacts/{id}", json=content, path_params={"id": str(self._made)})
            else:
                name = re.sub("[^a-z0-9]+", "-", self._ledger.campaign.name).strip("-")  # letters that Prefect allows
                key = f"campaign-{name}-report"
                made = ArtifactCreate(key=key, type="markdown", flow_run_id=self._flow_run_id, **content)
                self._made = client.create_artifact(made).id
        return ""

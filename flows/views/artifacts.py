"""The report of a campaign, in its folder and as an artifact of its Prefect run; each life updates one in place."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from uuid import UUID

from flows.server.server_process import impatient_client
from flows.status import CampaignEnd
from tasks.store.ledger import Ledger

REST_SECONDS = 30.0
"""Between two reports: drawing shares the machine with trials. Whoever looks more often has `status --watch`."""
SEND_SECONDS = 10.0
"""How long the Prefect server may take to answer; the end of a campaign may wait for it."""
Report = Callable[[Ledger, CampaignEnd | None], str]
"""Writes the report of a campaign, whose end is given once it is known, and returns it as Markdown."""


class Artifact:
    """The artifact of a life."""

    def __init__(self, ledger: Ledger, flow_run_id: str | None, report: Report) -> None:
        self._ledger, self._report = ledger, report
        self._flow_run_id = UUID(flow_run_id) if flow_run_id else None
        self._made: UUID | None = None

    def update(self, ending: CampaignEnd | None = None) -> str:
        """Write the report, and make the artifact or update it; an empty text, for Background."""
        from prefect.client.schemas.actions import ArtifactCreate

        page = self._report(self._ledger, ending)
        content: dict[str, Any] = {"data": page, "description": page.partition("\n")[0].removeprefix("## ")}
        with impatient_client(SEND_SECONDS) as client:  # the next report is the next attempt
            if self._made:  # by hand, since update_artifact() would also put the whole content into an event
                client.request("PATCH", "/artifacts/{id}", json=content, path_params={"id": str(self._made)})
            else:
                key = artifact_key(self._ledger.campaign.name)
                made = ArtifactCreate(key=key, type="markdown", flow_run_id=self._flow_run_id, **content)
                self._made = client.create_artifact(made).id
        return ""


def artifact_key(campaign: str) -> str:
    """In the letters that Prefect allows."""
    return f"campaign-{re.sub('[^a-z0-9]+', '-', campaign).strip('-')}-report"

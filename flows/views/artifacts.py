"""The report of a campaign, in its folder and as an artifact of its Prefect run, kept up to date while it runs.

One thread writes and sends what the campaign's folder has by then; only the end waits until the last state is sent.
Faults never end a campaign: they become events in the ledger. Each life updates one artifact in place.
"""

from __future__ import annotations

import contextlib
import contextvars
import re
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from flows.server.server_process import impatient_client
from flows.status import CampaignEnd
from tasks.store.ledger import Ledger

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

REST_SECONDS = 30.0
"""Between two reports: drawing shares the machine with trials. Whoever looks more often has `status --watch`."""
SEND_SECONDS = 10.0
"""How long the Prefect server may take to answer; the end of a campaign may wait for it."""
Report = Callable[[Ledger, CampaignEnd | None], str]
"""Writes the report of a campaign, whose end is given once it is known, and returns it as Markdown."""


class Artifacts:
    """Keep the report and the artifact of a campaign up to date, in a thread, while a `with` block runs."""

    def __init__(self, ledger: Ledger, flow_run_id: str | None, report: Report) -> None:
        self.ledger, self._report = ledger, report
        self.ending: CampaignEnd | None = None
        """Set before the block ends."""
        self._flow_run_id = UUID(flow_run_id) if flow_run_id else None
        self._over = threading.Event()
        self._artifact: UUID | None = None
        # Prefect's settings, the server's address among them, are variables of the context.
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._keep_up,), name="views", daemon=True)

    def __enter__(self) -> Artifacts:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _keep_up(self) -> None:
        known, is_over, is_failing = -1, False, False
        with impatient_client(SEND_SECONDS) as client:  # the next report is the next attempt
            while not is_over:
                is_over, what = self._over.is_set(), "report"
                try:
                    events = len([*self.ledger.events()])
                    if is_over or events != known:
                        page = self._report(self.ledger, self.ending)
                        known, what = events, "artifact"
                        self._send(client, page)
                        is_failing = False
                except Exception as fault:  # noqa: BLE001 (no fault here ends a campaign)
                    with contextlib.suppress(OSError):  # no room on the disk for that either
                        if not is_failing:  # noted once, until it works again
                            self.ledger.event("view", failed=what, error=f"{type(fault).__name__}: {fault}")
                            is_failing = True
                self._over.wait(REST_SECONDS)

    def _send(self, client: SyncPrefectClient, page: str) -> None:
        """Make this life's artifact, or update it."""
        from prefect.client.schemas.actions import ArtifactCreate

        content: dict[str, Any] = {"data": page, "description": page.partition("\n")[0].removeprefix("## ")}
        if self._artifact:  # by hand, since update_artifact() would also put the whole content into an event
            client.request("PATCH", "/artifacts/{id}", json=content, path_params={"id": str(self._artifact)})
        else:
            key, run = artifact_key(self.ledger.campaign.name), self._flow_run_id
            made = ArtifactCreate(key=key, type="markdown", flow_run_id=run, **content)
            self._artifact = client.create_artifact(made).id


def artifact_key(campaign: str) -> str:
    """In the letters that Prefect allows."""
    return f"campaign-{re.sub('[^a-z0-9]+', '-', campaign).strip('-')}-report"

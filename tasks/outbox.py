"""The outbox: trials that are in the ledger, on their way to MLflow.

The ledger comes first and is what counts. A trial that MLflow has not taken waits here, and is sent after the next
trial, or when the campaign is resumed. A tracking server that is down stops nothing. What waits is derived from the
receipts in the trials' directories, so a kill loses nothing and doubles nothing.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Literal

from tasks import lineage, workspace
from tasks.ledger import Ledger, home, machine
from tasks.scrub import without_passwords
from tasks.tracking import CampaignRecord, Rejected, TrialFiles, Unreachable, locate
from tasks.trial import History, Trial


class Outbox:
    """The trials that MLflow has not taken yet."""

    def __init__(
        self, ledger: Ledger, tracking: str | None, flow_run_id: str | None, history: History
    ) -> None:
        self.ledger = ledger
        self.tracker = locate(tracking, home())
        self.waiting = [trial for trial in history if not is_tracked(ledger, trial)]
        self._campaign = campaign_record(ledger, flow_run_id)
        self._down = self._opened = False
        self._rejected: set[int] = set()
        self._history = list(history)

    def add(self, trial: Trial) -> None:
        if trial.settle >= len(self._history):
            self._history.append(trial)
        if not is_tracked(self.ledger, trial) and trial not in self.waiting:
            self.waiting.append(trial)

    def drain(self) -> None:
        """Send what waits, oldest first, until all is sent or the server is found down.

        A record that MLflow rejects stays, without holding up the others; that, and an outage, is noted once.
        """
        try:
            if self.waiting and not self._opened:
                self.tracker.open_campaign(self._campaign)
                self.ledger.event("tracked", urls=self.tracker.urls(self._campaign))
                self._opened = True
            for trial in list(self.waiting):
                try:
                    self._send(trial)
                    self.waiting.remove(trial)
                except Rejected as rejected:
                    if trial.number not in self._rejected:
                        self._note(rejected, trial=trial.number)
                    self._rejected.add(trial.number)
            self._down = False
        except Unreachable as down:
            if not self._down:
                self._note(down)
            self._down = True

    def close(self, status: Literal["finished", "failed", "stopped"]) -> None:
        """End the campaign's own run in MLflow; a server that is down is noted, the ledger says the same."""
        self.drain()
        if self._down:
            return
        try:
            history = tuple(self._history)
            self.tracker.close_campaign(self._campaign, status, history, self.ledger.path)
        except Unreachable as down:
            self._note(down)

    def _note(self, problem: Unreachable, **which: int) -> None:
        self.ledger.event(
            "tracking", **which, error=without_passwords(str(problem)), waiting=len(self.waiting)
        )

    def _send(self, trial: Trial) -> None:
        place = self.ledger.place(trial.number)
        commit = lineage.commits(self.ledger.path / "lineage.git").get(trial.number)
        run_id = self.tracker.log_trial(self._campaign, trial, TrialFiles(place.path, commit))
        self.tracker.log_standing(self._campaign, trial, tuple(self._history))
        workspace.write(
            _receipt(place.path), json.dumps({"run_id": run_id, "of": fingerprint(place.trial)}) + "\n"
        )


def is_tracked(ledger: Ledger, trial: Trial) -> bool:
    """Whether MLflow has taken this trial as it is now."""
    place = ledger.place(trial.number)
    receipt = _receipt(place.path)
    return receipt.is_file() and json.loads(receipt.read_text())["of"] == fingerprint(place.trial)


def fingerprint(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _receipt(path: Path) -> Path:
    return path / "tracked.json"


def campaign_record(ledger: Ledger, flow_run_id: str | None) -> CampaignRecord:
    """The campaign as MLflow knows it."""
    campaign, environment = ledger.campaign, ledger.environment
    steps = {"budget_steps": str(environment.budget_steps)} if environment.budget_steps else {}
    return CampaignRecord(
        campaign=campaign.name,
        campaign_id=campaign.campaign_id,
        environment=environment.name,
        metric=environment.metric,
        higher_is_better=environment.higher_is_better,
        flow_run_id=flow_run_id,
        created=campaign.created,
        spec={
            "environment": campaign.source,
            "proposer": campaign.proposer,
            "seed": str(campaign.seed),
            "budget_seconds": f"{environment.budget_seconds:g}",
            "isolation": campaign.isolation,
            "machine": machine(),
            **steps,
            **{f"set.{key}": str(value) for key, value in campaign.overrides.items()},
        },
        varies=tuple(environment.space),
    )

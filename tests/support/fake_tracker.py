"""A tracker in memory that can be down, and a campaign of four trials that is sent to it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tasks.certifying.certificate import Certificate
from tasks.record import record
from tasks.store.ledger import Ledger
from tasks.tracking.connection import RecordRejected, Unreachable
from tasks.tracking.interface import Tracker
from tasks.tracking.logged_model import Champion
from tasks.tracking.outbox import Outbox
from tasks.tracking.trial_run import CampaignRecord, TrialFiles
from tasks.trial import History, Trial
from tests.support.histories import decided

SCORES = (3.0, None, 2.0, 2.5)
"""Of four trials, lower is better: a baseline, a crash, the champion, and one that is not."""


class Shelf(Tracker):
    """A tracker in memory that can be down, and that will not have some trials."""

    def __init__(self) -> None:
        self.down = False
        self.unwanted: set[int] = set()
        self.unproved: set[int] = set()
        """How many certificates it will not have."""
        self.sent: list[int] = []
        self.progress: list[tuple[int, int]] = []
        """Of each sent trial its number, and how many were decided by then."""
        self.levels: list[str | None] = []
        """Of each sent trial, how far it is believed."""
        self.proved: list[list[int]] = []
        """The looks that each call showed."""
        self.registered: list[tuple[int, str]] = []
        """Of each certified champion its trial and its run."""
        self.ended: list[str] = []
        self.shown: tuple[int, Path] = (0, Path())

    def open_campaign(self, campaign: CampaignRecord) -> str:
        self._answer()
        return "parent"

    def log_trial(self, campaign: CampaignRecord, trial: Trial, files: TrialFiles) -> str:
        self._answer()
        if trial.number in self.unwanted:
            raise RecordRejected(f"trial {trial.number} has a tag that is too long")
        self.sent.append(trial.number)
        self.levels.append(trial.verdict.level)
        return f"run-{trial.number}"

    def log_traces(self, campaign: CampaignRecord, trial: Trial, files: TrialFiles) -> str:
        self._answer()
        return f"run-{trial.number}"

    def log_progress(
        self, campaign: CampaignRecord, trial: Trial, history: History, certificates: Sequence[Certificate]
    ) -> None:
        self._answer()
        self.progress.append((trial.number, len(history)))

    def log_certificates(self, campaign: CampaignRecord, history: History, certificates: Sequence[Certificate]) -> None:
        self._answer()
        if len(certificates) in self.unproved:
            raise RecordRejected("a name that is too long")
        self.proved.append([one.look for one in certificates])

    def register(self, campaign: CampaignRecord, certificate: Certificate, champion: Champion, run_id: str) -> str:
        self._answer()
        self.registered.append((certificate.champion, run_id))
        return f"a-model version {len(self.registered)}"

    def close_campaign(
        self, campaign: CampaignRecord, status: str, history: History, certificates: Sequence[Certificate], folder: Path
    ) -> None:
        self._answer()
        self.ended.append(status)
        self.shown = len(history), folder

    def urls(self, campaign: CampaignRecord) -> dict[str, str]:
        return {"mlflow_url": "http://shelf"}

    def _answer(self) -> None:
        if self.down:
            raise Unreachable("connection refused")


def outbox_of(ledger: Ledger, shelf: Shelf, history: History = ()) -> Outbox:
    """A new life's outbox, with the shelf in the place of MLflow."""
    outbox = Outbox(ledger, "off", None, history)
    outbox.tracker = shelf
    return outbox


def settled(ledger: Ledger, history: History) -> Trial:
    """The next of SCORES, decided and in the ledger."""
    number = len(history)
    ledger.place(number).workspace.mkdir(parents=True)
    trial = decided(history, SCORES[number], {"x": float(number)}, higher_is_better=False)
    record(ledger, history, trial)
    return trial


def night(ledger: Ledger, outbox: Outbox, shelf: Shelf, outages: tuple[int, ...] = ()) -> History:
    """All trials, each sent after it was decided; the shelf is down after those in `outages`."""
    history: History = ()
    for number in range(len(SCORES)):
        shelf.down = number in outages
        history += (settled(ledger, history),)
        outbox.add(history[-1])
        outbox.drain()
    shelf.down = False
    return history


def notes(ledger: Ledger) -> list[tuple[str, int]]:
    """What was noted of outages: the error and how many trials waited."""
    return [(event["error"], event["waiting"]) for event in ledger.events() if event["event"] == "tracking"]

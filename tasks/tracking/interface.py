"""The interface of trackers, which is also the tracker that records nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from tasks.certifying.certificate import Certificate
from tasks.tracking.logged_model import Champion
from tasks.tracking.trial_run import CampaignRecord, TrialFiles
from tasks.trial import History, Trial

Ending = Literal["finished", "failed", "stopped"]


class Tracker:
    """Where campaigns are recorded; this one records nothing. Methods are idempotent and may raise `Unreachable`.

    `certificates` are all that the campaign has, those of other environments included.
    """

    store = ""
    """The address, without a login; that of the home's own database is its name alone, since a home may be moved."""

    def open_campaign(self, campaign: CampaignRecord) -> str:
        """Record the campaign as running; returns the id of its run."""
        return ""

    def log_trial(self, campaign: CampaignRecord, trial: Trial, files: TrialFiles) -> str:
        """Record a decided trial; returns the id of its run. Recorded again, as at a higher level, it stays one run."""
        return ""

    def log_traces(self, campaign: CampaignRecord, trial: Trial, files: TrialFiles) -> str:
        """Record a trial's requests to language models, linked to its run; returns the run's id, empty without any."""
        return ""

    def log_progress(
        self, campaign: CampaignRecord, trial: Trial, history: History, certificates: Sequence[Certificate]
    ) -> None:
        """Record the best score after `trial` was decided, and the summary after `history`."""

    def log_certificates(self, campaign: CampaignRecord, history: History, certificates: Sequence[Certificate]) -> None:
        """Record the certificates."""

    def register(self, campaign: CampaignRecord, certificate: Certificate, champion: Champion, run_id: str) -> str:
        """Make a certified champion a version of its environment's model; the version, or why not."""
        return ""

    def close_campaign(
        self, campaign: CampaignRecord, status: Ending, history: History, certificates: Sequence[Certificate],
        folder: Path,
    ) -> None:  # fmt: skip
        """Record the end of the campaign, with the files of its `folder` (tasks/store/ledger.py)."""

    def urls(self, campaign: CampaignRecord) -> dict[str, str]:
        """Links: its trials as a table, best first; as charts; the campaigns of its environment.

        `url`, `charts_url` and `nights_url`; without a server `path`, `charts_path` and `nights_path`, to be appended
        to the address of the server that `command` starts.
        """
        return {}

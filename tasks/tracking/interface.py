"""What every place where campaigns are shown can do; and the one that shows nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

from tasks.deciding.certificate import Certificate
from tasks.tracking.trial_run import CampaignRecord, TrialFiles
from tasks.trial import History, Trial

Ending = Literal["finished", "failed", "stopped"]


class Tracker(Protocol):
    """Where campaigns are shown. Every method may raise `Unreachable`, and may be called again any time.

    `certificates` are all that the campaign has by then, those of other environments among them.
    """

    def open_campaign(self, campaign: CampaignRecord) -> str:
        """Show the campaign as running; the id of its run, which is created when missing."""

    def log_trial(self, campaign: CampaignRecord, trial: Trial, files: TrialFiles) -> str:
        """Show a decided trial, whole; the id of its run. A changed verdict replaces the earlier one."""

    def log_traces(self, campaign: CampaignRecord, trial: Trial, files: TrialFiles) -> str:
        """Show what models were asked for a trial, linked to its run; the id of that, empty when there is none."""

    def log_standing(
        self, campaign: CampaignRecord, trial: Trial, history: History, certificates: Sequence[Certificate]
    ) -> None:
        """Show the best score as it was once `trial` was decided, and how the campaign stands after `history`."""

    def log_certificates(
        self, campaign: CampaignRecord, history: History, certificates: Sequence[Certificate]
    ) -> None:
        """Show what fresh runs proved."""

    def register(self, campaign: CampaignRecord, certificate: Certificate, run_id: str) -> str:
        """Make a certified champion's checkpoint, which its trial's run holds, a version of its environment's model.

        Returns:
            Which one; or why it is none, where the store has no registry or the run no checkpoint.
        """

    def close_campaign(
        self,
        campaign: CampaignRecord,
        status: Ending,
        history: History,
        certificates: Sequence[Certificate],
        folder: Path,
    ) -> None:
        """Show how the campaign ended, with what lies in its `folder` (see tasks/store/ledger.py)."""

    def urls(self, campaign: CampaignRecord) -> dict[str, str]:
        """Where to look: its trials as a table, best first; the same as charts; the nights of its environment.

        `url`, `charts_url` and `nights_url`; without a server `path`, `charts_path` and `nights_path`, to be put
        behind the address of whatever serves the database: `command` starts that.
        """


class NoTracking:
    """Tracking is off."""

    def open_campaign(self, campaign: CampaignRecord) -> str:
        return ""

    def log_trial(self, campaign: CampaignRecord, trial: Trial, files: TrialFiles) -> str:
        return ""

    def log_traces(self, campaign: CampaignRecord, trial: Trial, files: TrialFiles) -> str:
        return ""

    def log_standing(
        self, campaign: CampaignRecord, trial: Trial, history: History, certificates: Sequence[Certificate]
    ) -> None:
        pass

    def log_certificates(
        self, campaign: CampaignRecord, history: History, certificates: Sequence[Certificate]
    ) -> None:
        pass

    def register(self, campaign: CampaignRecord, certificate: Certificate, run_id: str) -> str:
        return ""

    def close_campaign(
        self,
        campaign: CampaignRecord,
        status: Ending,
        history: History,
        certificates: Sequence[Certificate],
        folder: Path,
    ) -> None:
        pass

    def urls(self, campaign: CampaignRecord) -> dict[str, str]:
        return {}

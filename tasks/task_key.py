"""The key of a task's result, and the digests that are part of it. Plain values, without Prefect."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from tasks.trial import History


@dataclass(frozen=True)
class TaskKey:
    """One run of a trial. With a task's name it names a result: everything that distinguishes two results is in it,
    and nothing that may change when a campaign is resumed."""

    campaign_id: str
    digest: str
    """Digest of everything that changes a score (tasks/store/ledger.py)."""
    number: int
    attempt: int = 1
    part: str = ""
    """Name of the run; empty for the first."""
    launched: bool = False
    """Whether it runs in a run of the deployment `trial`, not in the campaign's process."""

    def __str__(self) -> str:
        part = f"/{self.part}" if self.part else ""
        return f"{self.campaign_id}/{self.digest}/{self.number:04d}/{self.attempt}{part}"

    @property
    def marker(self) -> str:
        """Marks the run's processes, so that a resumed campaign ends them; a launched run outlives the campaign."""
        run = f"{self.campaign_id}/{self.number:04d}/{self.attempt}/{self.part or 'run-1'}"
        return f"launched/{run}" if self.launched else run


def history_digest(history: History) -> str:
    """A digest of the decisions: proposals, scores and verdicts, without times."""
    return _sha(f"[{', '.join(trial.decided for trial in history)}]")


def spec_digest(parts: Mapping[str, object]) -> str:
    """A digest of everything that changes a score; `parts` must be JSON."""
    return _sha(json.dumps(parts, sort_keys=True))


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]

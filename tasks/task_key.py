"""The key of a task's result, the digests that are part of it, and the seeds of its draws."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

from tasks.trial import History

Purpose = Literal["propose", "train", "search", "control", "confirm", "report", "order", "recording"]
"""What a seed is for. A proposer sees scores of `search` units, pass or fail of `confirm` units, nothing of `report`
units. `order`: of a certificate's runs; `recording`: the episode that people see.
"""
JUDGED = ("search", "control", "confirm", "report", "recording")
"""Purposes whose seeds draw the judge's units."""


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

    def __str__(self) -> str:
        part = f"/{self.part}" if self.part else ""
        return f"{self.campaign_id}/{self.digest}/{self.number:04d}/{self.attempt}{part}"

    def marker(self, launched: bool = False) -> str:
        """Marks the run's processes, so that a resumed campaign ends them; one that is launched, by a run of the
        deployment `trial`, outlives the campaign's process.
        """
        run = f"{self.campaign_id}/{self.number:04d}/{self.attempt}/{self.part or 'run-1'}"
        return f"launched/{run}" if launched else run


def history_digest(history: History) -> str:
    """A digest of the decisions: proposals, scores and verdicts, without times."""
    return digest_of(f"[{', '.join(trial.decided for trial in history)}]")


def digest_of(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode(errors="surrogateescape")).hexdigest()[:16]


def derive(seed: int | str, purpose: Purpose, number: int, attempt: int, part: str = "") -> int:
    """The seed for one purpose: below 2**31, which every library accepts; a judge's below 2**63, not to be guessed.

    A program knows its training seed, from which a 31-bit campaign seed can be found by brute force; so the judge's
    are derived from the campaign's secret key instead.
    """
    named = f"{seed}/{purpose}/{number}/{attempt}" + (f"/{part}" if part else "")
    digest = hashlib.sha256(named.encode()).digest()
    return int.from_bytes(digest[:8]) % (2**63 if purpose in JUDGED else 2**31)

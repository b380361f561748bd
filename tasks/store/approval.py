"""Approval: a proposal that waits for a person's word, and what the person said.

    trials/0007/approval.json   that it waits, since when and until when
    trials/0007/answer.json     what was said, by whom; the first answer stands
    trials/0007/answered        that the campaign has seen it

The campaign goes on with other trials meanwhile. A proposal that was rejected keeps its number and is never trained.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from tasks.store import workspace
from tasks.store.workspace import TrialDir
from tasks.system.files import write_atomic
from tasks.trial import Proposal

Mode = Literal["none", "code", "all"]
"""What needs a person's word: nothing, every new program, or every trial."""


@dataclass(frozen=True)
class ApprovalRequest:
    """That a proposal waits."""

    since: float
    """Unix time, in seconds."""
    until: float
    """Unix time from which on no answer counts as a no, in seconds."""
    flow_run_id: str | None = None
    """The run in Prefect that asks the same with a form; None where there is none."""


@dataclass(frozen=True)
class ApprovalAnswer:
    """What became of it."""

    approved: bool
    by: Literal["terminal", "prefect", "time"]
    """Where it was said; `time`: nobody said anything."""
    comment: str = ""
    at: float = 0.0
    """Unix time, in seconds."""


@dataclass(frozen=True)
class Parked:
    """A proposal that a person was asked about."""

    number: int
    proposal: Proposal
    asked: ApprovalRequest
    answer: ApprovalAnswer | None

    @property
    def state(self) -> Literal["waiting", "approved", "rejected"]:
        if self.answer is None:
            return "waiting"
        return "approved" if self.answer.approved else "rejected"

    @property
    def words(self) -> str:
        """What a person made of it, in words; empty while it waits."""
        if self.answer is None:
            return ""
        if self.answer.by == "time":
            return "rejected: nobody answered in time"
        said = "approved" if self.answer.approved else "rejected by a person"
        return f"{said}: {self.answer.comment}" if self.answer.comment else said


ASKED, ANSWER = TypeAdapter(ApprovalRequest), TypeAdapter(ApprovalAnswer)


def ask(place: TrialDir, asked: ApprovalRequest) -> None:
    write_atomic(_asked(place), ASKED.dump_json(asked, indent=2).decode() + "\n")


def answer(place: TrialDir, said: ApprovalAnswer) -> bool:
    """Write an answer down, unless there is one; whether it was the first."""
    path = place.path / "answer.json"
    draft = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    draft.write_text(ANSWER.dump_json(said, indent=2).decode() + "\n")
    try:
        path.hardlink_to(draft)
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    return True


def parked(trials: Path) -> Iterator[Parked]:
    """Every proposal that a person was asked about, by number.

    Args:
        trials: The campaign's folder of trials.
    """
    for path in sorted(trials.glob("*/approval.json")):
        place = TrialDir(path.parent)
        said = path.with_name("answer.json")
        yield Parked(
            int(place.path.name),
            workspace.PROPOSAL.validate_json(place.proposal.read_bytes()),
            ASKED.validate_json(path.read_bytes()),
            ANSWER.validate_json(said.read_bytes()) if said.is_file() else None,
        )


def close(place: TrialDir) -> None:
    """Note that whoever asked knows the answer."""
    (place.path / "answered").touch()


def is_closed(place: TrialDir) -> bool:
    return (place.path / "answered").exists()


def is_held(place: TrialDir) -> bool:
    """Whether a proposal waits for a person's word, or was rejected: it does not run."""
    said = place.path / "answer.json"
    return _asked(place).is_file() and not (
        said.is_file() and ANSWER.validate_json(said.read_bytes()).approved
    )


def _asked(place: TrialDir) -> Path:
    return place.path / "approval.json"

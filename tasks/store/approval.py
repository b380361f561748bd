"""Approvals: proposals that wait for a person, and the answers.

    trials/0007/approval.json   the request: since when, until when
    trials/0007/answer.json     the answer, and who gave it; the first one counts
    trials/0007/answered        the campaign has seen the answer

The campaign goes on with other trials meanwhile. A rejected proposal keeps its number and is never trained.
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
"""What needs approval: nothing, every new program, or every trial."""


@dataclass(frozen=True)
class ApprovalRequest:
    since: float
    """Unix time, in seconds."""
    until: float
    """Deadline as Unix time, in seconds; without an answer by then the proposal is rejected."""
    flow_run_id: str | None = None
    """The flow run that shows the form in Prefect; None without one."""


@dataclass(frozen=True)
class ApprovalAnswer:
    approved: bool
    by: Literal["terminal", "prefect", "time"]
    """Where the answer came from; `time`: nobody answered in time."""
    comment: str = ""
    at: float = 0.0
    """Unix time, in seconds."""


@dataclass(frozen=True)
class Parked:
    """A proposal that needed approval."""

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
        """The answer in words; empty while it waits."""
        if self.answer is None:
            return ""
        if self.answer.by == "time":
            return "rejected: nobody answered in time"
        said = "approved" if self.answer.approved else "rejected by a person"
        return f"{said}: {self.answer.comment}" if self.answer.comment else said


ASKED, ANSWER = TypeAdapter(ApprovalRequest), TypeAdapter(ApprovalAnswer)


def ask(place: TrialDir, asked: ApprovalRequest) -> None:
    write_atomic(place.path / "approval.json", ASKED.dump_json(asked, indent=2).decode() + "\n")


def answer(place: TrialDir, said: ApprovalAnswer) -> bool:
    """Store an answer, unless there is one; whether it was the first."""
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
    """Every proposal that needed approval, by number; `trials` is the campaign's folder of trials."""
    # As text, since it is asked of every trial, and often.
    asked = (folder for folder in trials.iterdir() if os.path.exists(f"{folder}/approval.json"))  # noqa: PTH110
    for place in map(TrialDir, sorted(asked)):
        path, said = place.path / "approval.json", place.path / "answer.json"
        yield Parked(
            int(place.path.name),
            workspace.PROPOSAL.validate_json(place.proposal.read_bytes()),
            ASKED.validate_json(path.read_bytes()),
            ANSWER.validate_json(said.read_bytes()) if said.is_file() else None,
        )


def close(place: TrialDir) -> None:
    (place.path / "answered").touch()


def is_closed(place: TrialDir) -> bool:
    return (place.path / "answered").exists()


def is_held(place: TrialDir) -> bool:
    """Whether a proposal waits for approval or was rejected, and so does not run."""
    said = place.path / "answer.json"
    waits = not said.is_file() or not ANSWER.validate_json(said.read_bytes()).approved
    return waits and (place.path / "approval.json").is_file()

"""Proposals that wait for a person: trials/0007/parked.json has the request, and later the answer.

A rejected proposal keeps its number and is never trained.
"""

from __future__ import annotations

import glob
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from filelock import FileLock
from pydantic import TypeAdapter

from tasks.store.ledger import Ledger
from tasks.store.workspace import TrialDir
from tasks.system.files import write_atomic
from tasks.trial import Proposal

NAME = "parked.json"


@dataclass(frozen=True)
class Parked:
    """A proposal that needed approval."""

    number: int
    proposal: Proposal
    until: float
    """Unix time, in seconds; without an answer by then it is rejected."""
    flow_run_id: str | None = None
    """The flow run that shows the form in Prefect; None without one."""
    state: Literal["waiting", "approved", "rejected"] = "waiting"
    comment: str = ""

    @property
    def words(self) -> str:
        return f"{self.state}: {self.comment}" if self.comment else self.state


PARKED = TypeAdapter(Parked)


def park(place: TrialDir, parked: Parked) -> None:
    write_atomic(place.path / NAME, PARKED.dump_json(parked, indent=2) + b"\n")


def answer(ledger: Ledger, number: int, approved: bool, comment: str, by: str) -> bool:
    """Store an answer, unless there is one; whether it was the first."""
    place = ledger.place(number)
    with FileLock(place.path / f".{NAME}.lock"):
        if (one := read(place)).state != "waiting":
            return False
        state: Literal["approved", "rejected"] = "approved" if approved else "rejected"
        park(place, replace(one, state=state, comment=comment))
    ledger.event("answer", trial=number, approved=approved, by=by, comment=comment)
    return True


def read(place: TrialDir) -> Parked:
    return PARKED.validate_json((place.path / NAME).read_bytes())


def parked(trials: Path) -> tuple[Parked, ...]:
    """Every proposal that needed approval, by number; `trials` is the campaign's folder of trials."""
    # Not Path.glob, which is slow where there are many, and this is asked often.
    paths = sorted(glob.glob(f"{trials}/*/{NAME}"))  # noqa: PTH207
    return tuple(read(TrialDir(Path(path).parent)) for path in paths)


def is_held(place: TrialDir) -> bool:
    """Whether a proposal waits for approval or was rejected, and so does not run."""
    return (place.path / NAME).is_file() and read(place).state != "approved"

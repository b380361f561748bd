"""Uses of an environment's report questions, recorded beside its prepared files, across campaigns.

Questions that are drawn anew for each use do not wear out. A finite pool does: repeated certificates on the same
questions select for them. So every use is recorded, and each certificate states how many came before it.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock
from pydantic import TypeAdapter, ValidationError

from tasks.system.files import append_line


@dataclass(frozen=True)
class HoldoutUse:
    campaign: str
    """The campaign's id."""
    look: int
    """The campaign's analysis, from 1."""
    time: float
    """Start of the use, in Unix seconds."""


LOOK = TypeAdapter(HoldoutUse)


def path_of(prepared: Path) -> Path:
    return prepared.with_name(f"{prepared.name}.looks.jsonl")


def looks(prepared: Path) -> tuple[HoldoutUse, ...]:
    """Every use so far, in order; a line cut short by a kill is left out."""
    path = path_of(prepared)
    found: list[HoldoutUse] = []
    for line in path.read_bytes().splitlines() if path.is_file() else ():
        with suppress(ValidationError):
            found.append(LOOK.validate_json(line))
    return tuple(found)


def note(prepared: Path, campaign: str, look: int) -> int:
    """Record a use, unless it is recorded; returns the number of earlier uses."""
    path = path_of(prepared)
    with FileLock(path.with_name(f"{prepared.name}.lock")):
        known = [(one.campaign, one.look) for one in looks(prepared)]
        if (campaign, look) in known:
            return known.index((campaign, look))
        append_line(path, json.dumps(asdict(HoldoutUse(campaign, look, round(time.time(), 3)))))
    return len(known)

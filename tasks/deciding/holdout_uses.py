"""Uses of an environment's report questions, recorded beside its prepared files, across campaigns.

Questions that are drawn anew for each use do not wear out. A finite pool does: repeated certificates on the same
questions select for them. So every use is recorded, and each certificate states how many came before it.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock
from pydantic import TypeAdapter, ValidationError


@dataclass(frozen=True)
class HoldoutUse:
    """One use, by a certificate."""

    campaign: str
    """The campaign's id."""
    look: int
    """The campaign's analysis, from 1."""
    time: float
    """Start of the use, in Unix seconds."""


LOOK = TypeAdapter(HoldoutUse)


def path_of(prepared: Path) -> Path:
    """The record of a prepared folder."""
    return prepared.with_name(f"{prepared.name}.looks.jsonl")


def looks(prepared: Path) -> tuple[HoldoutUse, ...]:
    """Every use so far, in order; a line cut short by a kill is left out."""
    path = path_of(prepared)
    found: list[HoldoutUse] = []
    for line in path.read_bytes().splitlines() if path.is_file() else ():
        try:
            found.append(LOOK.validate_json(line))
        except ValidationError:
            continue
    return tuple(found)


def note(prepared: Path, campaign: str, look: int) -> int:
    """Record a use, unless it is recorded.

    Returns:
        Number of earlier uses.
    """
    path = path_of(prepared)
    with FileLock(path.with_name(f"{prepared.name}.lock")):
        known = [(one.campaign, one.look) for one in looks(prepared)]
        if (campaign, look) in known:
            return known.index((campaign, look))
        line = json.dumps(asdict(HoldoutUse(campaign, look, round(time.time(), 3)))) + "\n"
        with path.open("ab+") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(end - 1, 0))
            torn = file.read(1) not in (b"", b"\n")  # a full disk or a kill cut the last line short
            file.write((b"\n" if torn else b"") + line.encode())
    return len(known)

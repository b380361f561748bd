"""How often the report questions of an environment were looked at: a ledger beside what its recipe has made.

Questions that are made anew for each look cannot wear out. A finite pool can: whoever looks at its report questions
again and again, in one campaign after the other, and goes on with what did well there, begins to choose by them. So
each look is noted, across campaigns, and every certificate says how often the questions were looked at before.
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
    """One certificate."""

    campaign: str
    """The campaign's id."""
    look: int
    """Of that campaign, from 1."""
    time: float
    """When it began, as Unix time in seconds."""


LOOK = TypeAdapter(HoldoutUse)


def path_of(prepared: Path) -> Path:
    """Where looks at the report questions of a prepared folder are noted."""
    return prepared.with_name(f"{prepared.name}.looks.jsonl")


def looks(prepared: Path) -> tuple[HoldoutUse, ...]:
    """Every look so far, in the order in which they began; a line that a kill cut short is left out."""
    path = path_of(prepared)
    found: list[HoldoutUse] = []
    for line in path.read_bytes().splitlines() if path.is_file() else ():
        try:
            found.append(LOOK.validate_json(line))
        except ValidationError:
            continue
    return tuple(found)


def note(prepared: Path, campaign: str, look: int) -> int:
    """Note that a look begins, unless it had begun already.

    Returns:
        How many looks had begun before it.
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

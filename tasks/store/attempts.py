"""Attempts: trials that were run again, and which of their attempts is current.

    runs/<campaign>/attempts.json   {"7": 2}; a trial that is not listed has one attempt

The second attempt at trial 7 is in trials/0007.2/ (0007.2-run-2/ and so on), beside the first. Nothing is moved or
removed, so a kill leaves nothing half done. The attempt's number is part of keys and seeds, so its results are new;
the proposal stays with the first attempt. An attempt counts once it has a trial.json. Until then it is *pending*, and
the attempt before it counts.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import TypeAdapter

from tasks.store.workspace import TrialDir
from tasks.system.files import write_atomic

FILE = "attempts.json"
ATTEMPTS = TypeAdapter(dict[int, int])


def current(campaign: Path) -> dict[int, int]:
    """The current attempt at each trial that has several, by trial."""
    try:
        return ATTEMPTS.validate_json((campaign / FILE).read_bytes())
    except FileNotFoundError:
        return {}


def pending(campaign: Path) -> dict[int, int]:
    every = current(campaign).items()
    places = {which: TrialDir(campaign / "trials" / directory(*which)) for which in every}
    return dict(which for which, place in places.items() if not place.trial.is_file())


def begin(campaign: Path, number: int, attempt: int) -> None:
    changed = current(campaign) | {number: attempt}
    write_atomic(campaign / FILE, ATTEMPTS.dump_json(dict(sorted(changed.items()))).decode() + "\n")


def directory(number: int, attempt: int, part: str = "") -> str:
    """Name of the directory of a trial, or of another of its runs."""
    again = f".{attempt}" if attempt > 1 else ""
    return f"{number:04d}{again}{f'-{part}' if part else ''}"

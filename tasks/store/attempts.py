"""Attempts: which attempt at a trial is the current one, for the few trials that were run again.

    runs/<campaign>/attempts.json   {"7": 2}; a trial that is not there has one attempt

That file is the one word on it. The second attempt at trial 7 is made in trials/0007.2/ (0007.2-run-2/ and so on),
beside the first, which stays where it is: nothing is moved or removed, so a kill leaves nothing half moved. The number
of the attempt is part of keys and seeds, so results are new; the proposal stays where the first attempt has it. An
attempt counts once it has a trial.json. Until then the one before it does, and the attempt is *pending*.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import TypeAdapter

from tasks.store.workspace import TrialDir
from tasks.system.files import write_atomic

FILE = "attempts.json"
ATTEMPTS = TypeAdapter(dict[int, int])


def current(campaign: Path) -> dict[int, int]:
    """The current attempt at each trial that has more than one, by the trial's number."""
    try:
        return ATTEMPTS.validate_json((campaign / FILE).read_bytes())
    except FileNotFoundError:
        return {}


def pending(campaign: Path) -> dict[int, int]:
    """Those of them that do not count yet."""
    every = current(campaign).items()
    places = {which: TrialDir(campaign / "trials" / directory(*which)) for which in every}
    return dict(which for which, place in places.items() if not place.trial.is_file())


def begin(campaign: Path, number: int, attempt: int) -> None:
    """Make this the current attempt at a trial."""
    changed = current(campaign) | {number: attempt}
    write_atomic(campaign / FILE, ATTEMPTS.dump_json(dict(sorted(changed.items()))).decode() + "\n")


def directory(number: int, attempt: int, part: str = "") -> str:
    """What the directory of a trial, or of another run of it, is called."""
    again = f".{attempt}" if attempt > 1 else ""
    return f"{number:04d}{again}{f'-{part}' if part else ''}"

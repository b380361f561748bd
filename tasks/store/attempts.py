"""Attempts: a trial that is run again has another directory, beside the first.

    trials/0007/      its first attempt      trials/0007.2/   its second (0007.2-run-2/ and so on: further runs of it)

The number of the attempt is part of keys and seeds; the proposal stays the same. An attempt whose directory has no
trial.json is *pending*: the next process that takes the campaign runs it first.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

ATTEMPT = re.compile(r"(\d+)\.(\d+)")


def current(trials: Path, number: int) -> int:
    """The newest attempt at a trial, from 1."""
    attempt = 1
    while (trials / directory(number, attempt + 1)).is_dir():
        attempt += 1
    return attempt


def pending(trials: Path) -> dict[int, int]:
    """The trials that are to be run again, with the number of the attempt, in order."""
    again = {path: ATTEMPT.fullmatch(path.name) for path in trials.iterdir()}
    return dict(
        sorted((int(one[1]), int(one[2])) for path, one in again.items() if one and not (path / "trial.json").is_file())
    )


def begin(trials: Path, number: int) -> int:
    """Begin another attempt at a trial, with the same proposal; returns its number."""
    attempt = current(trials, number) + 1
    folder, draft = trials / directory(number, attempt), trials / f".{directory(number, attempt)}"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    shutil.copyfile(trials / directory(number, 1) / "proposal.json", draft / "proposal.json")
    draft.rename(folder)
    return attempt


def directory(number: int, attempt: int, part: str = "") -> str:
    """Name of the directory of a trial, or of another of its runs."""
    again = f".{attempt}" if attempt > 1 else ""
    return f"{number:04d}{again}{f'-{part}' if part else ''}"

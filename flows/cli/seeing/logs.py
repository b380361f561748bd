"""`nightshift logs`: the output of a trial's program, in training and under the judge."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from environments.plugins import Refused
from flows.views import terminal
from tasks.store import campaign_lock
from tasks.store.ledger import Ledger
from tasks.system.redact import clean


def print_logs(name: str, trial: int | None, follow: bool, attempt: int | None = None) -> int:
    """Print a trial's logs, by default the newest trial's; with `follow`, go on until the trial is decided."""
    ledger = Ledger.open(name)
    numbers = sorted(int(path.name) for path in ledger.trials.iterdir() if path.name.isdigit())
    if not numbers:
        raise Refused(f"campaign {name!r} has no trial yet")
    number = numbers[-1] if trial is None else trial
    if number not in numbers:
        raise Refused(f"campaign {name!r} has no trial {number}: it has 0 to {numbers[-1]}")
    if attempt is not None and not 1 <= attempt <= ledger.attempt(number):
        raise Refused(f"trial {number} of campaign {name!r} has no attempt {attempt}: it has {ledger.attempt(number)}")
    place = ledger.place(number, attempt=attempt)
    for title, path in (("training", place.log), ("under judgement", place.judge_log)):
        print(f"== trial {number}, {title}: {terminal.short(path)}")
        offset = _print_from(path, 0, whole=not follow)
        while follow and not place.trial.is_file() and campaign_lock.is_running(ledger):
            time.sleep(0.2)
            offset = _print_from(path, offset, whole=False)
            if path == place.log and place.judge_log.is_file():
                break
        _print_from(path, offset, whole=True)
    return 0


def _print_from(path: Path, offset: int, whole: bool) -> int:
    """Print a log from `offset` on, without control characters; the new offset.

    Args:
        whole: Whether to print an unfinished last line too.
    """
    if not path.is_file():
        return offset
    with path.open("rb") as file:
        file.seek(offset)
        new = file.read()
    if not whole:
        new = new[: new.rfind(b"\n") + 1]
    for line in clean(new.decode(errors="replace")):
        print(line)
    sys.stdout.flush()
    return offset + len(new)

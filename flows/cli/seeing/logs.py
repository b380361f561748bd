"""`nightshift logs`: the output of a trial's program, in training and under the judge, over all of its runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from environments.plugins import Refused
from flows.views import terminal
from tasks.store import campaign_lock
from tasks.store.ledger import Ledger
from tasks.store.workspace import TrialDir
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
    place, printed = ledger.place(number, attempt=attempt), _Printed()
    while follow and not place.trial.is_file() and campaign_lock.is_running(ledger):
        printed.add(_logs(place, number), whole=False)
        time.sleep(0.2)
    printed.add(_logs(place, number), whole=True)
    if printed.nothing:
        print(f"trial {number} has printed nothing: {terminal.short(place.log)}")
    return 0


def _logs(place: TrialDir, number: int) -> Iterator[tuple[str, Path]]:
    """Heading and path of each log of a trial: of every training seed, and of reruns that it asked for."""
    folder = place.path
    others = sorted(folder.parent.glob(f"{folder.name}-*"), key=lambda path: (len(path.name), path.name))
    for run in (folder, *others):
        part = run.name.removeprefix(folder.name).replace("-", " ").strip()
        title = f"trial {number}{f' ({part})' if part else ''}"
        yield f"{title}, training", TrialDir(run).log
        yield f"{title}, under judgement", TrialDir(run).judge_log


class _Printed:
    """What has been printed of logs that grow side by side."""

    def __init__(self) -> None:
        self._offsets: dict[Path, int] = {}
        self._last: Path | None = None

    @property
    def nothing(self) -> bool:
        return self._last is None

    def add(self, logs: Iterable[tuple[str, Path]], whole: bool) -> None:
        """Print what is new in the logs, without control characters, each under its heading.

        Args:
            whole: Whether to print an unfinished last line too.
        """
        for title, path in logs:
            offset = self._offsets.get(path, 0)
            try:
                with path.open("rb") as file:
                    file.seek(offset)
                    new = file.read()
            except FileNotFoundError:
                continue
            if not whole:
                new = new[: new.rfind(b"\n") + 1]
            if new and path != self._last:
                print(f"== {title}: {terminal.short(path)}")
                self._last = path
            for line in clean(new.decode(errors="replace")):
                print(line)
            self._offsets[path] = offset + len(new)
        sys.stdout.flush()

"""A night in ten seconds: a recorded campaign fills a folder again, at the pace of its files, before the live view.

A recording is JSON: each file of a campaign as what was written to it, with the seconds that it had run by then; each
byte as a character. tests/support/recording.py makes one.
"""

from __future__ import annotations

import gzip
import json
import os
import time
from pathlib import Path
from typing import ClassVar

from filelock import FileLock
from rich.console import Console

from flows.report.page import write_report
from flows.watch import CampaignWatch
from tasks.store.campaign_lock import LOCK
from tasks.store.ledger import Ledger
from tasks.system import file_trees
from tasks.system.home import home

NIGHT = Path(__file__).parent / "night.json.gz"
"""A real night of eight hours on BipedalWalker, with kills, an outage and a full disk: benchmarks/night.py made it."""
SECONDS = 10.0


def play(file: Path, console: Console) -> Ledger:
    """Play a recording through the live view, in a folder of its own in the home; the campaign, with its report."""
    os.environ["NIGHTSHIFT_HOME"] = str(home() / ".replay")
    night = _Replay(file, console)
    file_trees.remove(night.folder)
    night.fill(night.begin)
    with FileLock(night.folder / LOCK), night:  # a campaign runs while a process holds its lock
        time.sleep(SECONDS)
    night.fill(night.end)
    ledger = Ledger.at(night.folder)
    write_report(ledger)
    return ledger


class _Replay(CampaignWatch):
    """The live view of a night that is played, by when each file was written; of files that grow, each line."""

    look_seconds: ClassVar[float] = 0.1

    def __init__(self, file: Path, console: Console) -> None:
        self._chunks: dict[str, list[tuple[float, str]]] = json.loads(gzip.decompress(file.read_bytes()))
        super().__init__(json.loads(self._chunks["campaign.json"][0][1])["name"], console)
        self.folder, self._start = home() / self._name, time.monotonic()
        self.begin, self.end = (self._chunks["events.jsonl"][place][0] for place in (0, -1))

    def fill(self, moment: float) -> None:
        """Bring the folder to what it was at a moment (seconds that it had run)."""
        (self.folder / "trials").mkdir(parents=True, exist_ok=True)
        for name, chunks in self._chunks.items():
            due = [text for written, text in chunks if written <= moment or moment >= self.end]
            path, content = self.folder / name, "".join(due).encode("latin-1")
            if due and not (path.is_file() and path.stat().st_size == len(content)):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)

    def read(self) -> None:
        passed = min((time.monotonic() - self._start) / SECONDS, 1.0)
        moment = self.begin + passed * (self.end - self.begin)
        self.fill(moment)
        super().read()
        self._document |= {"ends": time.time() + self.end - moment}
        self._document["spent"]["seconds"] = moment - self.begin

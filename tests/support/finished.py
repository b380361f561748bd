"""One finished campaign that several test files look at: it takes seconds, so it is run once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from tests.support.toy import GREEDY, nightshift, quadratic, slow

OPTIONS = ("--trials", "3", "--seed", "3", *GREEDY)


@dataclass(frozen=True)
class Finished:
    home: Path
    """Holds the campaign `one`. Nobody may write here: copy it."""
    printed: str
    """What its command printed."""


def finished_campaign(folder: Path, server: str) -> Finished:
    """The campaign of that folder, run by whoever comes first."""
    folder.mkdir(exist_ok=True)
    home, printed = folder / "runs", folder / "printed.json"
    with FileLock(folder / "made.lock"):
        if not printed.exists():
            run = ("run", str(quadratic(folder / "quad", fit=slow(0.4))), "--name", "one", *OPTIONS)
            done = nightshift(*run, "--tracking", "off", "--json", server=server, NIGHTSHIFT_HOME=str(home))
            assert done.returncode == 0, done.stderr
            printed.write_text(done.stdout)
    return Finished(home, printed.read_text())

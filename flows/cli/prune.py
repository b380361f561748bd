"""`nightshift prune`: free the disk space that a campaign no longer needs.

Of a decided trial its records, logs, diff and curve stay, and its program stays in lineage.git. Kept whole are the
baseline, the champion, certified trials, and those that wait for MLflow.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tasks.store.campaign_lock import left_alone
from tasks.store.ledger import Ledger, decided_trial
from tasks.store.workspace import is_own
from tasks.system import file_trees
from tasks.system.home import home
from tasks.tracking import sync
from tasks.tracking.values import metric_key
from tasks.trial import Trial, baseline, best

STAYS = {"out": "progress.jsonl", "workspace": "config.json", "judged": "result.json"}
"""The folders of a run that are emptied, with the one file in each that stays."""


class Freed(NamedTuple):
    """What was removed of a campaign, or would be."""

    campaign: str
    bytes: int
    """Disk usage."""
    runs: int
    """Of which something was removed."""
    kept: list[int]
    """The trials that stay whole."""
    unsent: list[int]
    """Those of them that wait for MLflow."""


def free(ledger: Ledger, dry: bool) -> Freed:
    """Remove what a campaign no longer needs; with `dry`, only count it.

    Raises:
        Refused: the campaign is running, or cannot be read.
    """
    with left_alone(ledger):
        history, records = ledger.history(), sync.last(ledger)
        unsent = {trial.number for trial in history if records.store and sync.part(trial) not in records.runs}
        kept = unsent | {trial.number for trial in (baseline(history), best(history)) if trial}
        kept |= {each.champion for each in ledger.certificates() if each.passed and not each.elsewhere}
        whole = {name for trial in history if trial.number in kept for name in _folders(ledger, trial)}
        freed = [_empty(folder, dry) for folder in _finished_runs(ledger) if folder.name not in whole]
        artifacts = [_remove_artifact(ledger, trial, dry) for trial in history if trial.number not in kept]
        total, runs = sum(freed) + sum(artifacts), sum(map(bool, freed))
        if runs and not dry:
            ledger.event("pruned", runs=runs, bytes=total, kept=sorted(kept))
    return Freed(ledger.campaign.name, total, runs, sorted(kept), sorted(unsent))


def _folders(ledger: Ledger, trial: Trial) -> list[str]:
    """The names of the directories of a trial's runs, in its current attempt."""
    current = ledger.place_of(trial).path.name
    return [current, *(f"{current}-run-{seed}" for seed in range(2, len(trial.runs) + 1))]


def _finished_runs(ledger: Ledger) -> Iterator[Path]:
    """The directories of runs of decided trials, and of those of complete certificates and ablations."""
    for path in sorted(ledger.trials.iterdir()):
        name, _, part = path.name.partition("-")
        if is_own(part) and decided_trial(path.with_name(name)):
            yield path
    for kind in ("certificates", "ablations"):
        for result in sorted((ledger.path / kind).glob("*.json")):
            # Of `1-on-lander` are no runs of `1-on-lander-2`, which may be under way.
            own = re.compile(rf"{re.escape(result.stem)}-\d+-((champion|baseline)-)?\d+")
            yield from (path for path in sorted(result.parent.iterdir()) if own.fullmatch(path.name) and path.is_dir())


def _empty(folder: Path, dry: bool) -> int:
    """Remove the large files of a run; the bytes freed. No link is followed."""
    doomed = [folder / name for name in ("log.txt.tmp", "judge.txt.tmp", ".outgoing")]  # of a killed run
    for name, stays in STAYS.items():
        inside = folder / name
        if inside.is_symlink() or not inside.is_dir():
            doomed.append(inside)
        else:
            doomed += [path for path in inside.iterdir() if path.name != stays or path.is_symlink() or path.is_dir()]
    return sum(_remove(path, dry) for path in doomed if os.path.lexists(path))


def _remove_artifact(ledger: Ledger, trial: Trial, dry: bool) -> int:
    """Remove a trial's checkpoint from MLflow's artifacts in this home, not from a server's; the bytes freed."""
    run = sync.last(ledger).runs.get(sync.part(trial), "")
    copy = home() / "artifacts" / metric_key(ledger.environment.name) / run / "artifacts" / "out"
    return _remove(copy, dry) if run.isalnum() and copy.is_dir() else 0


def _remove(path: Path, dry: bool) -> int:
    """Remove a file, a link or a tree; the bytes that it took on the disk."""
    size = _size(path)
    if not dry:
        file_trees.remove(path)
    return size


def _size(path: Path) -> int:
    """Disk usage of a tree, in bytes; links are not followed."""
    status = path.lstat()
    below = path.iterdir() if stat.S_ISDIR(status.st_mode) else ()
    return status.st_blocks * 512 + sum(map(_size, below))

"""The verbs about this machine and what campaigns leave on it: prune, sync."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from rich.filesize import decimal

from environments.plugins import Refused
from flows.status import state, stored_spec
from flows.views import terminal
from tasks.remote import jobs
from tasks.store import campaign_lock
from tasks.store.ledger import FORMAT, Ledger, decided_trial, readable
from tasks.store.workspace import is_own
from tasks.system import file_trees
from tasks.system.home import home
from tasks.tracking import sync as tracking
from tasks.tracking.connection import locate
from tasks.tracking.values import metric_key
from tasks.trial import Trial, baseline, best

T = TypeVar("T")
STAYS = {"out": "progress.jsonl", "workspace": "config.json", "judged": "result.json"}
"""The folders of a run that are emptied, with the one file in each that stays."""


def prune(campaign: str | None = None, /, *, dry_run: bool = False) -> int:
    """Delete the large files of trials of CAMPAIGN (default: every campaign that is not running).

    Trials on other machines that nobody follows are removed there, too.

    Example: nightshift prune --dry-run

    Args:
        dry_run: Only print what would be deleted.
    """
    wanted = jobs.is_of(Ledger.open(campaign).campaign.campaign_id) if campaign else lambda job: True
    if dry_run:
        lines = [f"would remove {job.key} at {job.trainer}" for job in jobs.unfollowed() if wanted(job)]
    else:
        lines = [*jobs.sweep(wanted)]
    print(*lines, sep="\n", end="\n" * bool(lines))
    results, failed = _each(campaign, lambda ledger: free(ledger, dry_run))
    for one in results:
        kept = ", ".join(map(str, one.kept)) or "none"
        print(
            f"{'would free' if dry_run else 'freed'} {decimal(one.bytes)} of {one.campaign}; kept whole: trial {kept}"
        )
        if one.unsent:
            print(f"  {len(one.unsent)} wait for MLflow: nightshift sync {one.campaign}")
    return int(failed)


def sync(campaign: str | None = None, /) -> int:
    """Send waiting records of CAMPAIGN (default: all) to MLflow. A running one does so itself after each trial.

    Example: nightshift sync
    """
    if campaign:
        Ledger.open(campaign).check_version()
    results, failed = _each(campaign, _send)
    for name, problem in filter(None, results):
        print(terminal.clean(f"{name}: {problem or 'MLflow has everything'}"))
        failed |= bool(problem)
    return int(failed)


def _send(ledger: Ledger) -> tuple[str, str] | None:
    """Record what MLflow and W&B lack of a campaign; its name, and why some still waits. None if it is of an earlier
    version.

    Raises Refused: it would be recorded elsewhere than before.
    """
    if ledger.campaign.format != FORMAT:
        return None
    stated, before = stored_spec(ledger).get("tracking"), tracking.last(ledger).store
    store = locate(stated, home())
    if not stated and before and before != str(store):
        raise Refused(
            f"campaign {ledger.campaign.name!r} is recorded in {before}, and from here its records would go to "
            f"{store or 'nowhere'}: set MLFLOW_TRACKING_URI as where it ran, or "
            f"`nightshift resume {ledger.campaign.name} --tracking ADDRESS`"
        )
    done = tracking.sync(ledger, store, state(ledger))
    waits = f"{tracking.waiting(ledger, ledger.history())} still waiting: {done.problem}" if done.problem else ""
    return ledger.campaign.name, waits


def _each(campaign: str | None, act: Callable[[Ledger], T]) -> tuple[list[T], bool]:
    """What was done for a campaign, or for every one that is not running, and whether one was left alone for a fault.

    Raises Refused: the named one is running, or cannot be read.
    """
    if campaign:
        ledger = Ledger.open(campaign)
        campaign_lock.check_idle(ledger)
        return [act(ledger)], False
    results, failed = list[T](), False
    for ledger in readable():
        if campaign_lock.is_running(ledger):
            print(f"{ledger.campaign.name}: left alone, it is running", file=sys.stderr)
            continue
        try:
            results.append(act(ledger))
        except Refused as fault:
            failed = True
            print(f"{ledger.campaign.name}: left alone: {fault}", file=sys.stderr)
    return results, failed


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

    Of a decided trial its records, logs, diff and curve stay, and its program stays in lineage.git. Kept whole are the
    baseline, the champion, certified trials, and those that wait for MLflow.

    Raises:
        Refused: the campaign is running, or cannot be read.
    """
    with campaign_lock.left_alone(ledger):
        history, records = ledger.history(), tracking.last(ledger)
        unsent = {trial.number for trial in history if records.store and tracking.part(trial) not in records.runs}
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
    run = tracking.last(ledger).runs.get(tracking.part(trial), "")
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

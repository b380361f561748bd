"""The verbs about this machine and what campaigns leave on it: prune, sync."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from rich.filesize import decimal

from environments.plugins import Refused
from flows.status import state
from flows.views import terminal
from tasks.remote import jobs
from tasks.store import campaign_lock
from tasks.store.ledger import FORMAT, Ledger, decided_trial, readable
from tasks.store.workspace import is_own
from tasks.system import file_trees
from tasks.system.home import home
from tasks.tracking import sync as tracking
from tasks.tracking.connection import locate
from tasks.tracking.trial_run import trial_key
from tasks.tracking.values import metric_key
from tasks.trial import Trial, baseline, best

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
        lines = [f"would remove {job.key} at {job.trainer}" for job in jobs.unfollowed(wanted)]
    else:
        lines = [*jobs.sweep(wanted)]
    print(*lines, sep="\n", end="\n" * bool(lines))

    def act(ledger: Ledger) -> bool:
        freed, kept, unsent = free(ledger, dry_run)
        what = f"{'would free' if dry_run else 'freed'} {decimal(freed)} of {ledger.campaign.name}"
        print(f"{what}; kept whole: trial {', '.join(map(str, kept)) or 'none'}")
        if unsent:
            print(f"  {len(unsent)} wait for MLflow: nightshift sync {ledger.campaign.name}")
        return True

    return _each(campaign, act)


def sync(campaign: str | None = None, /) -> int:
    """Send waiting records of CAMPAIGN (default: all) to MLflow. A running one does so itself after each trial.

    Example: nightshift sync
    """
    if campaign:
        Ledger.open(campaign).check_version()
    return _each(campaign, _send)


def _send(ledger: Ledger) -> bool:
    """Record what MLflow and W&B lack of a campaign, unless it is of an earlier version; whether nothing waits still.

    Raises Refused: it would be recorded elsewhere than before.
    """
    if ledger.campaign.format != FORMAT:
        return True
    name, stated, before = ledger.campaign.name, ledger.spec.get("tracking"), tracking.last(ledger).store
    store = locate(stated, home())
    if not stated and before and before != str(store):
        raise Refused(
            f"campaign {name!r} is recorded in {before}, and from here its records would go to {store or 'nowhere'}: "
            f"set MLFLOW_TRACKING_URI as where it ran, or `nightshift resume {name} --tracking ADDRESS`"
        )
    problem = tracking.sync(ledger, store, state(ledger)).problem
    print(terminal.clean(f"{name}: {problem or ('MLflow has everything' if store else 'nothing is recorded')}"))
    return not problem


def _each(campaign: str | None, act: Callable[[Ledger], bool]) -> int:
    """Act on a campaign, or on every one that is not running; 1 if that failed for one, which says why, else 0.

    Raises Refused: the named one is running, or cannot be read.
    """
    if campaign:
        ledger = Ledger.open(campaign)
        campaign_lock.check_idle(ledger)
        return int(not act(ledger))
    failed = False
    for ledger in readable():
        if campaign_lock.is_running(ledger):
            print(f"{ledger.campaign.name}: left alone, it is running", file=sys.stderr)
            continue
        try:
            failed |= not act(ledger)
        except (Refused, OSError) as fault:
            failed = True
            print(f"{ledger.campaign.name}: left alone: {fault}", file=sys.stderr)
    return int(failed)


def free(ledger: Ledger, dry: bool) -> tuple[int, list[int], list[int]]:
    """Remove what a campaign no longer needs; with `dry`, only count it. Returns the bytes on the disk, the trials that
    stay whole, and those of them that wait for MLflow.

    Of a decided trial its records, logs, diff and curve stay, and its program stays in lineage.git. Kept whole are the
    baseline, the champion, certified trials, and those that wait for MLflow.

    Raises:
        Refused: the campaign is running, or cannot be read.
    """
    with campaign_lock.left_alone(ledger):
        history, records = ledger.history(), tracking.last(ledger)
        lacking = [trial.number for trial in history if trial_key(ledger, trial) not in records.runs]
        unsent = set(lacking if records.store else ())
        kept = unsent | {trial.number for trial in (baseline(history), best(history)) if trial}
        kept |= {each.champion for each in ledger.certificates() if each.passed and not each.elsewhere}
        whole = {Path(run.dir).name for trial in history if trial.number in kept for run in trial.runs}
        freed = [_empty(folder, dry) for folder in _finished_runs(ledger) if folder.name not in whole]
        artifacts = [_remove_artifact(ledger, trial, dry) for trial in history if trial.number not in kept]
        total, runs = sum(freed) + sum(artifacts), sum(map(bool, freed))
        if runs and not dry:
            ledger.event("pruned", runs=runs, bytes=total, kept=sorted(kept))
    return total, sorted(kept), sorted(unsent)


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
    run = tracking.last(ledger).runs.get(trial_key(ledger, trial), "")
    copy = home() / "artifacts" / metric_key(ledger.environment.name) / run / "artifacts" / "out"
    return _remove(copy, dry) if run.isalnum() and copy.is_dir() else 0


def _remove(path: Path, dry: bool) -> int:
    """Remove a file, a link or a tree; the bytes that it took on the disk."""
    size = _size(path)
    if not dry:
        file_trees.remove(path)
    return size


def _size(path: Path) -> int:
    """Disk usage of a tree, in bytes, of what can be looked at; links are not followed."""
    with suppress(OSError):
        status = path.lstat()
        below = path.iterdir() if stat.S_ISDIR(status.st_mode) else ()
        return status.st_blocks * 512 + sum(map(_size, below))
    return 0

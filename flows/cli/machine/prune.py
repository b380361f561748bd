"""`nightshift prune`: free the disk space that a campaign no longer needs.

Of a decided trial, checkpoints, programs and scratch files are removed; its records, logs, diff and curve stay, and
its program stays in lineage.git. Kept whole are the baseline, the champion, certified trials, and those that wait for
MLflow. Undecided trials are not touched, so the campaign can be resumed. Trials on other machines that nobody follows
are removed there.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from environments.plugins import Refused
from flows.views import terminal
from tasks.remote import jobs
from tasks.store import campaign_lock
from tasks.store.campaign_lock import left_alone
from tasks.store.ledger import Ledger, decided_trial, readable
from tasks.store.workspace import is_own
from tasks.system import file_trees
from tasks.system.home import home
from tasks.tracking import sync
from tasks.tracking.values import metric_key
from tasks.trial import History, Trial, baseline, best

STAYS = {"out": "progress.jsonl", "workspace": "config.json", "judged": "result.json"}
"""The folders of a run that are emptied, with the one file in each that stays."""
SCRATCH = ("log.txt.tmp", "judge.txt.tmp", ".outgoing")
"""Files that a killed run may have left."""
Keep = Literal["champions", "kept"]


@dataclass(frozen=True)
class Pruned:
    """What was removed of a campaign, or would be."""

    campaign: str
    bytes: int
    """Disk usage."""
    runs: int
    """Run directories of which something was removed."""
    kept: tuple[int, ...]
    """Trials that stay whole."""
    unsent: tuple[int, ...]
    """Those that stay because they wait for MLflow."""

    def words(self, dry: bool) -> str:
        runs = f"{self.runs} run{'' if self.runs == 1 else 's'}"
        kept = ", ".join(str(number) for number in self.kept) or "none"
        freed = f"{'would free' if dry else 'freed'} {size(self.bytes)} of {runs}"
        unsent = f" ({len(self.unsent)} wait for MLflow: nightshift sync {self.campaign})" if self.unsent else ""
        return f"{self.campaign}: {freed}; whole: {kept}{unsent}"


def prune(name: str | None, keep: Keep, dry: bool, as_json: bool) -> int:
    """Free the disk space of one campaign, or of all that are not running; 1 where one of all cannot be read, else 0.

    Args:
        keep: Which trials stay whole: the champions alone, or all that were kept.

    Raises:
        Refused: the campaign is running.
    """
    _remove_jobs(name, dry, as_json)
    ledgers = [Ledger.open(name)] if name else [*readable()]
    idle = [ledger for ledger in ledgers if name or not campaign_lock.is_running(ledger)]
    results: list[Pruned] = []
    for ledger in idle:
        try:
            results.append(free(ledger, keep, dry))
        except Refused as fault:
            if name:
                raise
            print(f"{ledger.campaign.name}: left alone: {fault}", file=sys.stderr)
        else:
            if not as_json:
                print(results[-1].words(dry))
    if as_json:
        terminal.print_json([asdict(pruned) for pruned in results])
    else:
        _print_sum(results, [ledger for ledger in ledgers if ledger not in idle], dry)
    if not ledgers and not as_json:
        raise Refused(f"there is no campaign in {home()} yet")
    return int(len(results) < len(idle))


def _print_sum(results: Sequence[Pruned], running: Sequence[Ledger], dry: bool) -> None:
    if len(results) > 1:
        print(f"{'would free' if dry else 'freed'} {size(sum(pruned.bytes for pruned in results))} in all")
    for ledger in running:
        print(f"{ledger.campaign.name}: left alone, it is running")


def _remove_jobs(name: str | None, dry: bool, as_json: bool) -> None:
    """Remove trials on other machines that nobody follows, of one campaign or of all; with `dry`, only name them."""
    wanted = jobs.is_of(Ledger.open(name).campaign.campaign_id) if name else lambda job: True
    if dry:
        lines = tuple(f"would remove {job.key} at {job.trainer}" for job in jobs.unfollowed() if wanted(job))
    else:
        lines = jobs.sweep(wanted)
    for line in lines:
        print(line, file=sys.stderr if as_json else sys.stdout)


def free(ledger: Ledger, keep: Keep, dry: bool) -> Pruned:
    """Remove what a campaign no longer needs; with `dry`, only count it."""
    with left_alone(ledger):
        history = ledger.history()
        unsent = _unsent(ledger, history)
        kept = _best(ledger, history) | unsent
        if keep == "kept":
            kept |= {trial.number for trial in history if trial.verdict.kind == "keep"}
        total = runs = 0
        for trial in history:
            for folder in _runs(ledger, trial, trial.number in kept):
                freed = _empty(folder, dry)
                total, runs = total + freed, runs + bool(freed)
            if trial.number not in kept:
                total += _remove_artifact(ledger, trial, dry)
        for folder in _fresh_runs(ledger):
            freed = _empty(folder, dry)
            total, runs = total + freed, runs + bool(freed)
        if runs and not dry:
            ledger.event("pruned", runs=runs, bytes=total, kept=sorted(kept))
    return Pruned(ledger.campaign.name, total, runs, tuple(sorted(kept)), tuple(sorted(unsent)))


def _best(ledger: Ledger, history: History) -> set[int]:
    """The baseline, the champion, and certified trials."""
    numbers = {trial.number for trial in (baseline(history), best(history)) if trial is not None}
    passed = [certificate for certificate in ledger.certificates() if certificate.passed]
    return numbers | {certificate.champion for certificate in passed if not certificate.elsewhere}


def _unsent(ledger: Ledger, history: History) -> set[int]:
    """The trials that wait for MLflow: their checkpoints may be uploaded too."""
    known = sync.last(ledger)
    return {trial.number for trial in history if known.store and sync.part(trial) not in known.runs}


def _runs(ledger: Ledger, trial: Trial, whole: bool) -> Iterator[Path]:
    """The directories of a trial's decided runs; of one that stays `whole`, those outside of its current attempt."""
    current, stem = ledger.place_of(trial).path.name, f"{trial.number:04d}"
    attempt = {current, *(f"{current}-run-{seed}" for seed in range(2, len(trial.runs) + 1))}
    for path in sorted(ledger.trials.glob(f"{stem}*")):
        name, _, part = path.name.partition("-")
        of = decided_trial(path.with_name(name)) if name.partition(".")[0] == stem and is_own(part) else None
        decided = of is not None
        if decided and not (whole and path.name in attempt):
            yield path


def _fresh_runs(ledger: Ledger) -> Iterator[Path]:
    """The directories of runs of certificates and ablations that are complete."""
    for kind in ("certificates", "ablations"):
        for result in sorted((ledger.path / kind).glob("*.json")):
            # Of `1-on-lander` are no runs of `1-on-lander-2`, which may be under way.
            own = re.compile(rf"{re.escape(result.stem)}-\d+-((champion|baseline)-)?\d+")
            yield from (path for path in sorted(result.parent.iterdir()) if own.fullmatch(path.name) and path.is_dir())


def _empty(folder: Path, dry: bool) -> int:
    """Remove the large files of a run; the bytes freed."""
    doomed = [folder / name for name in SCRATCH if os.path.lexists(folder / name)]
    for name, stays in STAYS.items():
        inside = folder / name
        if inside.is_symlink() or not inside.is_dir():
            doomed += [inside] * os.path.lexists(inside)
            continue
        with os.scandir(inside) as entries:
            doomed += [
                Path(entry.path) for entry in entries if entry.name != stays or not entry.is_file(follow_symlinks=False)
            ]
    freed = sum(_size(path) for path in doomed)
    for path in () if dry else doomed:
        file_trees.remove(path)
    return freed


def _remove_artifact(ledger: Ledger, trial: Trial, dry: bool) -> int:
    """Remove a trial's checkpoint from MLflow's artifacts in this home, not from a server's; the bytes freed."""
    run = sync.last(ledger).runs.get(sync.part(trial), "")
    copy = home() / "artifacts" / metric_key(ledger.environment.name) / run / "artifacts" / "out"
    if not run.isalnum() or not copy.is_dir():
        return 0
    freed = _size(copy)
    if not dry:
        file_trees.remove(copy)
    return freed


def _size(path: Path) -> int:
    """Disk usage of a tree, in bytes; links are not followed."""
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        return status.st_blocks * 512
    with os.scandir(path) as entries:
        return status.st_blocks * 512 + sum(_size(Path(entry.path)) for entry in entries)


def size(count: int) -> str:
    """Bytes as GiB, MiB or KiB."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count / 1024:.0f} KiB"

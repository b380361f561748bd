"""`nightshift prune`: free the disk of what a campaign no longer needs, and keep all that says what happened.

Of a trial that is decided, checkpoints, programs and scratch go; its records, logs, diff and curve stay, and its
program stays in lineage.git. Kept whole are the baseline, the champion, what passed a certificate, and what MLflow has
not taken yet. What is not decided is not touched, so a campaign can be resumed as if nothing had happened.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from environments.plugins import Refused
from flows.views import terminal
from tasks.store import life
from tasks.store.ledger import Ledger, campaigns
from tasks.store.life import left_alone
from tasks.store.workspace import TrialDir, settled
from tasks.system import file_trees
from tasks.system.home import home
from tasks.tracking.outbox import is_traced, is_tracked, wants_traces
from tasks.tracking.trial_run import metric_key
from tasks.trial import History, Trial, baseline, best

STAYS = {"out": "progress.jsonl", "workspace": "config.json", "judged": "result.json"}
"""The folders of a run that are emptied, and the one file in each that stays."""
SCRATCH = ("log.txt.tmp", "judge.txt.tmp", ".outgoing")
"""What a kill may have left of a run."""
Keep = Literal["champions", "kept"]


@dataclass(frozen=True)
class Pruned:
    """What was removed of one campaign, or would be."""

    campaign: str
    bytes: int
    """As the disk counts them."""
    runs: int
    """Directories of runs of which something was removed."""
    kept: tuple[int, ...]
    """Trials that stay whole."""
    unsent: tuple[int, ...]
    """Those of them that stay because MLflow has not taken them."""

    def words(self, dry: bool) -> str:
        runs = f"{self.runs} run{'' if self.runs == 1 else 's'}"
        kept = ", ".join(str(number) for number in self.kept) or "none"
        told = (
            f"{self.campaign}: {'would free' if dry else 'freed'} {size(self.bytes)} of {runs}; whole: {kept}"
        )
        if self.unsent:
            told += f" ({len(self.unsent)} wait for MLflow: nightshift sync {self.campaign})"
        return told


def prune(name: str | None, keep: Keep, dry: bool, as_json: bool) -> int:
    """Free the disk of one campaign, or of every one that nobody runs.

    Args:
        keep: What stays whole: the champions alone, or every trial that was kept.

    Raises:
        Refused: the campaign is running.
    """
    ledgers = [Ledger.open(one) for one in ([name] if name else campaigns())]
    idle = [ledger for ledger in ledgers if name or not life.is_running(ledger)]
    done = [free(ledger, keep, dry) for ledger in idle]
    if as_json:
        terminal.print_json([asdict(one) for one in done])
        return 0
    for one in done:
        print(one.words(dry))
    if len(done) > 1:
        print(f"{'would free' if dry else 'freed'} {size(sum(one.bytes for one in done))} in all")
    for ledger in ledgers:
        if ledger not in idle:
            print(f"{ledger.campaign.name}: left alone, it is running")
    if not ledgers:
        raise Refused(f"there is no campaign in {home()} yet")
    return 0


def free(ledger: Ledger, keep: Keep, dry: bool) -> Pruned:
    """Remove what one campaign no longer needs, or with `dry` only reckon it."""
    with left_alone(ledger):
        history = ledger.history()
        unsent = _unsent(ledger, history)
        kept = _best(ledger, history) | unsent
        if keep == "kept":
            kept |= {trial.number for trial in history if trial.verdict.kind == "keep"}
        total = runs = 0
        for trial in history:
            for folder in _runs(ledger, trial, trial.number in kept):
                if taken := _remove(folder, dry):
                    total, runs = total + taken, runs + 1
            if trial.number not in kept:
                total += _uploaded(ledger, trial, dry)
        for folder in _proofs(ledger):
            if taken := _remove(folder, dry):
                total, runs = total + taken, runs + 1
        if runs and not dry:
            ledger.event("pruned", runs=runs, bytes=total, kept=sorted(kept))
    return Pruned(ledger.campaign.name, total, runs, tuple(sorted(kept)), tuple(sorted(unsent)))


def _best(ledger: Ledger, history: History) -> set[int]:
    """The baseline, the champion, and what passed a certificate."""
    found = {trial.number for trial in (baseline(history), best(history)) if trial is not None}
    return found | {one.champion for one in ledger.certificates() if one.passed and not one.elsewhere}


def _unsent(ledger: Ledger, history: History) -> set[int]:
    """The trials whose records MLflow has not taken: a checkpoint may go along."""
    traces = wants_traces(ledger)
    return {t.number for t in history if not is_tracked(ledger, t) or (traces and not is_traced(ledger, t))}


def _runs(ledger: Ledger, trial: Trial, whole: bool) -> Iterator[Path]:
    """The directories of a trial's runs, as far as they were decided on; of one that stays whole not its own."""
    current, stem = ledger.place_of(trial).path.name, f"{trial.number:04d}"
    own = {current, *(f"{current}-run-{seed}" for seed in range(2, len(trial.runs) + 1))}
    for path in sorted(ledger.trials.glob(f"{stem}*")):
        which, _, part = path.name.partition("-")
        is_its = which.partition(".")[0] == stem and settled(TrialDir(path), part) is not None
        if is_its and not (whole and path.name in own):
            yield path


def _proofs(ledger: Ledger) -> Iterator[Path]:
    """The directories of fresh runs that a certificate, or an ablation, was made of; not of one that is under way."""
    for kind in ("certificates", "ablations"):
        for made in sorted((ledger.path / kind).glob("*.json")):
            yield from (path for path in sorted(made.parent.glob(f"{made.stem}-*")) if path.is_dir())


def _remove(folder: Path, dry: bool) -> int:
    """Empty one run's directory of what is large; the bytes that gives back."""
    doomed = [folder / name for name in SCRATCH if os.path.lexists(folder / name)]
    for name, stays in STAYS.items():
        inside = folder / name
        if inside.is_symlink() or not inside.is_dir():
            doomed += [inside] * os.path.lexists(inside)
            continue
        with os.scandir(inside) as entries:
            doomed += [
                Path(entry.path)
                for entry in entries
                if entry.name != stays or not entry.is_file(follow_symlinks=False)
            ]
    taken = sum(_size(path) for path in doomed)
    for path in () if dry else doomed:
        file_trees.remove(path)
    return taken


def _uploaded(ledger: Ledger, trial: Trial, dry: bool) -> int:
    """Remove a trial's checkpoint from the artifacts that MLflow keeps in this home; a server's are its own."""
    receipt = ledger.place_of(trial).path / "tracked.json"
    run = json.loads(receipt.read_text())["run_id"] if receipt.is_file() else ""
    copy = home() / "artifacts" / metric_key(ledger.environment.name) / run / "artifacts" / "out"
    if not run.isalnum() or not copy.is_dir():
        return 0
    taken = _size(copy)
    if not dry:
        file_trees.remove(copy)
    return taken


def _size(path: Path) -> int:
    """What a tree takes up on the disk, in bytes; no link is followed."""
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        return status.st_blocks * 512
    with os.scandir(path) as entries:
        return status.st_blocks * 512 + sum(_size(Path(entry.path)) for entry in entries)


def size(count: int) -> str:
    """Bytes in the unit that a person would use."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count / 1024:.0f} KiB"

"""Calibrations of short budgets: points that ran once for a share of the budget, and once in full.

    runs/.calibrations/<environment>/<digest>-<machine>-at-0.3.json

Valid for what a calibration of the noise is valid for (tasks/store/calibration.py), and kept beside it. Every point is
stored as soon as it has run, so an interrupted calibration goes on where it was.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from tasks.deciding.fidelity import Fidelity, RankCorrelation, advised, rank_correlation
from tasks.store.calibration import FOLDER, Measured
from tasks.system.files import write_atomic
from tasks.trial import Params


@dataclass(frozen=True)
class MeasuredPoint:
    """A point of the search space at both budgets."""

    params: Params
    short: Measured
    full: Measured | None
    """None if the short run had no score: no campaign would promote it."""


@dataclass(frozen=True)
class ShortRuns:
    """All points at one share of the budget."""

    environment: str
    digest: str
    """Digest of everything that changes a score (tasks.store.calibration.digest)."""
    machine: str
    share: float
    created: float
    """When the latest point was added, in Unix seconds."""
    points: tuple[MeasuredPoint, ...] = ()

    @property
    def correlation(self) -> RankCorrelation | None:
        return rank_correlation([(one.short.score, one.full.score) for one in self.points if one.full])

    def path(self, home: Path) -> Path:
        name = f"{self.digest}-{self.machine}-at-{self.share:g}.json"
        return home / FOLDER / self.environment / name


SHORT_RUNS = TypeAdapter(ShortRuns)


def stored(home: Path, empty: ShortRuns) -> ShortRuns:
    """What is stored for the environment, machine and share of `empty`; itself without any."""
    path = empty.path(home)
    return SHORT_RUNS.validate_json(path.read_bytes()) if path.is_file() else empty


def add(home: Path, to: ShortRuns, point: MeasuredPoint) -> ShortRuns:
    """Store one more point; returns all of them."""
    from filelock import FileLock

    path = to.path(home)
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(home / FOLDER / ".lock"):  # concurrent calibrations keep each other's points
        before = stored(home, to)
        whole = replace(before, points=(*before.points, point), created=time.time())
        write_atomic(path, SHORT_RUNS.dump_json(whole, indent=2).decode() + "\n")
    return whole


def advice(home: Path, digest: str, machine: str) -> Fidelity | None:
    """What is known of short budgets for a digest on a machine; None if nothing was measured."""
    paths = sorted((home / FOLDER).glob(f"*/{digest}-{machine}-at-*.json"))
    every = (SHORT_RUNS.validate_json(path.read_bytes()) for path in paths)
    return advised((one.share, one.correlation, len(one.points)) for one in every)

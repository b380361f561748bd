"""Calibrations: runs of a baseline on this machine from before a campaign, which show how noisy they are.

    runs/.calibrations/<environment>/
        <digest>-<machine>.json   all runs, which campaigns reuse for their baseline
        0001/                     one `nightshift try --runs`: the frozen environment and the runs' directories

A calibration is valid for an environment with its settings, its baseline program, its judge and one machine. New runs
are added to the existing ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from environments import Environment
from environments.score import Score
from tasks.deciding.statistics import CONFIDENCE
from tasks.recipes import output
from tasks.store.ledger import measure
from tasks.system.files import write_atomic
from tasks.trial import Rerun, Run

FOLDER = ".calibrations"
FEWEST = 3
"""Fewer runs tell too little of their spread for a campaign to reuse them."""


@dataclass(frozen=True)
class Measured:
    run: Run
    """Its directory is relative to the environment's calibrations."""
    score: Score


@dataclass(frozen=True)
class Calibration:
    environment: str
    digest: str
    """Digest of everything that changes a score (`digest`)."""
    machine: str
    budget_seconds: float
    budget_steps: int
    device: str
    created: float
    """When its latest runs were added, in Unix seconds."""
    runs: tuple[Measured, ...]
    """Each has a score."""

    @property
    def values(self) -> tuple[float, ...]:
        """The score of each run, in the metric's unit."""
        return tuple(one.score.value for one in self.runs if one.score.value is not None)


CALIBRATION = TypeAdapter(Calibration)


def digest(path: Path, environment: Environment) -> str:
    """The digest for which a calibration is valid; `path` holds a frozen environment (tasks/store/ledger.py)."""
    left_out = {"folder", "judge", "prepared", *(() if environment.prepare else ("prepare",))}
    left_out |= {"requires", *(() if environment.cores != 1 else ("cores",))}  # earlier versions had neither
    parts: dict[str, object] = {
        "settings": environment.model_dump(mode="json", exclude=left_out),
        "judged": environment.judge.model_dump(mode="json"),
    }
    if environment.prepared:  # no calibration without the prepared files
        made = output.read(environment.prepared)
        parts["prepared"] = made.content if made else ""
    return measure(path, environment, parts)


def find(home: Path, digest: str, machine: str) -> Calibration | None:
    """The calibration of a digest on a machine; None without one."""
    found = sorted((home / FOLDER).glob(f"*/{digest}-{machine}.json"))
    return CALIBRATION.validate_json(found[0].read_bytes()) if found else None


def path_of(home: Path, calibration: Calibration) -> Path:
    return home / FOLDER / calibration.environment / f"{calibration.digest}-{calibration.machine}.json"


def add(home: Path, new: Calibration) -> Calibration:
    """Store new runs together with the existing ones; returns all of them."""
    from filelock import FileLock

    path = path_of(home, new)
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(home / FOLDER / ".lock"):  # concurrent calibrations keep each other's runs
        before = find(home, new.digest, new.machine)
        whole = replace(new, runs=(*before.runs, *new.runs)) if before else new
        write_atomic(path, CALIBRATION.dump_json(whole, indent=2).decode() + "\n")
    return whole


def reruns(calibration: Calibration) -> tuple[Rerun, ...]:
    """Its runs as reruns of a campaign's baseline; directories are relative to a campaign's in the same home."""
    root = Path("..", FOLDER, calibration.environment)
    return tuple(
        Rerun(0, replace(one.run, dir=str(root / one.run.dir)), one.score, calibrated=True) for one in calibration.runs
    )


def sd_interval(sd: float, df: int) -> tuple[float, float]:
    """Interval of the true standard deviation at CONFIDENCE, given an estimate with `df` degrees of freedom."""
    from scipy import special  # type: ignore[import-untyped]

    tail = (1 - CONFIDENCE) / 2
    return sd * math.sqrt(df / special.chdtri(df, tail)), sd * math.sqrt(df / special.chdtri(df, 1 - tail))

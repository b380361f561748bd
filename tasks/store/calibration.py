"""Calibrations: how noisy training runs of a baseline are on this machine, and what follows for a campaign.

    runs/.calibrations/<environment>/
        <digest>-<machine>.json   all runs, which campaigns reuse for their baseline
        0001/                     one `nightshift calibrate`: the frozen environment and the runs' directories

A calibration is valid for an environment with its settings, its baseline program, its judge and one machine. New runs
are added to the existing ones. It measures noise, not what a trial may gain.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from environments import Environment
from environments.score import Score
from tasks.certifying.power import RATIO, detectable, runs_needed
from tasks.deciding.statistics import CONFIDENCE, pooled
from tasks.recipes import output
from tasks.store.ledger import measure
from tasks.system.files import write_atomic
from tasks.trial import TWENTIETHS, Rerun, Run

FOLDER = ".calibrations"
FEWEST = 3
"""Fewer runs tell neither a spread nor a correlation."""
GAINS = (0.5, 1.0, 2.0, 3.0)
"""Gains, in standard deviations between runs, for which the needed runs are reported."""
ARMS = (3, 4, 5)
"""Runs per arm of certificates (tasks/certifying/certificate.py)."""
EARLIEST, LATEST = 0.2, 0.9
"""Shares of the budget between which early stopping is considered."""
NOISIER = 2.0
"""How much noisier progress may be than at its end for early stopping; then gains still show."""
MOST_REPLICATES = 4
"""Beyond this, another run of one trial is worth less than another trial."""


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


@dataclass(frozen=True)
class Needed:
    gain: float
    """In the metric's unit."""
    sds: float | None
    """In standard deviations between runs; None if these do not differ."""
    runs: int | None
    """Per arm, with a power of 0.8; None if a thousand are too few."""
    noisier: int | None
    """The same for a champion whose runs scatter RATIO times as much (tasks/certifying/power.py)."""


@dataclass(frozen=True)
class Detects:
    runs: int
    """Per arm."""
    gain: float
    """True gain shown with a power of 0.8, in the metric's unit."""
    noisier: float
    """The same for a champion whose runs scatter RATIO times as much."""


@dataclass(frozen=True)
class Foresight:
    """How well progress at a share of the budget predicts the final score, over the baseline's runs."""

    fraction: float
    correlation: float | None
    """Correlation with the final score; None if one of them is constant."""
    low: float | None
    high: float | None
    """Ends of its interval at CONFIDENCE (Fisher's z); None with fewer than four runs."""
    error: float | None
    """Standard error of the predicted final score, in standard deviations between runs; 1 or more is no help."""
    noise: float | None
    """Spread of progress relative to its spread at the end; None if all runs end equal."""


@dataclass(frozen=True)
class Findings:
    """The results of a calibration, in the metric's unit."""

    runs: int
    mean: float
    sd: float
    """Standard deviation between runs."""
    low: float
    high: float
    """Ends of its interval at CONFIDENCE."""
    unit_se: float | None
    """Standard error of one run's score over its units; None with a single unit."""
    unit_share: float | None
    """Share of the variance between runs that comes from the units; above 1 by chance, None if unknown."""
    needed: tuple[Needed, ...]
    """For the gains in GAINS; empty if runs do not differ."""
    asked: Needed | None
    """For the least gain of interest, if one was given."""
    detects: tuple[Detects, ...]
    foresight: tuple[Foresight, ...]
    """For each twentieth of the budget at which every run had reported."""
    cancel: float | None
    """Share of the budget at which to check for early stopping; None: do not stop early."""
    replicates: int
    certificate: int
    """Runs per arm."""


def findings(runs: Sequence[Measured], gain: float | None = None) -> Findings:
    """Evaluate runs of one program (at least FEWEST, each with a score, or ValueError).

    `gain` is the least gain of interest, above 0, in the metric's unit.
    """
    values = [one.score.value for one in runs if one.score.value is not None]
    if len(values) < max(FEWEST, len(runs)):
        raise ValueError(f"a calibration needs {FEWEST} runs with a score, got {len(values)} of {len(runs)}")
    noise = pooled([values])
    assert noise is not None, "there are several"
    low, high = interval(noise.sd, noise.df)
    errors = [one.score.se for one in runs if one.score.se is not None]
    unit_se = math.hypot(*errors) / math.sqrt(len(errors)) if len(errors) == len(runs) else None
    seen = foresight([(one.run, value) for one, value in zip(runs, values, strict=True)])
    usable = [one for one in seen if EARLIEST <= one.fraction <= LATEST]
    return Findings(
        runs=len(values),
        mean=statistics.fmean(values),
        sd=noise.sd,
        low=low,
        high=high,
        unit_se=unit_se,
        unit_share=(unit_se / noise.sd) ** 2 if unit_se is not None and noise.sd else None,
        needed=tuple(_needed(sds * noise.sd, noise.sd) for sds in GAINS) if noise.sd else (),
        asked=_needed(gain, noise.sd) if gain else None,
        detects=tuple(Detects(arm, detectable(arm, noise.sd), detectable(arm, noise.sd, RATIO)) for arm in ARMS),
        foresight=seen,
        cancel=next((one.fraction for one in usable if one.noise is not None and one.noise <= NOISIER), None),
        replicates=replicates(noise.sd, gain),
        certificate=max((runs_needed(gain, noise.sd, most=ARMS[-1]) if gain else None) or ARMS[-1], ARMS[0]),
    )


def _needed(gain: float, sd: float) -> Needed:
    return Needed(gain, gain / sd if sd else None, runs_needed(gain, sd), runs_needed(gain, sd, RATIO))


def interval(sd: float, df: int) -> tuple[float, float]:
    """Interval of the true standard deviation at CONFIDENCE, given an estimate with `df` degrees of freedom."""
    from scipy import special  # type: ignore[import-untyped]

    tail = (1 - CONFIDENCE) / 2
    return sd * math.sqrt(df / special.chdtri(df, tail)), sd * math.sqrt(df / special.chdtri(df, 1 - tail))


def replicates(sd: float, gain: float | None) -> int:
    """Training runs per trial that make its mean no noisier than the least gain of interest, up to MOST_REPLICATES."""
    return min(max(math.ceil((sd / gain) ** 2 - 1e-9), 1), MOST_REPLICATES) if gain else 1


def foresight(runs: Sequence[tuple[Run, float]]) -> tuple[Foresight, ...]:
    """How progress predicts the final score, at each twentieth at which every run had reported."""
    curves = list(zip(*(run.curve for run, _ in runs), strict=False))
    scores = [score for _, score in runs]
    reported = [[value for value in values if value is not None] for values in curves]
    return tuple(
        _foresight(at / TWENTIETHS, known, reported[-1], scores)
        for at, known in enumerate(reported, 1)
        if len(known) == len(scores)
    )


def _foresight(fraction: float, now: list[float], end: list[float], scores: list[float]) -> Foresight:
    count, last = len(scores), statistics.stdev(end)
    noise = statistics.stdev(now) / last if last else None
    if not statistics.stdev(now) or not statistics.stdev(scores):
        return Foresight(fraction, None, None, None, None, noise)
    r = max(-1.0, min(statistics.correlation(now, scores), 1.0))
    error = math.sqrt((1 - r**2) * (count - 1) / (count - 2))
    low, high = _around(r, count) if count > 3 else (None, None)
    return Foresight(fraction, r, low, high, error, noise)


def _around(r: float, count: int) -> tuple[float, float]:
    """Interval of a correlation of `count` pairs at CONFIDENCE, by Fisher's z."""
    from scipy import special

    if abs(r) == 1:
        return r, r
    reach = float(special.ndtri((1 + CONFIDENCE) / 2)) / math.sqrt(count - 3)
    return math.tanh(math.atanh(r) - reach), math.tanh(math.atanh(r) + reach)

"""A calibration: how noisy training runs of a baseline are on this machine, and what that asks of a night.

    runs/.calibrations/<environment>/
        <digest>-<machine>.json   every run of it, which campaigns take over as their baseline's
        0001/                     one `nightshift calibrate`: the environment as it was, and the runs' directories

A calibration holds for exactly one thing: an environment with its settings, its baseline program, its judge and one
machine. Runs of the same thing are added to those that are there. What it knows is noise, not what an idea may gain.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from filelock import FileLock
from pydantic import TypeAdapter
from scipy import special  # type: ignore[import-untyped]

from environments import Environment
from environments.score import Score
from tasks.deciding.statistics import CONFIDENCE, detectable, pooled, runs_needed
from tasks.recipes import output
from tasks.store.ledger import measure
from tasks.system.files import write_atomic
from tasks.trial import TWENTIETHS, Rerun, Run

FOLDER = ".calibrations"
FEWEST = 3
"""Runs below which neither a spread nor a correlation says anything."""
GAINS = (0.5, 1.0, 2.0, 3.0)
"""Gains, in sds between runs, for which the runs that they need are told."""
ARMS = (3, 4, 5)
"""Runs of each arm that certificates have (tasks/deciding/certificate.py)."""
EARLIEST, LATEST = 0.2, 0.9
"""Shares of the budget between which it may pay to look."""
NOISIER = 2.0
"""How much noisier than at its end progress may be where a run is judged by it: there, a gain of the same size still
shows at least half as clearly."""
MOST_REPLICATES = 4
"""From there on a further run of one idea buys less than a run of another."""


@dataclass(frozen=True)
class Measured:
    """One run of the baseline, judged on units of its own."""

    run: Run
    """Its directory is relative to that of the environment's calibrations."""
    score: Score


@dataclass(frozen=True)
class Calibration:
    """What is known of one environment's baseline on one machine."""

    environment: str
    digest: str
    """Of all that changes a score (`digest`)."""
    machine: str
    budget_seconds: float
    budget_steps: int
    device: str
    created: float
    """When its last runs were added, as Unix time in seconds."""
    runs: tuple[Measured, ...]
    """All of them have a score."""

    @property
    def values(self) -> tuple[float, ...]:
        """The score of each run, in the metric's own unit."""
        return tuple(one.score.value for one in self.runs if one.score.value is not None)


CALIBRATION = TypeAdapter(Calibration)


def digest(path: Path, environment: Environment) -> str:
    """What a calibration holds for: the frozen files below `path`, the judge, the settings laid over the files, and
    what the recipe has made.

    Args:
        path: A directory in which an environment is frozen (tasks/store/ledger.py: freeze), such as a campaign's.
        environment: The frozen one.
    """
    left_out = {"folder", "judge", "prepared", *(() if environment.prepare else ("prepare",))}
    parts: dict[str, object] = {
        "settings": environment.model_dump(mode="json", exclude=left_out),
        "judged": environment.judge.model_dump(mode="json"),
    }
    if environment.prepared:  # what is not there has no calibration
        made = output.read(environment.prepared)
        parts["prepared"] = made.content if made else ""
    return measure(path, environment, parts)


def find(home: Path, digest: str, machine: str) -> Calibration | None:
    """The calibration of a digest on a machine; None when there is none."""
    found = sorted((home / FOLDER).glob(f"*/{digest}-{machine}.json"))
    return CALIBRATION.validate_json(found[0].read_bytes()) if found else None


def path_of(home: Path, calibration: Calibration) -> Path:
    """Where it is stored."""
    name = f"{calibration.digest}-{calibration.machine}.json"
    return home / FOLDER / calibration.environment / name


def add(home: Path, new: Calibration) -> Calibration:
    """Store a calibration, its runs added to those that are there; all of them together."""
    path = path_of(home, new)
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(home / FOLDER / ".lock"):  # two at once: neither loses the other's runs
        before = find(home, new.digest, new.machine)
        whole = replace(new, runs=(*before.runs, *new.runs)) if before else new
        write_atomic(path, CALIBRATION.dump_json(whole, indent=2).decode() + "\n")
    return whole


def reruns(calibration: Calibration) -> tuple[Rerun, ...]:
    """Its runs as reruns of a campaign's baseline; their directories are relative to a campaign's in the same home."""
    root = Path("..", FOLDER, calibration.environment)
    return tuple(
        Rerun(0, replace(one.run, dir=str(root / one.run.dir)), one.score, calibrated=True)
        for one in calibration.runs
    )


@dataclass(frozen=True)
class Needed:
    """What it takes to show a gain."""

    gain: float
    """In the metric's own unit."""
    sds: float | None
    """The same in sds between runs; None where these do not differ."""
    runs: int | None
    """Of each arm; None when a thousand are too few."""


@dataclass(frozen=True)
class Detects:
    """What a certificate shows."""

    runs: int
    """Of each arm."""
    gain: float
    """The true gain that it shows four times out of five, in the metric's own unit."""


@dataclass(frozen=True)
class Foresight:
    """What progress at a share of the budget says of the end, over the runs of the baseline."""

    fraction: float
    correlation: float | None
    """Of progress with the final score; None where one of them is the same for all."""
    low: float | None
    high: float | None
    """Of the correlation, at CONFIDENCE (Fisher's z); None below four runs."""
    error: float | None
    """Standard error of the final score as predicted from progress, in sds between runs: 1 and more is no help."""
    noise: float | None
    """Spread of progress between runs, as a multiple of that at its end; None when they all end the same."""


@dataclass(frozen=True)
class Findings:
    """What the runs of a calibration say. All in the metric's own unit."""

    runs: int
    mean: float
    sd: float
    """Between runs."""
    low: float
    high: float
    """Of the sd, at CONFIDENCE."""
    unit_se: float | None
    """Of one run's score, over units; None where a run has a single one."""
    unit_share: float | None
    """Of the variance between runs: what comes of the units alone; above 1 by luck, None when it cannot be told."""
    needed: tuple[Needed, ...]
    """For the gains of GAINS; empty where runs do not differ."""
    asked: Needed | None
    """For the least gain that is worth finding, where one was named."""
    detects: tuple[Detects, ...]
    foresight: tuple[Foresight, ...]
    """One for each twentieth of the budget by which every run had reported."""
    cancel: float | None
    """The share of the budget at which to look whether a run is cancelled; None: do not cancel."""
    replicates: int
    certificate: int
    """Runs of each arm."""


def findings(runs: Sequence[Measured], gain: float | None = None) -> Findings:
    """What runs of one program say. (runs: at least FEWEST, each with a score)

    Args:
        gain: The least gain that is worth finding, above 0, in the metric's own unit.

    Raises:
        ValueError: fewer runs, or one without a score.
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
    return Findings(
        runs=len(values),
        mean=statistics.fmean(values),
        sd=noise.sd,
        low=low,
        high=high,
        unit_se=unit_se,
        unit_share=(unit_se / noise.sd) ** 2 if unit_se is not None and noise.sd else None,
        needed=tuple(Needed(sds * noise.sd, sds, runs_needed(sds, 1.0)) for sds in GAINS) if noise.sd else (),
        asked=_asked(gain, noise.sd) if gain else None,
        detects=tuple(Detects(arm, detectable(arm, noise.sd) if noise.sd else 0.0) for arm in ARMS),
        foresight=seen,
        cancel=next((one.fraction for one in seen if _is_clear(one)), None),
        replicates=replicates(noise.sd, gain),
        certificate=max((runs_needed(gain, noise.sd, most=ARMS[-1]) if gain else None) or ARMS[-1], ARMS[0]),
    )


def _asked(gain: float, sd: float) -> Needed:
    return Needed(gain, gain / sd if sd else None, runs_needed(gain, sd))


def interval(sd: float, df: int) -> tuple[float, float]:
    """Where the true standard deviation lies, at CONFIDENCE, when one of `df` degrees of freedom is `sd`."""
    tail = (1 - CONFIDENCE) / 2
    return sd * math.sqrt(df / special.chdtri(df, tail)), sd * math.sqrt(df / special.chdtri(df, 1 - tail))


def replicates(sd: float, gain: float | None) -> int:
    """Training runs for each trial: 1, unless the least gain that is worth finding is smaller than a run's noise.

    Then as many as make a trial's mean no noisier than that gain, so that five times out of six a trial worth it
    scores above the level; but no more than MOST_REPLICATES.
    """
    return min(max(math.ceil((sd / gain) ** 2 - 1e-9), 1), MOST_REPLICATES) if gain else 1


def foresight(runs: Sequence[tuple[Run, float]]) -> tuple[Foresight, ...]:
    """What progress said of the final scores, at each twentieth by which every run had reported."""
    curves = list(zip(*(run.curve for run, _ in runs), strict=False))
    scores = [score for _, score in runs]
    found = []
    for at, values in enumerate(curves):
        known = [value for value in values if value is not None]
        if len(known) == len(scores):
            end = [value for value in curves[-1] if value is not None]
            found.append(_foresight((at + 1) / TWENTIETHS, known, end, scores))
    return tuple(found)


def _foresight(fraction: float, now: list[float], end: list[float], scores: list[float]) -> Foresight:
    count, last = len(scores), statistics.stdev(end)
    noise = statistics.stdev(now) / last if last else None
    if not statistics.stdev(now) or not statistics.stdev(scores):
        return Foresight(fraction, None, None, None, None, noise)
    products = math.fsum(x * y for x, y in zip(_standard(now), _standard(scores), strict=True))
    r = max(-1.0, min(products / (count - 1), 1.0))
    error = math.sqrt((1 - r**2) * (count - 1) / (count - 2))
    low, high = _around(r, count) if count > 3 else (None, None)
    return Foresight(fraction, r, low, high, error, noise)


def _standard(values: list[float]) -> list[float]:
    """The same with mean 0 and standard deviation 1."""
    mean, sd = statistics.fmean(values), statistics.stdev(values)
    return [(value - mean) / sd for value in values]


def _around(r: float, count: int) -> tuple[float, float]:
    """Where a correlation of so many pairs lies, at CONFIDENCE: normal on the scale of its arc tangent (Fisher)."""
    if abs(r) == 1:
        return r, r
    reach = float(special.ndtri((1 + CONFIDENCE) / 2)) / math.sqrt(count - 3)
    return math.tanh(math.atanh(r) - reach), math.tanh(math.atanh(r) + reach)


def _is_clear(one: Foresight) -> bool:
    return EARLIEST <= one.fraction <= LATEST and one.noise is not None and one.noise <= NOISIER

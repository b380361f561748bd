"""Levels of certificates: how often a group certificate is wrong, what it shows, and how many runs it takes.

    python -m benchmarks.certificate_levels --levels      # the table of tasks/certifying/group_levels.py
    python -m benchmarks.certificate_levels               # error, power and runs of the designs that campaigns use

Runs of both arms are drawn, 200,000 certificates a cell, and tested like tasks/certifying/certificate.py does (the
smoke test compares the two). Scores are in standard deviations of the baseline's runs. A level is the largest that
keeps the error of all looks together in every cell: standard deviations of the arms from 1:3 to 3:1, with the runs
of the baseline in the search counted, used for their spread alone, or (equal arms) unknown, and then without a floor.
Where they count, both arms score UNSEEN better than in the search: so much may a machine have gained that is no faster
than the 5 % of steps at which drift is seen. Stopping when hopeless is left out there, so that a certificate may also
go on.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from rich.box import MARKDOWN
from scipy import special  # type: ignore[import-untyped]

from benchmarks.tables import show
from tasks.certifying.group_design import (
    ALPHA,
    EDIT_RUNS,
    HOPELESS,
    RUNS,
    Design,
    Groups,
    equal_arms,
    of_groups,
    shares,
)
from tasks.certifying.reuse import PACE, RISE
from tasks.deciding.statistics import CONFIDENCE, Comparison, corrected, quantile
from tasks.deciding.values import BASELINE_RUNS

Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, int]], Array]
Use = Literal["counted", "spread", "unknown"]
"""What the baseline's runs of the search are used for."""
RATIOS = (1 / 3, 1 / 2, 1.0, 2.0, 3.0)
"""Standard deviation of the champion's runs, in those of the baseline's."""
UNSEEN = 0.25
"""Gain from training for 5 % more steps, in sds: 100 points per e-fold of steps, where runs have an sd of 20."""
STEP_NOISE = 0.02
"""Standard deviation of a run's steps around their mean, relative to it."""
HALVINGS = 4
"""Errors ALPHA, ALPHA / 2 and so on, for which levels are kept."""
SIZES = (*range(2, 13), 16, 25, 50, 100)
"""Runs per arm of equal arms."""


@dataclass(frozen=True)
class World:
    """The runs of one cell."""

    ratio: float = 1.0
    gain: float = 0.0
    """True gain of the champion."""
    use: Use = "counted"
    drift: float = 0.0
    """How much better both arms are than in the search."""
    faster: float = 0.0
    """How many more steps runs make than in the search, as a share; UNSEEN sds better for each 5 %."""
    champion: str = "normal"
    """Shape of the champion's runs, a key of SHAPES."""
    baseline: str = "normal"


def _collapsing(share: float) -> Draw:
    """Runs of which so many end 10 sds lower, around the same mean of 0."""
    return lambda draw, shape: draw.standard_normal(shape) - 10 * ((draw.random(shape) < share) - share)


SHAPES: dict[str, Draw] = {
    "normal": lambda draw, shape: draw.standard_normal(shape),
    "t3": lambda draw, shape: draw.standard_t(3, shape) / np.sqrt(3),
    "skewed up": lambda draw, shape: draw.standard_exponential(shape) - 1,
    "skewed down": lambda draw, shape: 1 - draw.standard_exponential(shape),
    **{f"collapses .{digits}": _collapsing(share) for digits, share in (("05", 0.05), ("2", 0.2), ("4", 0.4))},
}


@dataclass(frozen=True)
class Looks:
    """The test at each look, in arrays of the shape (rows, looks)."""

    p: Array
    gain: Array
    error: Array
    free: Array
    """Degrees of freedom."""
    counted: Array
    """1 where the baseline's runs of the search counted, else 0."""


def looks_of(groups: Groups, world: World, rows: int, seed: int) -> Looks:
    """The tests of so many certificates in a world."""
    draw, better = np.random.default_rng(seed), world.drift + UNSEEN * world.faster / PACE
    counts = (world.champion, groups[-1][0]), (world.baseline, groups[-1][1]), (world.baseline, BASELINE_RUNS)
    noise = tuple(SHAPES[shape](draw, (rows, count)) for shape, count in counts)
    now, then, search = world.gain + better + world.ratio * noise[0], better + noise[1], noise[2]
    steps = 1 + STEP_NOISE * draw.standard_normal((rows, BASELINE_RUNS + groups[-1][1])) if world.faster else None
    if steps is not None:
        steps[:, BASELINE_RUNS:] *= 1 + world.faster
    return simulated(groups, now, then, search, world.use, steps)


def simulated(
    groups: Groups, champion: Array, baseline: Array, search: Array, use: Use, steps: Array | None = None
) -> Looks:
    """The tests of given runs, each in the shape (rows, runs); `steps`: of the search's, then of the fresh baseline."""
    least = search.var(1, ddof=1) / 2 if use != "unknown" else np.zeros(len(search))
    found: list[tuple[Array, ...]] = []
    for mine, theirs in groups:
        now, fresh = champion[:, :mine], baseline[:, :theirs]
        if use == "unknown":
            found.append((*_welch(now, _about(fresh), least), np.zeros(len(search))))
            continue
        apart = _welch(now, _joint(_about(fresh), _about(search)), least)
        drifted = np.ones(len(search), bool)
        if use == "counted":
            drifted = _welch(fresh, _about(search), np.zeros(len(search)))[0] < RISE
            if steps is not None:
                pace = steps[:, BASELINE_RUNS:][:, :theirs].mean(1) / steps[:, :BASELINE_RUNS].mean(1) - 1
                drifted |= np.abs(pace) > PACE
        both = _welch(now, _about(np.concatenate([fresh, search], axis=1)), least)
        one = tuple(np.where(drifted, out, into) for out, into in zip(apart, both, strict=True))
        found.append((*one, (~drifted).astype(float)))
    return Looks(*(np.stack(part, axis=1) for part in zip(*found, strict=True)))


Arm = tuple[Array, Array, int, int]
"""Mean and variance of an arm's runs, their number, and the degrees of freedom of the variance."""


def _about(runs: Array) -> Arm:
    return runs.mean(1), runs.var(1, ddof=1), runs.shape[1], runs.shape[1] - 1


def _joint(arm: Arm, other: Arm) -> Arm:
    """An arm with the variance pooled over other runs of the same program."""
    free = arm[3] + other[3]
    return arm[0], (arm[1] * arm[3] + other[1] * other[3]) / free, arm[2], free


def _welch(now: Array, against: Arm, floor: Array) -> tuple[Array, Array, Array, Array]:
    """One-sided p, gain, its error and degrees of freedom (tasks/deciding/statistics.py: welch)."""
    mine, gain = _about(now), now.mean(1) - against[0]
    seen = [arm[1] / arm[2] for arm in (mine, against)]
    parts = [np.maximum(arm[1], floor) / arm[2] for arm in (mine, against)]
    free = np.minimum(*(_freedom(each, mine[3], against[3]) for each in (parts, seen)))
    error: Array = np.sqrt(parts[0] + parts[1])
    return special.stdtr(free, -gain / error), gain, error, free


def _freedom(parts: Sequence[Array], mine: int, theirs: int) -> Array:
    found: Array = (parts[0] + parts[1]) ** 2 / (parts[0] ** 2 / mine + parts[1] ** 2 / theirs)
    return found


def cells(groups: Groups) -> Iterator[World]:
    """Every cell in which a level has to hold."""
    uses: tuple[Use, ...] = ("counted", "spread")
    for ratio in RATIOS:
        for use in uses:
            yield World(ratio, use=use, drift=UNSEEN if use == "counted" else 0.0)
        if all(champion == baseline for champion, baseline in groups):
            yield World(ratio, use="unknown")


def last_levels(groups: Groups, rows: int, seed: int = 1) -> tuple[float, ...]:
    """The level of the last look for ALPHA and its halvings, rounded down; never above these themselves."""
    errors = [ALPHA * 0.5**halved for halved in range(HALVINGS)]
    found = [np.array(errors)]
    for world in cells(groups):
        scaled = (looks_of(groups, world, rows, seed).p / np.array(shares(groups))).min(axis=1)
        found.append(np.quantile(scaled, errors))
    return tuple(float(np.floor(level * 1e5) / 1e5) for level in np.min(found, axis=0))


def designs() -> tuple[Groups, ...]:
    """Every design with a level of its own."""
    equal = (equal_arms(runs) for runs in SIZES)
    return (*(groups for _, groups in (*RUNS, *EDIT_RUNS)), *equal)


@dataclass(frozen=True)
class Figures:
    passes: float
    runs: float
    """Mean number of runs, of both arms."""
    bias: float
    """Mean of the gain to expect, less the true gain, over those that passed; NaN if too few did."""


CLAIMS = 1000
"""Certificates that passed, of which the gain to expect is computed."""


def figures(design: Design, world: World, rows: int, seed: int = 2) -> Figures:
    """How often a design passes in a world, and how many runs it takes until it has passed or is hopeless."""
    seen = looks_of(design.groups, world, rows, seed)
    going, used, claims = np.ones(rows, bool), np.zeros(rows), []
    passes = 0
    for look, (group, level) in enumerate(zip(design.groups, design.levels, strict=True)):
        used[going] = sum(group)
        passed = going & (seen.p[:, look] <= level)
        passes += int(passed.sum())
        for row in np.flatnonzero(passed)[: round(CLAIMS * passed.sum() / rows) + 1]:
            gain, free = float(seen.gain[row, look]), float(seen.free[row, look])
            reach = quantile((1 + CONFIDENCE) / 2, free) * float(seen.error[row, look])
            claims.append(corrected(Comparison(gain, gain - reach, gain + reach, 0.0, free), design.levels[-1]))
        going &= ~passed & (seen.p[:, look] <= HOPELESS[min(look, 1)])
    bias = float(np.mean(claims)) - world.gain if len(claims) >= 30 else float("nan")
    return Figures(passes / rows, float(used.mean()), bias)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--levels", action="store_true", help="print the table of levels")
    parser.add_argument("--rows", type=int, default=200_000, help="certificates per cell")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.levels:
        for groups in designs():
            print(f"    {groups}: {last_levels(groups, given.rows)},", flush=True)
        return
    report(given.rows, given.json)


RATES: dict[str, World] = {
    "equal": World(), "sd 1:3": World(1 / 3), "sd 1:2": World(1 / 2), "sd 2:1": World(2.0), "sd 3:1": World(3.0),
    "t3": World(champion="t3", baseline="t3"),
    "skewed up": World(champion="skewed up", baseline="skewed up"),
    "skewed down": World(champion="skewed down", baseline="skewed down"),
    "only the champion skewed down": World(champion="skewed down"),
    "collapses of both, .05": World(champion="collapses .05", baseline="collapses .05"),
    "collapses of both, .2": World(champion="collapses .2", baseline="collapses .2"),
    "only the champion collapses, .05": World(champion="collapses .05"),
    "only the champion collapses, .2": World(champion="collapses .2"),
    "only the champion collapses, .4": World(champion="collapses .4"),
    **{f"{share:.0%} more steps": World(faster=share) for share in (0.02, 0.05, 0.1, 0.2, 0.5)},
    **{f"drift {drift:g} sd, same steps": World(drift=drift) for drift in (0.25, 0.5, 1.0, 2.0, 4.0)},
}  # fmt: skip
"""Worlds in which the champion is no better on average."""
GAINS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0)


def report(rows: int, as_json: bool) -> None:
    """Print how the designs do."""
    used: tuple[Use, ...] = ("counted", "spread")
    every = [(groups, use) for _, groups in (*reversed(RUNS), *reversed(EDIT_RUNS)) for use in used]
    head = [f"{groups[-1][0]} v {groups[-1][1]}{' + 3' if use == 'counted' else ''}" for groups, use in every]
    worlds = RATES | {f"+{gain:g} sd": World(gain=gain) for gain in GAINS}
    worlds |= {f"+{gain:g} sd, sd 1.7:1": World(1.7, gain=gain) for gain in (2.0, 4.0)}
    found: list[dict[str, object]] = []
    lines = []
    for name, world in worlds.items():
        ours = [figures(of_groups(groups), replace(world, use=use), rows) for groups, use in every]
        found += [{"world": name, "design": d} | asdict(one) for d, one in zip(head, ours, strict=True)]
        lines.append((name, *(f"{one.passes:.3f} ({one.runs:.1f})" for one in ours)))
        if world.gain:
            lines.append((f"{name}, expected less true", *(f"{one.bias:+.2f}" for one in ours)))
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        show(("passes (runs)", *head), lines, box=MARKDOWN)


if __name__ == "__main__":
    main()

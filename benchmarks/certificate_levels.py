"""Levels of certificates: how often a group certificate is wrong, what it shows, and how many runs it takes.

    python -m benchmarks.certificate_levels --levels      # the table of tasks/deciding/group_levels.py
    python -m benchmarks.certificate_levels               # error, power and runs of the designs that campaigns use

Runs of both arms are drawn, 200,000 certificates a cell, and tested like tasks/deciding/certificate.py does (the smoke
test compares the two). Scores are in standard deviations of the baseline's runs. A level is the largest that keeps
the error of all looks together in every cell: standard deviations of the arms from 1:3 to 3:1, with the baseline's runs
of the search counted, used for their spread alone, or (equal arms) unknown, and then without a floor. Where they
count, both arms score UNSEEN better than in the search: so much may a machine have gained that is no faster than the
5 % of steps at which drift is seen. Stopping when hopeless is left out there, so that a certificate may also go on.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special  # type: ignore[import-untyped]

from tasks.deciding.group_design import ALPHA, EDIT_RUNS, HOPELESS, RUNS, Design, Groups, equal_arms, of_groups, shares
from tasks.deciding.reuse import RISE
from tasks.deciding.values import BASELINE_RUNS

Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int, int], Array]
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
    champion: str = "normal"
    """Shape of the champion's runs, a key of SHAPES."""
    baseline: str = "normal"


def _normal(draw: np.random.Generator, rows: int, runs: int) -> Array:
    return draw.standard_normal((rows, runs))


def _student(draw: np.random.Generator, rows: int, runs: int) -> Array:
    return draw.standard_t(3, (rows, runs)) / np.sqrt(3)


def _skewed(draw: np.random.Generator, rows: int, runs: int) -> Array:
    return draw.standard_exponential((rows, runs)) - 1


def _skewed_down(draw: np.random.Generator, rows: int, runs: int) -> Array:
    return 1 - draw.standard_exponential((rows, runs))


def _correlated(draw: np.random.Generator, rows: int, runs: int) -> Array:
    """AR(1) with correlation 0.5 between a run and the one before it in the same arm."""
    found = draw.standard_normal((rows, runs))
    for run in range(1, runs):
        found[:, run] = 0.5 * found[:, run - 1] + np.sqrt(0.75) * found[:, run]
    return found


def _collapsing(share: float) -> Draw:
    """Runs of which so many end 10 sds lower, around the same mean of 0."""

    def drawn(draw: np.random.Generator, rows: int, runs: int) -> Array:
        fallen = draw.random((rows, runs)) < share
        return draw.standard_normal((rows, runs)) - 10 * (fallen - share)

    return drawn


SHAPES: dict[str, Draw] = {
    "normal": _normal,
    "t3": _student,
    "skewed up": _skewed,
    "skewed down": _skewed_down,
    "AR(1) .5": _correlated,
    "collapses .05": _collapsing(0.05),
    "collapses .2": _collapsing(0.2),
    "collapses .4": _collapsing(0.4),
}


def p_values(groups: Groups, world: World, rows: int, seed: int) -> Array:
    """One-sided p at each look, in the shape (rows, looks)."""
    draw = np.random.default_rng(seed)
    now = world.gain + world.drift + world.ratio * SHAPES[world.champion](draw, rows, groups[-1][0])
    then = world.drift + SHAPES[world.baseline](draw, rows, groups[-1][1])
    search = SHAPES[world.baseline](draw, rows, BASELINE_RUNS)
    return simulated(groups, now, then, search, world.use)


def simulated(groups: Groups, champion: Array, baseline: Array, search: Array, use: Use) -> Array:
    """The same of given runs, each in the shape (rows, runs)."""
    least = search.var(1, ddof=1) / 2 if use != "unknown" else np.zeros(len(search))
    looks = []
    for mine, theirs in groups:
        now, fresh = champion[:, :mine], baseline[:, :theirs]
        if use == "unknown":
            looks.append(_welch(now, _about(fresh), least)[0])
            continue
        apart = _joint(_about(fresh), _about(search))
        p = _welch(now, apart, least)[0]
        if use == "counted":
            both = _about(np.concatenate([fresh, search], axis=1))
            risen = _welch(fresh, _about(search), np.zeros(len(search)))[0] < RISE
            p = np.where(risen, p, _welch(now, both, least)[0])
        looks.append(p)
    return np.stack(looks, axis=1)


Arm = tuple[Array, Array, int, int]
"""Mean and variance of an arm's runs, their number, and the degrees of freedom of the variance."""


def _about(runs: Array) -> Arm:
    return runs.mean(1), runs.var(1, ddof=1), runs.shape[1], runs.shape[1] - 1


def _joint(arm: Arm, other: Arm) -> Arm:
    """An arm with the variance pooled over other runs of the same program."""
    free = arm[3] + other[3]
    return arm[0], (arm[1] * arm[3] + other[1] * other[3]) / free, arm[2], free


def _welch(now: Array, against: Arm, floor: Array) -> tuple[Array, Array]:
    """One-sided p and the gain (tasks/deciding/statistics.py: welch)."""
    mine, gain = _about(now), now.mean(1) - against[0]
    seen = [arm[1] / arm[2] for arm in (mine, against)]
    parts = [np.maximum(arm[1], floor) / arm[2] for arm in (mine, against)]
    free = np.minimum(*(_freedom(each, mine[3], against[3]) for each in (parts, seen)))
    return special.stdtr(free, -gain / np.sqrt(sum(parts))), gain


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
        scaled = (p_values(groups, world, rows, seed) / np.array(shares(groups))).min(axis=1)
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


def figures(design: Design, world: World, rows: int, seed: int = 2) -> Figures:
    """How often a design passes in a world, and how many runs it takes until it has passed or is hopeless."""
    p = p_values(design.groups, world, rows, seed)
    going, passed, used = np.ones(rows, bool), np.zeros(rows, bool), np.zeros(rows)
    for look, (group, level) in enumerate(zip(design.groups, design.levels, strict=True)):
        used[going] = sum(group)
        passed |= going & (p[:, look] <= level)
        going &= (p[:, look] > level) & (p[:, look] <= HOPELESS[min(look, 1)])
    return Figures(float(passed.mean()), float(used.mean()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--levels", action="store_true", help="print the table of levels")
    parser.add_argument("--rows", type=int, default=200_000, help="certificates per cell")
    parser.add_argument("--smoke", action="store_true", help="a few rows only")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = 500 if given.smoke else given.rows
    if given.levels:
        for groups in designs()[: 2 if given.smoke else None]:
            print(f"    {groups}: {last_levels(groups, rows)},", flush=True)
        return
    report(rows, given.json)


def report(rows: int, as_json: bool) -> None:
    """Print how the designs do."""
    worlds = {
        "null": World(), "null 1:3": World(1 / 3), "null 3:1": World(3.0),
    } | {f"+{gain:g} sd": World(gain=gain) for gain in (0.5, 1, 1.5, 2, 3, 4, 5)}  # fmt: skip
    rowsof: list[dict[str, object]] = []
    for _, groups in (*reversed(RUNS), *reversed(EDIT_RUNS)):
        for use in ("counted", "spread"):
            for name, world in worlds.items():
                found = figures(of_groups(groups), replace(world, use=use), rows)
                rowsof.append({"groups": groups, "use": use, "world": name, "passes": found.passes, "runs": found.runs})
    for row in rowsof:
        print(json.dumps(row) if as_json else row)


if __name__ == "__main__":
    main()

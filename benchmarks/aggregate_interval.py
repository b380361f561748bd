"""Coverage of the aggregate's interval: how often the bootstrap's 95 % interval holds the true difference.

    python -m benchmarks.aggregate_interval [--draws 400] [--json]

Simulated certificates in several environments, each with the same number of runs of both arms, through the code that
reports (tasks/certifying/aggregate.py), normalisation by the run sd included. `normal`: both arms normal with equal
sd, gains of 0, 1 and 2 run sds in turn. `collapses`: one run in ten of either arm falls by five run sds. The truth is
the mean of that figure over certificates of 200 runs of each arm.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from tasks.certifying.aggregate import estimates
from tasks.deciding.statistics import pooled

RUNS, ENVIRONMENTS = (2, 3, 5, 8, 15), (2, 4)
RESAMPLES = 500
"""Enough for the ends of an average interval; a report draws more, so that its figures are steady."""
NOISE = ("normal", "collapses")
MANY = 200
Values = NDArray[np.float64]


@dataclass(frozen=True)
class Cell:
    noise: str
    environments: int
    runs: int
    coverage: float
    width: float
    """Mean width of the interval, in run sds."""


def drawn(noise: str, runs: int, shift: float, rng: np.random.Generator) -> Values:
    values = rng.normal(shift, 1.0, runs)
    return np.asarray(values - 5.0 * (rng.random(runs) < 0.1)) if noise == "collapses" else values


def normalised(mine: Values, theirs: Values) -> tuple[tuple[float, ...], tuple[float, ...]]:
    spread = pooled([mine.tolist(), theirs.tolist()])
    assert spread is not None and spread.sd, "normal draws differ"
    zero = float(theirs.mean())
    return tuple(((mine - zero) / spread.sd).tolist()), tuple(((theirs - zero) / spread.sd).tolist())


def certificates(noise: str, environments: int, runs: int, rng: np.random.Generator) -> tuple[float, float, float]:
    pairs = [
        normalised(drawn(noise, runs, float(n % 3), rng), drawn(noise, runs, 0.0, rng)) for n in range(environments)
    ]
    champions, baselines = zip(*pairs, strict=True)
    gain = estimates.__wrapped__(champions, baselines, RESAMPLES)[2]
    return gain.value, gain.low, gain.high


def cell(noise: str, environments: int, runs: int, draws: int) -> Cell:
    rng = np.random.default_rng((NOISE.index(noise), environments, runs))
    truth = certificates(noise, environments, MANY, rng)[0]
    truth = float(np.mean([truth, *(certificates(noise, environments, MANY, rng)[0] for _ in range(20))]))
    made = [certificates(noise, environments, runs, rng) for _ in range(draws)]
    inside = [low <= truth <= high for _, low, high in made]
    return Cell(
        noise, environments, runs, float(np.mean(inside)), float(np.mean([high - low for _, low, high in made]))
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    cells = [cell(noise, many, runs, args.draws) for noise in NOISE for many in ENVIRONMENTS for runs in RUNS]
    if args.json:
        print(json.dumps([vars(one) for one in cells], indent=2))
        return
    table = Table("noise", "environments", "runs of each arm", "coverage", "width, in run sds")
    for one in cells:
        table.add_row(one.noise, str(one.environments), str(one.runs), f"{one.coverage:.3f}", f"{one.width:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()

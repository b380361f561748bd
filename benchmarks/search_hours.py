"""Which search finds most in equal hours on real problems, and what ships under rule greedy and under a certificate.

    python -m benchmarks.search_hours [--problems lunar_lander bipedal_walker arithmetic pendulum FOLDER] [--hours 1]
        [--lanes random_search tpe cmaes gp learned greedy] [--seeds 1 2 3] [--fresh 5]
        [--store FILE.csv] [--home FOLDER] [--table]

Each lane runs one campaign per problem and seed, `nightshift run` with everything that belongs to it, on the same
clock; all lanes have the same seeds. `greedy` is `tpe` under rule greedy, where the record of the search ships;
elsewhere what ships was certified, or is the baseline.

What ships is then trained `--fresh` times with seeds that no campaign has, and so is the baseline, twice as often. The
true gain is the difference of the means, and 0 where the baseline ships.

    ships       campaigns in which something else than the baseline does
    no better   of these, the ones whose fresh runs are on average no better than the baseline's: false ships
    true gain   mean over the campaigns, in the metric, with a 95 % bootstrap interval over them
    claimed     mean of what the campaigns said: the gain of the certificate, under greedy that of the record
    in sds      the true gain in standard deviations of the baseline's fresh runs

Each campaign that has ended is a row of --store and is not run again; campaigns live in --home and go on where they
were cut off. `--table` computes everything from the file and runs nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.box import MARKDOWN

from benchmarks.campaigns import (
    FRESH_SEEDS,
    HOMES,
    RESULTS,
    WITHOUT_END,
    Rows,
    campaign,
    commit,
    machine,
    nightshift,
    today,
)  # fmt: skip
from benchmarks.tables import mean_interval, show

BASELINE, GREEDY = "baseline", "greedy"
LANES = {
    **{name: ("--proposer", name) for name in ("random_search", "tpe", "cmaes", "gp", "learned")},
    GREEDY: ("--proposer", "tpe", "--rule", "greedy"),
}
PROBLEMS = {"lunar_lander": {}, "bipedal_walker": {"budget_seconds": "60"}, "arithmetic": {}, "pendulum": {}}
"""Keys of environment.toml that are changed, by problem."""


@dataclass(frozen=True)
class HoursRow:
    """One campaign that has ended; or the fresh runs of a problem's baseline."""

    problem: str
    lane: str
    """Or `baseline`, whose seed is 0."""
    seed: int
    hours: float
    """That the campaign took, of its limit."""
    limit: float
    trials: int
    direction: str
    """`maximize` or `minimize`."""
    baseline: float | None
    """Mean of the baseline's runs in the search."""
    champion: float | None
    """The record of the search."""
    ships: int
    """The trial; 0 is the baseline."""
    claimed: float | None
    """The gain that the campaign reports of what ships."""
    fresh: str
    """Scores of the fresh runs of what ships, with spaces between; empty where the baseline does."""
    failed: int
    """Fresh runs without a score."""
    reason: str
    """Why nothing was certified, or why the campaign failed."""
    params: str
    machine: str
    commit: str
    date: str

    @property
    def scores(self) -> list[float]:
        return [float(score) for score in self.fresh.split()]

    @property
    def sign(self) -> float:
        return 1.0 if self.direction == "maximize" else -1.0


class Bench:
    """Where campaigns run, and what they are given."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.kept, self.home, self.hours = Rows(options.store, HoursRow), options.home.absolute(), options.hours
        self.trials, self.fresh, self.changes = options.trials, options.fresh, options.set

    def measure(self, problem: str, lanes: Sequence[str], seeds: Sequence[int]) -> None:
        """All campaigns of a problem; seed by seed, so that what is there after a while can be compared."""
        if not self._has(problem, BASELINE, 0):
            scores, failed = self._fresh_scores(2 * self.fresh, problem, *self._settings(problem))
            self._keep(problem, BASELINE, 0, fresh=scores, failed=failed)
        for seed in seeds:
            for lane in lanes:
                if not self._has(problem, lane, seed):
                    self._campaign(problem, lane, seed)

    def _settings(self, problem: str) -> tuple[str, ...]:
        stated = [f"{key}={value}" for key, value in PROBLEMS.get(problem, {}).items()]
        return tuple(word for change in (*stated, *self.changes) for word in ("--set", change))

    def _campaign(self, problem: str, lane: str, seed: int) -> None:
        name = f"{Path(problem).name}-{lane}-{self.hours:g}h-{seed}"
        found = campaign(
            self.home, problem, *LANES[lane], "--name", name, "--seed", str(seed), "--hours", f"{self.hours:g}",
            "--trials", str(self.trials), "--tracking", "off", *self._settings(problem),
        )  # fmt: skip
        baseline, champion, proof = found["baseline"], found["champion"], found["certificate"]
        ships, claimed = found["shipped_trial"] or 0, proof["gain"] if proof else None
        if lane == GREEDY:
            ships = champion["trial"] if champion else 0
            gained = champion["score"] - baseline["score"] if ships and baseline["score"] is not None else None
            claimed = -gained if gained is not None and found["direction"] == "minimize" else gained
        params = json.dumps(champion["params"]) if champion else ""
        fresh, failed = self._fresh_scores(self.fresh, "--in", name, "--params", params) if ships else ((), 0)
        self._keep(
            problem, lane, seed, hours=round(found["spent"]["seconds"] / 3600, 3), trials=len(found["trials"]) - 1,
            direction=found["direction"], baseline=baseline["score"] if baseline else None,
            champion=champion["score"] if champion else None, ships=ships, claimed=claimed if ships else None,
            fresh=fresh, failed=failed, params=params,
            reason=found["reason"] if found["state"] == "failed" else found["uncertified"] or "",
        )  # fmt: skip

    def _fresh_scores(self, runs: int, *what: str) -> tuple[tuple[float, ...], int]:
        """Scores of so many single runs with fresh seeds, and how many have none."""
        seeds = range(FRESH_SEEDS, FRESH_SEEDS + runs)
        found = [
            nightshift(self.home, "try", *what, "--seed", str(seed), "--trust", "--json")["score"] for seed in seeds
        ]
        known = tuple(round(score, 4) for score in found if score is not None)
        return known, runs - len(known)

    def _has(self, problem: str, lane: str, seed: int) -> bool:
        asked = (Path(problem).name, lane, seed, self.hours if seed else 0.0)
        return any((row.problem, row.lane, row.seed, row.limit) == asked for row in self.kept.rows)

    def _keep(self, problem: str, lane: str, seed: int, *, fresh: Sequence[float] = (), **more: Any) -> None:
        row: dict[str, Any] = {
            "hours": 0.0, "trials": 0, "direction": "maximize", "baseline": None, "champion": None, "ships": 0,
            "claimed": None, "failed": 0, "reason": "", "params": "", **more,
        }  # fmt: skip
        self.kept.add(
            HoursRow(
                problem=Path(problem).name, lane=lane, seed=seed, limit=self.hours if seed else 0.0,
                fresh=" ".join(f"{score:g}" for score in fresh), machine=machine(), commit=commit(), date=today(),
                **row,
            )
        )  # fmt: skip


@dataclass(frozen=True)
class Lane:
    """The campaigns of one lane in one problem, in order of their seeds."""

    rows: tuple[HoursRow, ...]
    level: float
    """Mean of the baseline's fresh runs."""
    sd: float
    """Between them; NaN of fewer than two."""

    def gain(self, row: HoursRow) -> float:
        """The true one; NaN where something shipped of which no fresh run has a score."""
        if not row.ships:
            return 0.0
        return row.sign * (statistics.fmean(row.scores) - self.level) if row.scores else math.nan

    @property
    def gains(self) -> list[float]:
        return [self.gain(row) for row in self.rows]

    @property
    def shipped(self) -> list[HoursRow]:
        return [row for row in self.rows if row.ships]

    @property
    def claims(self) -> list[float]:
        return [row.claimed for row in self.shipped if row.claimed is not None]

    @property
    def false(self) -> int:
        """Ships that are no better than the baseline, those without a score among them."""
        return sum(not self.gain(row) > 0 for row in self.shipped)


def lanes_of(rows: Sequence[HoursRow], problem: str, limit: float) -> dict[str, Lane]:
    """The lanes of a problem that have campaigns of so many hours."""
    mine = [row for row in rows if row.problem == problem]
    base = [score for row in mine if row.lane == BASELINE for score in row.scores]
    if not base:
        return {}
    level, sd = statistics.fmean(base), statistics.stdev(base) if len(base) > 1 else math.nan
    lanes = {}
    for name in LANES:
        own = [row for row in mine if row.lane == name and row.seed and row.limit == limit]
        if own:
            lanes[name] = Lane(tuple(sorted(own, key=lambda row: row.seed)), level, sd)
    return lanes


def table(rows: Sequence[HoursRow]) -> list[list[str]]:
    """A line for each lane of each problem."""
    lines = []
    for problem, limit in dict.fromkeys((row.problem, row.limit) for row in rows if row.seed):
        for name, lane in lanes_of(rows, problem, limit).items():
            gains = [gain for gain in lane.gains if not math.isnan(gain)]
            mean = statistics.fmean(gains) if gains else math.nan
            lines.append([
                problem, f"{limit:g}", name, str(len(lane.rows)),
                f"{statistics.median(row.trials for row in lane.rows):g}", str(len(lane.shipped)), str(lane.false),
                mean_interval(gains), f"{sum(lane.claims) / len(lane.rows):+.4g}",
                f"{mean / lane.sd:+.2f}" if lane.sd > 0 else "",
            ])  # fmt: skip
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description="Which search finds most in equal hours.")
    parser.add_argument("--problems", nargs="+", default=list(PROBLEMS), help="bundled environments, or folders")
    parser.add_argument("--lanes", nargs="+", choices=list(LANES), default=list(LANES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="one campaign each, from 1 on")
    parser.add_argument("--hours", type=float, default=1.0, help="of each campaign (1)")
    parser.add_argument("--trials", type=int, default=WITHOUT_END, help="of each campaign at most; its clock ends it")
    parser.add_argument("--fresh", type=int, default=5, help="fresh runs of what ships (5)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of every environment.toml")
    parser.add_argument("--store", type=Path, default=RESULTS / "search_hours.csv", help="file of what has ended")
    parser.add_argument("--home", type=Path, default=HOMES / "search_hours", help="home of the campaigns")
    parser.add_argument("--table", action="store_true", help="compute from the file alone, run nothing")
    options = parser.parse_args()
    if min(options.seeds) < 1 or options.fresh < 1:
        parser.error("seeds and fresh runs begin at 1")
    bench = Bench(options)
    for problem in [] if options.table else options.problems:
        bench.measure(problem, options.lanes, options.seeds)
    columns = ("problem", "hours", "lane", "campaigns", "trials", "ships", "no better", "true gain", "claimed",
               "in sds")  # fmt: skip
    show(columns, table(bench.kept.rows), box=MARKDOWN)


if __name__ == "__main__":
    main()

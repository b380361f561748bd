"""How often duels, calibrated certificates and ablations say what is not so, or show what is? Simulated.

    python -m benchmarks.comparisons [--nights 4000] [--seed 1] [--json]

duel: two programs that are equally good and solve different questions, five runs of each; judged on the same questions
in all runs, on others in each block, or (as duels do) on others in each run. power: a true gain of the size that
`nightshift try --runs` says is shown. ablation: changes of a champion without an effect, of which one or more is said
to carry, also where the champion and what equals it scatter 1.7 times as much as the baseline. All decided by the code
that runs.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator

import numpy as np
from rich.console import Console
from rich.table import Table

from environments.score import Score
from tasks.certifying.ablation import LEVEL, Ablation, Removed, ablation_runs
from tasks.certifying.power import RATIO, detectable
from tasks.deciding.statistics import welch
from tasks.trial import Run

QUESTIONS, DUEL_RUNS = 40, 5
RUN = Run("", 0, 1.0, "finished")
Row = tuple[str, str, float]


def duels(nights: int, draw: np.random.Generator) -> Iterator[Row]:
    for name, sets in (("the same questions", 1), ("others in each block", DUEL_RUNS), ("others in each run", 10)):
        shown = 0
        for _ in range(nights):
            solves = draw.random((sets, QUESTIONS)) < 0.5  # A's questions; B solves the others
            skill = np.where(solves, 0.8, 0.2).mean(axis=1)
            a, b = (mean + draw.normal(0, 0.05, DUEL_RUNS) for mean in (skill[:DUEL_RUNS], 1 - skill[-DUEL_RUNS:]))
            p = welch(a.tolist(), b.tolist()).p
            shown += 2 * min(p, 1 - p) <= 0.05
        yield "duel of equal programs", name, shown / nights


def powers(nights: int, draw: np.random.Generator) -> Iterator[Row]:
    for runs in (3, 4, 5):
        for ratio in (1.0, RATIO):
            gain = detectable((runs, runs), 1.0, ratio)
            arms = zip(draw.normal(gain, ratio, (nights, runs)), draw.normal(0, 1, (nights, runs)), strict=True)
            shown = sum(welch(now.tolist(), before.tolist(), floor=0.5).p <= 0.05 for now, before in arms)
            yield f"power, {runs} v {runs} runs", f"champion's sd {ratio:g} x, gain {gain:.2f} sd", shown / nights


def ablations(nights: int, draw: np.random.Generator) -> Iterator[Row]:
    for changes in (1, 4, 7):
        mine, each = ablation_runs(changes)
        for ratio in (1.0, RATIO):
            false = 0
            for _ in range(nights):
                kept = _runs("", draw.normal(0, ratio, mine))
                removed = [run for n in range(changes) for run in _runs(f"x{n}", draw.normal(0, ratio, each))]
                false += any(one.p <= LEVEL for one in Ablation.of(1, kept, removed, sd=1.0).findings)
            yield f"ablation, {changes} without effect", f"champion's sd {ratio:g} x", false / nights


def _runs(change: str, values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[Removed]:
    return [Removed(change, RUN, Score(float(value))) for value in values]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    draw = np.random.default_rng(asked.seed)
    rows = [*duels(asked.nights, draw), *powers(asked.nights, draw), *ablations(max(asked.nights // 4, 1), draw)]
    if asked.json:
        print(json.dumps([{"what": what, "case": case, "share": share} for what, case, share in rows]))
        return
    table = Table("what", "case", "share", "se")
    for what, case, share in rows:
        nights = asked.nights // 4 if what.startswith("ablation") else asked.nights
        table.add_row(what, case, f"{share:.3f}", f"{math.sqrt(share * (1 - share) / max(nights, 1)):.3f}")
    Console(highlight=False).print(table)


if __name__ == "__main__":
    main()

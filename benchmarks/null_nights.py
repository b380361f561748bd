"""How many campaigns ship an "improvement" when no proposal has an effect? Resampled from real baseline runs.

    nightshift try lunar_lander --runs 60                # records them, once
    python -m benchmarks.null_nights runs/.calibrations/lunar_lander/DIGEST-MACHINE.json [--campaigns 10000] [--json]

Each campaign draws its baseline's runs, its trials and its certificate from the recorded runs, scores with the curves
that belong to them, and decides with the code that campaigns run (see benchmarks/decisions.py).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.decisions import Campaign, Outcome
from benchmarks.simulated import LOOK, Recorded, Seen
from environments import plugins
from tasks.cancellers import Canceller
from tasks.certifying.group_design import design_of
from tasks.rules import Rule
from tasks.store.calibration import CALIBRATION, Calibration
from tasks.trial import TWENTIETHS

Runs = Sequence[Seen]


def one_campaign(index: int, runs: Runs, rule: str, trials: int, seed: int) -> Outcome:
    """One campaign of so many runs of trials, besides the baseline's and the certificate's."""
    made = plugins.make("tasks.rules", rule, Rule, {})  # type: ignore[type-abstract]
    canceller = plugins.make("tasks.cancellers", "curve", Canceller, {}) if made.certifies else None  # type: ignore[type-abstract]
    proof = design_of(trials, edits=True).runs if made.certifies else 0
    first = made.baseline_runs(1, deterministic=False)
    world = Recorded(runs, np.random.default_rng([seed, index]))
    return Campaign(world, made, canceller, first + trials + proof).run()


def recorded(calibration: Calibration) -> Runs:
    """The utility of every run, and of its progress at the look."""
    at = round(LOOK * TWENTIETHS) - 1
    found = []
    for one in calibration.runs:
        sign = 1 if one.score.higher_is_better else -1
        progress = one.run.curve[at] if at < len(one.run.curve) else None
        if progress is None:
            sys.exit(f"run {one.run.seed} reported no progress at {LOOK:.0%} of its budget: nothing can be resampled")
        found.append(Seen(one.score.utility, (None,) * at + (sign * progress,)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("calibration", type=Path, help="what `nightshift try --runs` has stored")
    parser.add_argument("--campaigns", type=int, default=10_000)
    parser.add_argument("--rule", action="append", choices=plugins.names("tasks.rules"))
    parser.add_argument("--trials", type=int, action="append", help="8, 20 and 47 when left out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, help="processes at once; all cores when left out")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    runs = recorded(CALIBRATION.validate_json(asked.calibration.read_bytes()))
    rows = []
    for rule in asked.rule or ["greedy", "certify"]:
        for trials in asked.trials or [8, 20, 47]:
            every = partial(one_campaign, runs=runs, rule=rule, trials=trials, seed=asked.seed)
            with ProcessPoolExecutor(asked.jobs) as pool:
                found = list(pool.map(every, range(asked.campaigns), chunksize=max(asked.campaigns // 100, 1)))
            row = {
                "rule": rule,
                "trials": trials,
                "campaigns": asked.campaigns,
                "recorded": len(runs),
                "ships": float(np.mean([one.shipped for one in found])),
                "claim_minus_true": float(np.mean([one.claim - one.truth for one in found])),
            }
            rows.append(row)
            if not asked.json:
                print(
                    "  ".join(
                        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
                        for name, value in row.items()
                    ),
                    flush=True,
                )
    if asked.json:
        print(json.dumps(rows, indent=2, allow_nan=False))


if __name__ == "__main__":
    main()

"""Does the PPO program learn as much per step on several cores as another version of it did on one?

    python -m benchmarks.ppo_learning --commit HEAD [--id LunarLander-v3] [--steps 100000] [--seeds 8] [--envs 8]

The program of that commit, on one core, and the present one, on all, train with the same seeds, parameters and steps,
in turn. `end` is the mean return of the last 100 training episodes, `mean` that over the whole run, each report weighed
by its steps. `difference` is the present one's less the other's of the same seed, with a 95 % interval (Student's t).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.ppo_throughput import CORES, NORMALIZED, reported
from tasks.store.workspace import trainer_files

CHECKOUT = Path(__file__).parents[1]
SECONDS = 3600.0
"""Budget of a training, which its steps are to end."""


def main() -> None:
    parser = argparse.ArgumentParser(description="What two versions of PPO learn from the same steps.")
    parser.add_argument("--commit", default="HEAD", help="the other version (HEAD)")
    parser.add_argument("--id", default="LunarLander-v3", help="environment (LunarLander-v3)")
    parser.add_argument("--steps", type=int, default=100_000, help="of each training (100000)")
    parser.add_argument("--seeds", type=int, default=8, help="trainings of each version, 2 or more (8)")
    parser.add_argument("--envs", type=int, default=8, help="environments side by side (8)")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    options = parser.parse_args()
    if options.seeds < 2:
        parser.error("an interval takes 2 seeds")
    now = {name: source.read_text() for source, name in trainer_files("ppo")}
    try:
        versions = {"other": (at_commit(options.commit), 1), "now": (now, CORES)}
    except subprocess.CalledProcessError as failed:
        parser.error(f"--commit {options.commit}: {failed.stderr.strip()}")
    found: dict[str, list[dict[str, float]]] = {name: [] for name in versions}
    for seed in range(1, options.seeds + 1):
        for name in sorted(versions, reverse=seed % 2 == 0):
            programs, cores = versions[name]
            config = {"params": {**NORMALIZED, "num_envs": options.envs}, "seed": seed, "cores": cores}
            config |= {"budget_seconds": SECONDS, "budget_steps": options.steps}
            found[name].append(learned(reported(programs, options.id, config)))
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        show(options, found)


def at_commit(commit: str) -> dict[str, str]:
    """The program's files at a commit. Raises CalledProcessError where git does not know one of them."""
    found = {}
    for source, name in trainer_files("ppo"):
        path = source.relative_to(CHECKOUT).as_posix()
        command = ["git", "-C", str(CHECKOUT), "show", f"{commit}:{path}"]
        found[name] = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return found


def learned(lines: list[dict[str, Any]]) -> dict[str, float]:
    """`end` and `mean` of one training."""
    known = [(line["step"], line["metrics"]["return/mean"]) for line in lines if "return/mean" in line["metrics"]]
    steps = [after - before for (before, _), (after, _) in pairwise([(0, 0.0), *known])]
    mean = sum(step * value for step, (_, value) in zip(steps, known, strict=True)) / sum(steps)
    return {"end": known[-1][1], "mean": mean}


def show(options: argparse.Namespace, found: Mapping[str, list[dict[str, float]]]) -> None:
    from scipy import special  # type: ignore[import-untyped]

    about = f"{options.id}, {options.steps} steps, {options.seeds} seeds, {CORES} cores against 1 at {options.commit}"
    table = Table("", "other", "now", "difference [95 %]", title=about)
    for key in ("end", "mean"):
        other, now = ([run[key] for run in found[name]] for name in ("other", "now"))
        apart = [after - before for before, after in zip(other, now, strict=True)]
        half = float(special.stdtrit(len(apart) - 1, 0.975)) * statistics.stdev(apart) / len(apart) ** 0.5
        gain = statistics.fmean(apart)
        words = f"{gain:+.1f} ({gain - half:+.1f} to {gain + half:+.1f})"
        table.add_row(key, f"{statistics.fmean(other):.1f}", f"{statistics.fmean(now):.1f}", words)
    Console(highlight=False).print(table)


if __name__ == "__main__":
    main()

"""A published headline, repeated: BipedalWalker from 135.6 to 296.6 in 30 trials.

    python -m benchmarks.headline start|best|original [--budget 720] [--seeds 5] [--envpool] [--checkout FOLDER]
    python -m benchmarks.headline table

zjianyi/autoRL (read at commit 41000d2) reports one run of each configuration, with a fixed seed, of twelve minutes.
Here each is run several times, with seeds of its own, judged by 100 episodes that are drawn anew: `start`; `best`, as
far as it was published; `original`, the published program itself, imported from a clone of the repository (nothing of
it is kept here). `table` computes every table from the CSV file alone. The environment is published_walker, which
`nightshift run` and benchmarks.search_hours search; `--envpool` trains with EnvPool on one core.

The best configuration was never committed: a chart names what each kept experiment changed, some labels are cut off.
What it does not say is taken to be as at the start. Our program differs in this: it standardises advantages in each
rollout, not each minibatch; it never clips the value loss; it bootstraps episodes that were cut off; the deviation of
its actions is free.

Each run that has ended is a row in --store and is not run again. --budget is in seconds of training.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.box import MARKDOWN

from benchmarks.campaigns import HOMES, RESULTS, Rows, commit, machine, nightshift, resumable, today
from benchmarks.tables import show

BUDGET_SECONDS, EPISODES, CONFIDENCE = 720, 100, 0.95
PUBLISHED = {"start": 135.6, "original": 135.6, "best": 296.6}
"""One run each, seed 1 and seed 42; the best is the record of 30 experiments."""
WALKER = Path(__file__).with_name("published_walker")
BEST = {"num_envs": 256, "epochs": 15, "hidden": 512, "normalize_observations": True, "normalize_rewards": True}
"""What the chart says that the best one changed and a parameter can say; its three ELU layers are an edit."""
ENVPOOL = ("--set", "cores=1", "--set", "fixed.simulator=envpool")


@dataclass(frozen=True)
class RunRow:
    """One training run with fresh seeds and its score by our judge."""

    stage: str
    """`repeat`; of older versions also `certificate`, of a campaign's, and `transfer`, of its champion's on a robot."""
    configuration: str
    """`start`, `best` or `original`; elsewhere `champion` or `baseline`."""
    campaign: str
    """Of the champion or certificate; else empty."""
    environment: str
    budget_seconds: float
    run: int
    """The training seed; in a certificate the number of the run in its arm, from 1 on."""
    score: float | None
    """Mean return of the episodes, actions not drawn; empty where there is none."""
    episodes: int | None
    steps: int | None
    """Steps of the environment in training."""
    seconds: float | None
    """Of training."""
    error: str
    """Why there is no score."""
    machine: str
    commit: str
    date: str


def repeat(kept: Rows[RunRow], options: argparse.Namespace) -> None:
    """Train and judge a configuration with the seeds from 1 on, but those that are done."""
    configuration, budget, folder = options.configuration, options.budget, WALKER
    problem = "envpool" if options.envpool else "walker"
    stated = ["--set", f"budget_seconds={budget:g}", "--set", f"control.episodes={options.episodes}"]
    if configuration == "original":
        problem, folder = "original", options.home / "original"
        if not folder.exists():
            options.home.mkdir(parents=True, exist_ok=True)
            nightshift(options.home, "env", "import", str(options.checkout), "--to", str(folder), "--trust", "--json")
    elif configuration == "best":
        stated += ["--params", json.dumps(BEST), "--diff", str(WALKER / "best.diff")]
    stated += ENVPOOL if options.envpool else ()
    asked = ("repeat", problem, configuration, budget)
    done = {
        row.run for row in kept.rows if (row.stage, row.environment, row.configuration, row.budget_seconds) == asked
    }
    for seed in sorted(set(range(1, options.seeds + 1)) - done):
        found = nightshift(options.home, "try", str(folder), *stated, "--seed", str(seed), "--trust", "--json")
        score = None if found["score"] is None else round(found["score"], 4)  # far finer than the noise
        row = RunRow(
            "repeat", configuration, "", problem, budget, seed, score, found["n"] or None, found["steps"],
            round(found["seconds"], 1), found["error"] or "", machine(), commit(), today(),
        )  # fmt: skip
        kept.add(row)


def table(runs: Sequence[RunRow]) -> list[list[str]]:
    """A line for the fresh runs of each configuration; the published scores beside runs of the published budget."""
    groups: dict[tuple[str, float, str, str, str], list[RunRow]] = {}
    for row in runs:
        key = row.stage, row.budget_seconds, row.environment, row.campaign, row.configuration
        groups.setdefault(key, []).append(row)
    lines = []
    for (stage, budget, problem, campaign, configuration), rows in sorted(groups.items()):
        scores = [row.score for row in rows if row.score is not None]
        mean = f"{statistics.fmean(scores):.1f}" if scores else "no score"
        sd = f"{statistics.stdev(scores):.1f}" if len(scores) > 1 else ""
        lines.append([
            f"{stage} {campaign}".rstrip(), problem, f"{budget:g}", configuration, str(len(scores)),
            str(len(rows) - len(scores)), mean, sd, at_least(scores), " ".join(f"{score:.1f}" for score in scores),
            str(PUBLISHED.get(configuration, "")) if budget == BUDGET_SECONDS else "",
        ])  # fmt: skip
    return lines


def at_least(scores: Sequence[float]) -> str:
    """One-sided 95 % lower bound of the mean by Student's t; empty of fewer than two runs."""
    from scipy.stats import t  # type: ignore[import-untyped]

    if len(scores) < 2:
        return ""
    error = statistics.stdev(scores) / math.sqrt(len(scores))
    return f"{statistics.fmean(scores) - float(t.ppf(CONFIDENCE, len(scores) - 1)) * error:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description="A published headline, repeated.")
    parser.add_argument("configuration", choices=("start", "best", "original", "table"))
    parser.add_argument("--envpool", action="store_true", help="train with EnvPool on one core")
    parser.add_argument("--budget", type=float, default=float(BUDGET_SECONDS), help="seconds of training of each run")
    parser.add_argument("--seeds", type=int, default=5, help="runs, with the seeds from 1 on")
    parser.add_argument("--episodes", type=int, default=EPISODES, help="of each judgement; with fewer, another --store")
    parser.add_argument("--checkout", type=Path, help="a clone of zjianyi/autoRL")
    parser.add_argument("--store", type=Path, default=RESULTS, help="folder of the CSV file")
    parser.add_argument("--home", type=Path, default=HOMES / "headline", help="home of the runs")
    options = parser.parse_args()
    if options.configuration == "original" and options.checkout is None:
        parser.error("the original program is imported from its repository: name a clone with --checkout")
    options.home = options.home.absolute()
    kept = Rows(options.store / "headline_runs.csv", RunRow)
    if options.configuration != "table":
        with resumable():
            repeat(kept, options)
    columns = ("runs", "problem", "budget, s", "configuration", "n", "failed", "mean", "sd", "at least (95 %)", "each",
               "published, one run")  # fmt: skip
    show(columns, table(kept.rows), box=MARKDOWN)


if __name__ == "__main__":
    main()

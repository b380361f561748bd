"""A published headline, repeated: BipedalWalker from 135.6 to 296.6 in 30 trials.

    python -m benchmarks.headline problem --budget 120 [--problem walker|envpool|original] [--checkout FOLDER]
    python -m benchmarks.headline repeat --config start|best|original --budget 720 --seeds 5 [--problem envpool]
    python -m benchmarks.headline table

zjianyi/autoRL (read at commit 41000d2) reports one run of each configuration, with a fixed seed, of twelve minutes.
Here each is run several times, with seeds of its own, judged by 100 episodes that are drawn anew. `--problem envpool`
is the walker trained with EnvPool on one core.

problem     write the environment of a campaign from the published start, for other commands, and print its folder
repeat      fresh runs of a published configuration: `start`; `best`, as far as it was published; `original`, the
            published program itself, imported from a clone of the repository (nothing of it is kept here)
table       every table, computed from the CSV file alone

The best configuration was never committed: a chart names what each kept experiment changed, some labels are cut off.
What it does not say is taken to be as at the start. Our program differs in this: it standardises advantages in each
rollout, not each minibatch; it never clips the value loss; it bootstraps episodes that were cut off; the deviation of
its actions is free.

Each run that has ended is a row in --store and is not run again. --budget is in seconds of training, by default the
published 720.
"""

from __future__ import annotations

import argparse
import difflib
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit
from rich.box import MARKDOWN

import environments
from benchmarks.campaigns import CHECKOUT, HOMES, RESULTS, Rows, commit, machine, nightshift, resumable, today
from benchmarks.tables import show
from environments.space import Value

BUDGET_SECONDS, EPISODES, CONFIDENCE = 720, 100, 0.95
PUBLISHED = {"start": 135.6, "best": 296.6}
"""One run each, seed 1 and seed 42; the best is the record of 30 experiments."""
START: dict[str, Value] = {
    "learning_rate": 2.5e-4, "num_envs": 4, "num_steps": 128, "epochs": 4, "minibatches": 4, "gamma": 0.99,
    "gae_lambda": 0.95, "clip": 0.2, "entropy": 0.01, "value_coef": 0.25, "max_grad_norm": 0.5, "hidden": 64,
    "anneal": True, "normalize_observations": False, "normalize_rewards": False,
}  # fmt: skip
"""Its train.py in the parameters of our program. Its squared error is halved before it is weighed by 0.5: 0.25 here."""
BEST: dict[str, Value] = {
    "num_envs": 256, "epochs": 15, "hidden": 512, "normalize_observations": True, "normalize_rewards": True,
}  # fmt: skip
"""What the chart says that the best one changed and a parameter can say; its three ELU layers are an edit."""
PROGRAM = CHECKOUT / "tasks/trainers/ppo.py"
WALKERS: dict[str, dict[str, Any]] = {"walker": {}, "envpool": {"cores": 1, "fixed": {"simulator": "envpool"}}}
"""Changes of environment.toml: as it is, or trained with EnvPool on one core, so that two runs go on side by side."""
SPACE: dict[str, dict[str, Any]] = {
    "learning_rate": {"type": "float", "low": 1e-4, "high": 3e-3, "log": True},
    "num_envs": {"type": "choice", "values": [4, 8, 16, 32, 64, 128, 256]},
    "num_steps": {"type": "choice", "values": [128, 256, 512, 1024]},
    "epochs": {"type": "int", "low": 2, "high": 15},
    "minibatches": {"type": "choice", "values": [4, 8, 16, 32]},
    "gamma": {"type": "choice", "values": [0.98, 0.99, 0.995, 0.999]},
    "gae_lambda": {"type": "choice", "values": [0.9, 0.95, 0.98]},
    "entropy": {"type": "float", "low": 0.0, "high": 0.02},
    "hidden": {"type": "choice", "values": [64, 128, 256, 512]},
    "normalize_observations": {"type": "choice", "values": [False, True]},
    "normalize_rewards": {"type": "choice", "values": [False, True]},
}
"""Around the start, wide enough for what parameters can say of the published best."""
NETWORKS = {
    "layers = [nn.Linear(inputs, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, outputs)]": "layers = ["
    "nn.Linear(inputs, hidden), *(nn.Linear(hidden, hidden) for _ in range(2)), nn.Linear(hidden, outputs)]",
    "(math.sqrt(2), math.sqrt(2), gain)": "(*[math.sqrt(2)] * 3, gain)",
    "return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])": "return nn.Sequential("
    "layers[0], nn.ELU(), layers[1], nn.ELU(), layers[2], nn.ELU(), layers[3])",
}
"""The published best's three ELU layers, in place of what our program says."""
CONFIGURATIONS = ("start", "best", "original")


@dataclass(frozen=True)
class RunRow:
    """One training run with fresh seeds and its score by our judge."""

    stage: str
    """`repeat`; of older versions also `certificate`, of a campaign's, and `transfer`, of its champion's on a robot."""
    configuration: str
    """One of CONFIGURATIONS; elsewhere `champion` or `baseline`."""
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


def folder_of(problem: str, budget: float, options: argparse.Namespace) -> Path:
    """The folder of a walker, or of what `nightshift env import` makes of the original, which runs as it is."""
    problems = options.home / "problems"
    if problem != "original":
        return walker(problems, budget, options.episodes, problem)
    place: Path = problems / "original"
    if not place.exists():
        problems.mkdir(parents=True, exist_ok=True)
        nightshift(options.home, "env", "import", str(options.checkout), "--to", str(place), "--trust", "--json")
    return place


def walker(problems: Path, budget: float, episodes: int = EPISODES, name: str = "walker") -> Path:
    """The folder of BipedalWalker from the published start, for a name of WALKERS."""
    document = tomlkit.parse((environments.find("bipedal_walker") / "environment.toml").read_text()).unwrap()
    document.pop("variants", None)
    changes = dict(WALKERS[name])
    fixed = changes.pop("fixed", {})
    document["control"] = {"id": "BipedalWalker-v3", "episodes": episodes, "other_episodes": 0, "deterministic": True}
    document |= {"title": "BipedalWalker-v3 from the published start", "budget_seconds": float(budget), **changes}
    document["space"] = {key: {**parameter, "default": START[key]} for key, parameter in SPACE.items()}
    document["fixed"] = {**{key: value for key, value in START.items() if key not in SPACE}, **fixed}
    place = problems / f"{name}_{budget:g}"
    place.mkdir(parents=True, exist_ok=True)
    (place / "environment.toml").write_text(tomlkit.dumps(document))
    (place / "program.md").write_text(
        "# BipedalWalker-v3\n\nThe baseline is the configuration that github.com/zjianyi/autoRL starts from, in our "
        "PPO program, as far as its parameters can say it.\n"
    )
    return place


def best_edit() -> str:
    """Our program with the networks of the published best, as a unified diff.

    Raises:
        ValueError: the program does not read as it did, so that the edit has to be written anew.
    """
    before = after = PROGRAM.read_text()
    for old, new in NETWORKS.items():
        if after.count(old) != 1:
            raise ValueError(f"{PROGRAM.name} does not say {old!r} exactly once: write the edit of the best anew")
        after = after.replace(old, new)
    lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), "a/train.py", "b/train.py")
    return "".join(lines)


def repeat(kept: Rows[RunRow], options: argparse.Namespace) -> None:
    """Train and judge a configuration with the seeds from 1 on, but those that are done."""
    configuration, budget = options.config, options.budget
    problem = "original" if configuration == "original" else options.problem
    stated = [str(folder_of(problem, budget, options))]
    if problem == "original":  # ours states these itself
        stated += ["--set", f"budget_seconds={budget:g}", "--set", f"control.episodes={options.episodes}"]
    if configuration == "best":
        edit = options.home / "best.diff"
        edit.write_text(best_edit())
        stated += ["--params", json.dumps(BEST), "--diff", str(edit)]
    asked = ("repeat", problem, configuration, budget)
    done = {
        row.run for row in kept.rows if (row.stage, row.environment, row.configuration, row.budget_seconds) == asked
    }
    for seed in sorted(set(range(1, options.seeds + 1)) - done):
        found = nightshift(options.home, "try", *stated, "--seed", str(seed), "--trust", "--json")
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
        published = PUBLISHED.get("start" if configuration == "original" else configuration, "")
        lines.append([
            f"{stage} {campaign}".rstrip(), problem, f"{budget:g}", configuration, str(len(scores)),
            str(len(rows) - len(scores)), mean, sd, at_least(scores), " ".join(f"{score:.1f}" for score in scores),
            str(published) if budget == BUDGET_SECONDS and stage == "repeat" else "",
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
    options = parsed()
    if options.command == "problem":
        print(folder_of(options.problem, options.budget, options))
        return
    kept = Rows(options.store / "headline_runs.csv", RunRow)
    if options.command == "repeat":
        with resumable():
            repeat(kept, options)
    columns = ("runs", "problem", "budget, s", "configuration", "n", "failed", "mean", "sd", "at least (95 %)", "each",
               "published, one run")  # fmt: skip
    show(columns, table(kept.rows), box=MARKDOWN)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A published headline, repeated.")
    parser.add_argument("command", choices=("problem", "repeat", "table"))
    parser.add_argument("--config", choices=CONFIGURATIONS, default="start")
    parser.add_argument("--problem", choices=(*WALKERS, "original"), default="walker")
    parser.add_argument("--budget", type=float, default=float(BUDGET_SECONDS), help="seconds of training of each run")
    parser.add_argument("--seeds", type=int, default=5, help="runs, with the seeds from 1 on")
    parser.add_argument("--episodes", type=int, default=EPISODES, help="of each judgement; with fewer, another --store")
    parser.add_argument("--checkout", type=Path, help="a clone of zjianyi/autoRL")
    parser.add_argument("--store", type=Path, default=RESULTS, help="folder of the CSV file")
    parser.add_argument("--home", type=Path, default=HOMES / "headline", help="folder of problems and runs")
    options = parser.parse_args()
    if options.budget <= 0:
        parser.error(f"--budget must be more than 0 seconds, got {options.budget:g}")
    if "original" in (options.config, options.problem) and options.checkout is None:
        parser.error("the original program is imported from its repository: name a clone with --checkout")
    options.home, options.store = options.home.absolute(), options.store.absolute()
    return options


if __name__ == "__main__":
    main()

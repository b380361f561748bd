"""A published headline, repeated: BipedalWalker from 135.6 to 296.6 in 30 trials.

    python -m benchmarks.headline problem --budget 120 [--problem walker|envpool]
    python -m benchmarks.headline repeat --config start|best|original --budget 720 --seeds 5 [--checkout FOLDER]
    python -m benchmarks.headline repeat --config champion --campaign NAME --budget 720 --seeds 5
    python -m benchmarks.headline campaigns --budget 240 --trials 12 [--proposer tpe] [--seeds 1 2 3]
        [--problem walker|envpool|original] [--checkout FOLDER]
    python -m benchmarks.headline table

zjianyi/autoRL (read at commit 41000d2) reports one run of each configuration, with a fixed seed, of twelve minutes.
Here each is run several times, with seeds of its own, judged by 100 episodes that are drawn anew. `--problem envpool`
is the walker trained with EnvPool on one core.

problem     write the environment of a campaign from the published start, for other commands, and print its folder
repeat      fresh runs of a published configuration: `start`; `best`, as far as it was published; `original`, the
            published program itself, imported from a clone of the repository (nothing of it is kept here); `champion`,
            the parameters that a campaign found, at any budget
campaigns   campaigns from the published start, each with a certificate at its end
table       every table, computed from the CSV files alone

The best configuration was never committed: a chart names what each kept experiment changed, some labels are cut off.
What it does not say is taken to be as at the start. Our program differs in this: it standardises advantages in each rollout,
not each minibatch; it never clips the value loss; it bootstraps episodes that were cut off; its deviation is free.

Everything that has ended is a row in --store (benchmarks/results) and is not run again; campaigns live in --home and
go on where they were cut off. --budget is in seconds of training, by default the published 720.
"""

from __future__ import annotations

import argparse
import difflib
import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit
from rich.box import MARKDOWN

import environments
from benchmarks.campaigns import (
    CHECKOUT,
    HOMES,
    RESULTS,
    CommandFailed,
    Rows,
    commit,
    figures,
    machine,
    nightshift,
    resumable,
    today,
)
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
CONFIGURATIONS = ("start", "best", "original", "champion")


@dataclass(frozen=True)
class RunRow:
    """One training run with fresh seeds and its score by our judge."""

    stage: str
    """`repeat`: by itself; `certificate`: of a campaign's; `transfer`: of a champion's on a robot (of an older version)."""
    configuration: str
    """One of CONFIGURATIONS; in a certificate `champion` or `baseline`."""
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


@dataclass(frozen=True)
class SearchRow:
    """One campaign that has ended."""

    campaign: str
    problem: str
    """A name of WALKERS, our program from the published start; or `original`, the published program."""
    proposer: str
    budget_seconds: float
    seed: int
    trials: int
    hours: float
    baseline: float | None
    """Mean of the baseline's runs in the search."""
    champion: float | None
    """The record of the search, the best of many runs."""
    champion_trial: int
    shipped_trial: int | None
    """0: the baseline ships."""
    gain: float | None
    """Of the certificate."""
    at_least: float | None
    """Its one-sided 95 % bound."""
    p: float | None
    reason: str
    """Why there is no certificate, or why the campaign failed."""
    params: str
    """The champion's, as JSON."""
    machine: str
    commit: str
    date: str


@dataclass(frozen=True)
class Workplace:
    """Where the campaigns are, and where their figures go."""

    folder: Path
    results: Path
    episodes: int
    checkout: Path | None
    """Of the original repository."""

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def runs(self) -> Rows[RunRow]:
        return Rows(self.results / "headline_runs.csv", RunRow)

    @property
    def campaigns(self) -> Rows[SearchRow]:
        return Rows(self.results / "headline_campaigns.csv", SearchRow)

    def problem(self, name: str, budget: float) -> Path:
        """The folder of a walker, or of what `nightshift env import` makes of the original, which runs as it is."""
        problems = self.folder / "problems"
        if name != "original":
            return walker(problems, budget, self.episodes, name)
        place = problems / "original"
        if not place.exists():
            problems.mkdir(parents=True, exist_ok=True)
            nightshift(self.home, "env", "import", str(self.checkout), "--to", str(place), "--trust", "--json")
        return place

    def limits(self, problem: str, budget: float) -> tuple[str, ...]:
        """Options that give a folder of the original the budget and the episodes, which ours states itself."""
        if problem != "original":
            return ()
        return "--set", f"budget_seconds={budget:g}", "--set", f"control.episodes={self.episodes}"


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
        "# BipedalWalker-v3\n\nThe baseline is the configuration that github.com/zjianyi/autoRL starts from, in our PPO "
        "program, as far as its parameters can say it.\n"
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


def repeat(place: Workplace, problem: str, configuration: str, campaign: str, budget: float, seeds: int) -> None:
    """Train and judge a configuration with the seeds 1 to `seeds`, but those that are done.

    Raises:
        CommandFailed: the champion of a campaign is asked for that has none.
    """
    environment, stated = place.problem(problem, budget), tuple[str, ...]()
    if configuration == "best":
        edit = place.folder / "best.diff"
        edit.write_text(best_edit())
        stated = "--params", json.dumps(BEST), "--diff", str(edit)
    elif configuration == "champion":
        stated = "--params", champion_of(place, campaign)
    kept, asked = place.runs, ("repeat", problem, configuration, campaign, budget)
    done = {
        row.run
        for row in kept.rows
        if (row.stage, row.environment, row.configuration, row.campaign, row.budget_seconds) == asked
    }
    for seed in sorted(set(range(1, seeds + 1)) - done):
        found = nightshift(
            place.home, "try", str(environment), *stated, "--seed", str(seed), "--trust", "--json",
            *place.limits(problem, budget),
        )  # fmt: skip
        row = RunRow(
            "repeat", configuration, campaign, problem, budget, seed, rounded(found["score"]), found["n"] or None,
            found["steps"], round(found["seconds"], 1), found["error"] or "", machine(), commit(), today(),
        )  # fmt: skip
        kept.add(row)


def champion_of(place: Workplace, campaign: str) -> str:
    """The parameters of a campaign's champion, as JSON."""
    for row in place.campaigns.rows:
        if row.campaign == campaign and row.champion_trial:
            return row.params
    raise CommandFailed(f"{campaign} is not among the campaigns that are kept, or has no champion")


def campaign(place: Workplace, problem: str, budget: float, trials: int, hours: float, proposer: str, seed: int) -> None:
    """Run or resume one campaign to its end and keep its rows."""
    name, kept = f"{problem}-{budget:g}s-{proposer}-{trials}-{seed}", place.campaigns
    if any(row.campaign == name for row in kept.rows):
        return
    found = figures(
        nightshift(
            place.home, "run", str(place.problem(problem, budget)), "--proposer", proposer, "--trials", str(trials),
            "--name", name, "--seed", str(seed), "--hours", f"{hours:g}", "--trust", "--json",
            *place.limits(problem, budget),
        )
    )  # fmt: skip
    runs = place.runs
    if not any((row.campaign, row.stage) == (name, "certificate") for row in runs.rows):
        arms = {"champion": found.champions, "baseline": found.baselines}
        runs.add(*(
            RunRow(
                "certificate", arm, name, problem, budget, number, rounded(score), None, None, None,
                "" if score is not None else "no score", machine(), commit(), today(),
            )
            for arm, scores in arms.items()
            for number, score in enumerate(scores, 1)
        ))  # fmt: skip
    kept.add(
        SearchRow(
            campaign=name, problem=problem, proposer=proposer, budget_seconds=budget, seed=seed, trials=found.trials,
            hours=found.hours, baseline=found.baseline, champion=found.champion, champion_trial=found.trial,
            shipped_trial=found.shipped, gain=found.gain, at_least=found.at_least, p=found.p, reason=found.reason,
            params=found.params, machine=machine(), commit=commit(), date=today(),
        )
    )  # fmt: skip


def rounded(score: float | None) -> float | None:
    """A score as it is kept: far finer than the noise."""
    return None if score is None else round(score, 4)


@dataclass(frozen=True)
class Summary:
    """Fresh runs of one configuration."""

    scores: tuple[float, ...]
    failed: int
    """Runs without a score, which the mean leaves out and the table counts."""

    @classmethod
    def of(cls, rows: Iterable[RunRow]) -> Summary:
        scores = [row.score for row in rows]
        known = tuple(score for score in scores if score is not None)
        return cls(known, len(scores) - len(known))

    @property
    def mean(self) -> float:
        return statistics.fmean(self.scores) if self.scores else math.nan

    @property
    def sd(self) -> float:
        return statistics.stdev(self.scores) if len(self.scores) > 1 else math.nan

    @property
    def at_least(self) -> float:
        """One-sided lower bound of the mean by Student's t; NaN of fewer than two runs."""
        from scipy.stats import t  # type: ignore[import-untyped]

        count = len(self.scores)
        return self.mean - float(t.ppf(CONFIDENCE, count - 1)) * self.sd / math.sqrt(count) if count > 1 else math.nan


def repeats(runs: Sequence[RunRow]) -> list[list[str]]:
    """Fresh runs of the published configurations, and of champions: a line for each."""
    groups: dict[tuple[float, int, str, str], list[RunRow]] = {}
    for row in runs:
        if row.stage == "repeat":
            order = CONFIGURATIONS.index(row.configuration)
            groups.setdefault((row.budget_seconds, order, row.campaign, row.environment), []).append(row)
    lines = []
    for (budget, order, name, problem), rows in sorted(groups.items()):
        found, configuration = Summary.of(rows), CONFIGURATIONS[order]
        published = PUBLISHED["best" if configuration in ("best", "champion") else "start"]
        lines.append([
            f"{configuration} {name}".rstrip(), problem, f"{budget:g}", str(len(found.scores)), str(found.failed),
            number(found.mean), number(found.sd), number(found.at_least),
            f"{min(found.scores):.1f} .. {max(found.scores):.1f}" if found.scores else "",
            f"{published}" if budget == BUDGET_SECONDS else "",
        ])  # fmt: skip
    return lines


def searches(campaigns: Sequence[SearchRow], runs: Sequence[RunRow]) -> list[list[str]]:
    """What each campaign reported, and what its fresh runs say."""
    lines = []
    for one in campaigns:
        mine = [row for row in runs if (row.campaign, row.stage) == (one.campaign, "certificate")]
        arms = [Summary.of(row for row in mine if row.configuration == arm) for arm in ("champion", "baseline")]
        fresh = [f"{arm.mean:.1f} (n = {len(arm.scores)})" if arm.scores else "" for arm in arms]
        ships = {None: "nothing", 0: "baseline"}.get(one.shipped_trial, f"trial {one.shipped_trial}")
        lines.append([
            one.campaign, str(one.trials), f"{one.hours:.1f}", number(one.baseline), number(one.champion), *fresh,
            number(one.gain) if one.shipped_trial else "no", number(one.at_least),
            "" if one.p is None else f"{one.p:.2g}", ships,
        ])  # fmt: skip
    return lines


def number(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.1f}"


def main() -> None:
    options = parsed()
    checkout = options.checkout.absolute() if options.checkout else None
    place = Workplace(options.home.absolute(), options.store.absolute(), options.episodes, checkout)
    if options.command == "problem":
        print(place.problem(options.problem, options.budget))
        return
    with resumable():
        if options.command == "repeat":
            problem = "original" if options.config == "original" else options.problem
            repeat(place, problem, options.config, options.campaign, options.budget, options.seeds)
        elif options.command == "campaigns":
            for seed in options.seeds:
                campaign(
                    place, options.problem, options.budget, options.trials, options.hours, options.proposer, seed
                )
    runs, campaigns = place.runs.rows, place.campaigns.rows
    columns = ("configuration", "problem", "budget, s", "runs", "failed", "mean", "sd", "mean at least (95 %)",
               "lowest .. highest", "published, one run")  # fmt: skip
    show(columns, repeats(runs), box=MARKDOWN)
    columns = ("campaign", "trials", "hours", "baseline", "record of the search", "fresh: champion", "fresh: baseline",
               "certified", "at least (95 %)", "p", "ships")  # fmt: skip
    show(columns, searches(campaigns, runs), box=MARKDOWN)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A published headline, repeated.")
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--store", type=Path, default=RESULTS, help="folder of the CSV files")
    shared.add_argument("--home", type=Path, default=HOMES / "headline", help="folder of campaigns and problems")
    shared.add_argument("--checkout", type=Path, help="a clone of zjianyi/autoRL")
    shared.add_argument("--budget", type=float, default=float(BUDGET_SECONDS), help="seconds of training of each run")
    shared.add_argument("--episodes", type=int, default=EPISODES, help="of each judgement; with fewer, another --store")
    commands = parser.add_subparsers(dest="command", required=True)
    problem = commands.add_parser("problem", parents=[shared], help="write the environment of such a campaign")
    again = commands.add_parser("repeat", parents=[shared], help="fresh runs of a published configuration")
    search = commands.add_parser("campaigns", parents=[shared], help="campaigns from the published start")
    commands.add_parser("table", parents=[shared], help="every table, from the CSV files alone")
    for command in (problem, again, search):
        choices = (*WALKERS, "original") if command is search else tuple(WALKERS)
        command.add_argument("--problem", choices=choices, default="walker")
    again.add_argument("--config", choices=CONFIGURATIONS, default="start")
    again.add_argument("--campaign", default="", help="whose champion")
    again.add_argument("--seeds", type=int, default=5, help="runs, with the seeds from 1 on")
    search.add_argument("--proposer", default="tpe", help="one of Nightshift's")
    search.add_argument("--trials", type=int, default=12)
    search.add_argument("--hours", type=float, default=24.0, help="of each campaign at most")
    search.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options = parser.parse_args()
    if options.budget <= 0:
        parser.error(f"--budget must be more than 0 seconds, got {options.budget:g}")
    if options.command == "repeat" and (options.config == "champion") != bool(options.campaign):
        parser.error("--config champion and --campaign NAME need each other")
    if "original" in (getattr(options, "config", ""), getattr(options, "problem", "")) and options.checkout is None:
        parser.error("the original program is imported from its repository: name a clone with --checkout")
    return options


if __name__ == "__main__":
    main()

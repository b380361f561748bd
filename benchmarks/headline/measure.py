"""What is run for the headline, and the rows that are kept of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.campaigns import CommandFailed, Rows, commit, figures, machine, nightshift, today
from benchmarks.headline import problems
from benchmarks.headline.facts import EPISODES

RUNS, CAMPAIGNS = "headline_runs.csv", "headline_campaigns.csv"
CHAMPION = "champion"
PUBLISHED = "published"
"""In the place of a proposer: the published best is tried, and nothing else."""


@dataclass(frozen=True)
class RunRow:
    """One training run with fresh seeds and its score by our judge."""

    stage: str
    """`repeat`: by itself; `certificate`: of a campaign's; `transfer`: of its champion's in another environment."""
    configuration: str
    """`start`, `best`, `original` or `champion`; in a certificate `champion` or `baseline`."""
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
    """A name of problems.WALKERS, our program from the published start; or `original`, the published program."""
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
    episodes: int = EPISODES
    checkout: Path | None = None
    """Of the original repository."""

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def problems(self) -> Path:
        return self.folder / "problems"

    @property
    def runs(self) -> Rows[RunRow]:
        return Rows(self.results / RUNS, RunRow)

    @property
    def campaigns(self) -> Rows[SearchRow]:
        return Rows(self.results / CAMPAIGNS, SearchRow)

    def problem(self, name: str, budget: float) -> Path:
        """The folder of a walker or `original`. Raises ValueError without the checkout that it is made of."""
        if name != "original":
            return problems.walker(self.problems, budget, self.episodes, name)
        if self.checkout is None:
            raise ValueError("the original program is imported from its repository: name a clone with --checkout")
        return problems.original(self.problems, self.checkout, self.home)

    def limits(self, problem: str, budget: float) -> tuple[str, ...]:
        """Options that give a folder of the original the budget and the episodes, which ours states itself."""
        if problem != "original":
            return ()
        return "--set", f"budget_seconds={budget:g}", "--set", f"control.episodes={self.episodes}"


def repeat(place: Workplace, problem: str, configuration: str, campaign: str, budget: float, seeds: int) -> None:
    """Train and judge a configuration with the seeds 1 to `seeds`, but those that are done.

    Raises:
        CommandFailed: the champion of a campaign is asked for that has none.
    """
    problem = "original" if configuration == "original" else problem
    environment = place.problem(problem, budget)
    stated = problems.configuration(configuration, place.problems)
    if configuration == CHAMPION:
        stated = "--params", _champion(place, campaign)
    kept = place.runs
    asked = (problem, configuration, campaign, budget)
    done = {
        row.run
        for row in kept.rows
        if row.stage == "repeat" and (row.environment, row.configuration, row.campaign, row.budget_seconds) == asked
    }
    for seed in range(1, seeds + 1):
        if seed in done:
            continue
        found = nightshift(
            place.home, "try", str(environment), *stated, "--seed", str(seed), "--trust", "--json",
            *place.limits(problem, budget),
        )  # fmt: skip
        row = RunRow(
            "repeat", configuration, campaign, problem, budget, seed, _rounded(found["score"]), found["n"] or None,
            found["steps"], round(found["seconds"], 1), found["error"] or "", machine(), commit(), today(),
        )  # fmt: skip
        kept.add(row)


def _champion(place: Workplace, campaign: str) -> str:
    """The parameters of a campaign's champion, as JSON."""
    for row in place.campaigns.rows:
        if row.campaign == campaign and row.champion_trial:
            if row.proposer == PUBLISHED:
                raise CommandFailed(f"the champion of {campaign} is the published best: repeat --config best")
            return row.params
    raise CommandFailed(f"{campaign} is not among the campaigns of {CAMPAIGNS}, or has no champion")


def campaign(place: Workplace, problem: str, budget: float, trials: int, hours: float, proposer: str, seed: int) -> str:
    """Run or resume one campaign to its end and keep its rows; its name."""
    name = f"{problem}-{budget:g}s-{proposer}-{trials}-{seed}"
    kept = place.campaigns
    if any(row.campaign == name for row in kept.rows):
        return name
    folder = place.problem(problem, budget)
    asked: tuple[str, ...] = (str(folder), "--proposer", proposer, "--trials", str(trials))
    if proposer == PUBLISHED:
        asked = (str(problems.published(folder)),)
    found = figures(
        nightshift(
            place.home, "run", *asked, "--name", name, "--seed", str(seed), "--hours", f"{hours:g}", "--trust",
            "--json", *place.limits(problem, budget),
        )
    )  # fmt: skip
    runs = place.runs
    stored = {(row.campaign, row.stage) for row in runs.rows}
    if (name, "certificate") not in stored:
        arms = {"champion": found.champions, "baseline": found.baselines}
        runs.add(*_fresh("certificate", name, problem, budget, arms))
    kept.add(
        SearchRow(
            campaign=name, problem=problem, proposer=proposer, budget_seconds=budget, seed=seed, trials=found.trials,
            hours=found.hours, baseline=found.baseline, champion=found.champion, champion_trial=found.trial,
            shipped_trial=found.shipped, gain=found.gain, at_least=found.at_least, p=found.p, reason=found.reason,
            params=found.params, machine=machine(), commit=commit(), date=today(),
        )
    )  # fmt: skip
    return name


def transfer(place: Workplace, campaign: str, robots: tuple[str, ...], budget: float, runs: int) -> None:
    """Certify a campaign's champion on robots that start as its baseline did, and keep the fresh runs."""
    kept = place.runs
    done = {
        row.environment for row in kept.rows if (row.stage, row.campaign, row.budget_seconds) == _key(campaign, budget)
    }
    for name in robots:
        if name in done:
            continue
        folder = problems.robot(place.problems, name, budget, place.episodes)
        document = nightshift(
            place.home, "certify", campaign, "--on", str(folder), "--runs", str(runs), "--trust", "--json"
        )
        proof = _proof(document, folder.name)
        arms = {arm: proof[arm]["values"] for arm in ("champion", "baseline")}
        kept.add(*_fresh("transfer", campaign, name, budget, arms))


def _key(campaign: str, budget: float) -> tuple[str, str, float]:
    return "transfer", campaign, budget


def _proof(document: dict[str, Any], environment: str) -> dict[str, Any]:
    """The newest certificate in an environment.

    Raises:
        CommandFailed: there is none.
    """
    found = [one for one in document["transfers"] if one["environment"] == environment]
    if not found:
        raise CommandFailed(
            f"{document['campaign']} has no certificate in {environment}: {json.dumps(document['uncertified'])}"
        )
    proof: dict[str, Any] = found[-1]
    return proof


def _fresh(
    stage: str, campaign: str, environment: str, budget: float, arms: Mapping[str, Sequence[float | None]]
) -> list[RunRow]:
    """The rows of a certificate's runs."""
    return [
        RunRow(
            stage, arm, campaign, environment, budget, number, _rounded(score), None, None, None,
            "" if score is not None else "no score", machine(), commit(), today(),
        )
        for arm, scores in arms.items()
        for number, score in enumerate(scores, 1)
    ]  # fmt: skip


def _rounded(score: float | None) -> float | None:
    """A score as it is kept: far finer than the noise."""
    return None if score is None else round(score, 4)

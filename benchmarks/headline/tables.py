"""The statistics of the headline, computed from the rows of its CSV files, as tables of Markdown."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

from benchmarks.headline.facts import BUDGET_SECONDS, FACTS, PUBLISHED, SOURCE, TRANSFER
from benchmarks.headline.measure import RunRow, SearchRow
from tasks.certifying.aggregate import BootstrapEstimate, Runs, estimates
from tasks.deciding.statistics import CONFIDENCE, pooled

CONFIGURATIONS = ("start", "best", "original", "champion")


@dataclass(frozen=True)
class Summary:
    """Fresh runs of one configuration."""

    scores: tuple[float, ...]
    failed: int
    """Runs without a score, which the mean leaves out and the table counts."""

    @property
    def mean(self) -> float:
        return statistics.fmean(self.scores)

    @property
    def sd(self) -> float:
        return statistics.stdev(self.scores) if len(self.scores) > 1 else math.nan

    @property
    def at_least(self) -> float:
        """One-sided lower bound of the mean by Student's t; NaN of fewer than two runs."""
        from scipy.stats import t  # type: ignore[import-untyped]

        count = len(self.scores)
        return self.mean - float(t.ppf(CONFIDENCE, count - 1)) * self.sd / math.sqrt(count) if count > 1 else math.nan


def summary(rows: Iterable[RunRow]) -> Summary:
    scores = [row.score for row in rows]
    known = tuple(score for score in scores if score is not None)
    return Summary(known, len(scores) - len(known))


def show_facts(console: Console) -> None:
    table = Table("", "published", "says", "here", box=MARKDOWN, title=SOURCE, show_lines=False)
    for fact in FACTS:
        table.add_row(fact.name, fact.there, fact.where, fact.here)
    console.print(table)


def show(runs: Sequence[RunRow], campaigns: Sequence[SearchRow], console: Console) -> None:
    """Every table that there are rows for."""
    if not runs and not campaigns:
        console.print("0 rows: nothing has been measured yet")
    for part in (repeats(runs), searches(campaigns, runs), *transfers(runs)):
        if part is not None and part.row_count:
            console.print(part)


def repeats(runs: Sequence[RunRow]) -> Table:
    """Fresh runs of the published configurations, and of champions."""
    table = Table(
        "configuration", "problem", "budget, s", "runs", "failed", "mean", "sd", "mean at least (95 %)",
        "lowest .. highest", "published", box=MARKDOWN, title="Repeated", caption="published: one run",
    )  # fmt: skip
    mine = [row for row in runs if row.stage == "repeat"]
    for name, campaign, problem, budget in sorted({_repeated(row) for row in mine}, key=_order):
        found = summary(row for row in mine if _repeated(row) == (name, campaign, problem, budget))
        said = PUBLISHED["best" if name in ("best", "champion") else "start"] if budget == BUDGET_SECONDS else None
        table.add_row(
            f"{name} {campaign}".rstrip(),
            problem,
            f"{budget:g}",
            str(len(found.scores)),
            str(found.failed),
            *_described(found),
            "" if said is None else f"{said}",
        )
    return table


def searches(campaigns: Sequence[SearchRow], runs: Sequence[RunRow]) -> Table:
    """What each campaign reported, and what its fresh runs say."""
    table = Table(
        "campaign", "trials", "hours", "baseline", "record of the search", "fresh: champion", "fresh: baseline",
        "certified", "at least (95 %)", "p", "ships", box=MARKDOWN, title="Campaigns",
    )  # fmt: skip
    for one in campaigns:
        arms = [
            summary(
                row
                for row in runs
                if (row.campaign, row.stage, row.configuration) == (one.campaign, "certificate", arm)
            )
            for arm in ("champion", "baseline")
        ]
        fresh = [f"{arm.mean:.1f} (n = {len(arm.scores)})" if arm.scores else "" for arm in arms]
        passed = bool(one.shipped_trial)
        ships = "nothing" if one.shipped_trial is None else f"trial {one.shipped_trial}" if passed else "baseline"
        record = f"{one.champion:.1f}" if one.champion_trial and one.champion is not None else "none"
        base = "crashed" if one.baseline is None else f"{one.baseline:.1f}"
        table.add_row(
            one.campaign, str(one.trials), f"{one.hours:.1f}", base, record, *fresh,
            f"{one.gain:+.1f}" if one.gain is not None and passed else "no",
            "" if one.at_least is None else f"{one.at_least:+.1f}", "" if one.p is None else f"{one.p:.2g}", ships,
        )  # fmt: skip
    return table


def transfers(runs: Sequence[RunRow]) -> list[Table]:
    """Champion and baseline by robot, one table for each campaign and budget."""
    made = []
    for campaign, budget in sorted({(row.campaign, row.budget_seconds) for row in runs if row.stage == "transfer"}):
        table = Table(
            "robot", "baseline", "sd", "champion", "sd", "gain", "runs", "failed", "published", box=MARKDOWN,
            title=f"{campaign} on other robots, {budget:g} s", caption=in_words(runs, campaign, budget),
        )  # fmt: skip
        for name, baseline, champion in arms_of(runs, campaign, budget):
            said = " -> ".join(f"{score:,}" for score in TRANSFER[name]) if name in TRANSFER else ""
            known = baseline.scores and champion.scores
            table.add_row(
                name, *_level(baseline), *_level(champion), f"{champion.mean - baseline.mean:+,.0f}" if known else "",
                f"{len(champion.scores)} v {len(baseline.scores)}", str(champion.failed + baseline.failed), said,
            )  # fmt: skip
        made.append(table)
    return made


def arms_of(runs: Sequence[RunRow], campaign: str, budget: float) -> list[tuple[str, Summary, Summary]]:
    """Baseline and champion of each robot that was run, in the order of the published chart."""
    mine = [row for row in runs if (row.stage, row.campaign, row.budget_seconds) == ("transfer", campaign, budget)]
    names = sorted({row.environment for row in mine}, key=lambda name: (*TRANSFER, name).index(name))

    def arm(robot: str, name: str) -> Summary:
        return summary(row for row in mine if (row.environment, row.configuration) == (robot, name))

    return [(robot, arm(robot, "baseline"), arm(robot, "champion")) for robot in names]


def aggregate(runs: Sequence[RunRow], campaign: str, budget: float) -> BootstrapEstimate | str:
    """The interquartile mean of the gain over the robots in run sds, as `nightshift certify` has it; or why not."""
    champions, baselines = [], []
    for name, baseline, champion in arms_of(runs, campaign, budget):
        if champion.failed:
            return f"fresh runs of the champion have no score on {name}"
        spread = pooled([champion.scores, baseline.scores])
        if min(len(champion.scores), len(baseline.scores)) < 2 or spread is None or not spread.sd:
            return f"too few runs of {name}, or runs that do not differ"
        champions.append(tuple((score - baseline.mean) / spread.sd for score in champion.scores))
        baselines.append(tuple((score - baseline.mean) / spread.sd for score in baseline.scores))
    if len(champions) < 2:
        return "one robot alone"
    arms: tuple[Runs, Runs] = (tuple(champions), tuple(baselines))
    return estimates(*arms)[2]


def in_words(runs: Sequence[RunRow], campaign: str, budget: float) -> str:
    found = aggregate(runs, campaign, budget)
    if isinstance(found, str):
        return f"no interquartile mean: {found}"
    return (
        f"interquartile mean of the gain {found.value:+.2f} run sds (95 % {found.low:+.2f} to {found.high:+.2f}; "
        "too narrow with fewer than eight runs of an arm)"
    )


def _described(found: Summary) -> tuple[str, str, str, str]:
    if not found.scores:
        return "", "", "", ""
    bound = "" if math.isnan(found.at_least) else f"{found.at_least:.1f}"
    return f"{found.mean:.1f}", _sd(found), bound, f"{min(found.scores):.1f} .. {max(found.scores):.1f}"


def _level(found: Summary) -> tuple[str, str]:
    return (f"{found.mean:,.0f}", _sd(found)) if found.scores else ("no score", "")


def _sd(found: Summary) -> str:
    return "" if math.isnan(found.sd) else f"{found.sd:.3g}"


def _repeated(row: RunRow) -> tuple[str, str, str, float]:
    return row.configuration, row.campaign, row.environment, row.budget_seconds


def _order(key: tuple[str, str, str, float]) -> tuple[float, int, str, str]:
    return key[3], CONFIGURATIONS.index(key[0]), key[1], key[2]

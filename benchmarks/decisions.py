"""How often decisions are right: the real rules, early stopping and certificate on simulated environments.

    python -m benchmarks.decisions                  # points and `returns`, with 2,000 null campaigns a cell
    python -m benchmarks.decisions --quick          # the same with a tenth of the campaigns
    python -m benchmarks.decisions --landscape FILE.json --rule certify --runs 60 --campaigns 1000 --json
    python -m benchmarks.decisions --table FILE.csv.gz --baseline 0.8 --proposer random_search --runs 31 --json

Everything that decides is the code that campaigns run (tasks/decide.py, tasks/rules, tasks/cancellers,
tasks/stats/certificate.py); only training and judging are simulated
(benchmarks/simulated.py), or replayed from a table of real runs (benchmarks/replay.py), without Prefect. On points and
on a table a real proposer chooses what is tried. All runs are charged: the baseline's, reruns, certificates, cancelled
ones by the share that was run; --runs is the most that a night may use. Without --landscape or --table those of
benchmarks/landscapes are run, and a table is printed, with the ratio of each true gain to that of greedy. Figures are
in the landscape's own unit of score, a table's in its own.

All rules meet the same functions, and the same luck in their first trials. Without effects random search proposes.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.replay import Table, TableWorld, read_table
from benchmarks.simulated import LOOK, PROPOSERS, Configuration, Landscape, Points, World, grid_of, read, world_of
from environments import Environment, plugins
from environments.judges.command import Command
from environments.plugins import Refused
from environments.score import Score
from tasks.cancellers import Canceller
from tasks.decide import weigh
from tasks.propose import load
from tasks.proposers import Proposer
from tasks.rules import BASELINE_RUNS, JudgedTrial, NeedsRerun, Rule
from tasks.stats.certificate import REUSED, Certificate, Fresh, conclude, counted, searched
from tasks.stats.champion import unpromising
from tasks.stats.design import Arm, Design, alpha_of, design_of
from tasks.trial import TWENTIETHS, EarlyStop, History, Rerun, Run, Trial, Verdict, best

RUNS_OF = {"ideas": (18, 34, 60), "points": (17, 31, 60), "table": (17, 31, 60)}
"""Runs in all, by kind of landscape."""
Row = dict[str, float | int | str]
EPSILON = 1e-6
"""Of sums of shares of the budget."""
STEPS = 1000
"""Steps of a run: the simulated machine does not change its speed."""
BUNDLED = Path(__file__).with_name("landscapes")
QUICK = 10
"""How many times fewer campaigns --quick runs."""
ENVIRONMENT = Environment(
    name="simulated", folder=Path(), metric="score", direction="maximize", trainer="command",
    judge=Command(eval_cmd="{result}"), budget_seconds=1, allow_untrained=True,
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What one campaign came to, and what is true of it."""

    shipped: bool
    """Whether something else than the baseline."""
    claim: float
    """The score that is reported for what ships."""
    truth: float
    """Its expectation."""
    gain: float
    """True gain of what ships over the baseline: in expectation on the set that the claim is about."""
    claimed_gain: float
    covered: bool
    """Whether the certificate's interval holds the true gain."""
    ideas: int
    keeps: int
    false_keeps: int
    runs_used: float
    """In all; a certificate may end before its last group."""


class Campaign:
    """One simulated campaign: the loop of flows/campaign.py, with a world in place of training and judging."""

    def __init__(self, world: World, rule: Rule, canceller: Canceller | None, runs: int) -> None:
        self.world, self.rule, self.canceller = world, rule, canceller
        self.left = float(runs)
        self.used = 0.0
        self.history: History = ()
        self.known: dict[int, Configuration] = {}
        self.keeps = self.false_keeps = 0

    def run(self) -> Outcome:
        runs = round(self.left)
        design = design_of(runs, alpha=alpha_of(()), runs=runs) if self.rule.certifies else None
        self.left -= design.runs - REUSED if design else 0
        self._baseline()
        while self.left > 1 - EPSILON and self._trial():
            pass
        return self._shipped(design)

    def _baseline(self) -> None:
        count = self.rule.baseline_runs(1, deterministic=False)
        self.left -= count
        proposal, self.known[0] = self.world.baseline
        # As many are drawn under any rule, so that the trials after them draw the same.
        pairs = [self._run(self.known[0]) for _ in range(max(count, BASELINE_RUNS))][:count]
        self.used = float(count)
        score = Score.over([score for _, score in pairs])
        self._settle(JudgedTrial(0, proposal, tuple(run for run, _ in pairs), score), Verdict("keep", "baseline"))

    def _trial(self) -> bool:
        """One trial, to its verdict; False when the runs do not last so long, or nothing is left to try."""
        champion, number = best(self.history), len(self.history)
        assert champion is not None, "the baseline was kept"
        found = self.world.propose(self.history, self.known)
        if found is None:
            return False
        proposal, self.known[number] = found
        run, score = self._run(self.known[number])
        if due := self._due(run):
            self.left -= due.fraction
            self.used -= 1 - due.fraction
            seen = run.curve[: round(due.fraction * TWENTIETHS)]
            gone = replace(run, status="cancelled", curve=seen, reported=seen[-1], due=due)
            self._settle(JudgedTrial(number, proposal, (gone,), Score.missing("cancelled", higher_is_better=True)))
            return True
        self.left -= 1
        tried = JudgedTrial(number, proposal, (run,), score)
        while isinstance(wanted := weigh(self.history, ENVIRONMENT, self.rule, tried), NeedsRerun):
            if self.left < 1 - EPSILON:
                tried = replace(tried, is_last=True)
                continue
            self.left -= 1
            again, score = self._run(self.known[number])
            tried = replace(tried, reruns=(*tried.reruns, Rerun(number, again, score)))
        assert isinstance(wanted, Verdict), f"{wanted} was not expected"
        self._settle(tried, wanted)
        if wanted.kind == "keep":
            self.keeps += 1
            self.false_keeps += self.known[number].level <= self.known[champion.number].level
        return True

    def _due(self, run: Run) -> EarlyStop | None:
        if self.canceller is None:
            return None
        for twentieth in range(1, len(run.curve) + 1):
            seen = run.curve[:twentieth]
            if seen[-1] is not None and (reason := self.canceller.look(self.history, seen, higher_is_better=True)):
                return EarlyStop(twentieth / TWENTIETHS, reason)
        return None

    def _run(self, one: Configuration, questions: str = "search") -> tuple[Run, Score]:
        value, curve = self.world.run(one, questions)
        self.used += 1
        return Run("", self.world.seed, 1.0, "finished", steps=STEPS, curve=curve, reported=value), Score(value, n=1)

    def _settle(self, tried: JudgedTrial, verdict: Verdict | None = None) -> None:
        verdict = verdict or weigh(self.history, ENVIRONMENT, self.rule, tried)  # type: ignore[assignment]
        assert isinstance(verdict, Verdict), f"{verdict} was not expected"
        number = len(self.history)
        trial = Trial(number, 1, number, tried.proposal, tried.runs, tried.score, verdict, reruns=tried.reruns)
        self.history = (*self.history, trial)

    def _shipped(self, design: Design | None) -> Outcome:
        champion, baseline = best(self.history), self.history[0]
        assert champion is not None, "the baseline was kept"
        tried, base = self.known[champion.number], self.known[0]
        done = (len(self.history) - 1, self.keeps, self.false_keeps)
        if design is None:
            truth = self.world.truth(tried, "search")
            gain = truth - self.world.truth(base, "search")
            seen = _value(champion.score)
            return Outcome(
                champion is not baseline, seen, truth, gain, seen - _value(baseline.score), True, *done, self.used
            )
        if champion is baseline or unpromising(self.history):
            truth = self.world.truth(base, "search")
            return Outcome(False, _value(baseline.score), truth, 0.0, 0.0, True, *done, self.used)
        found = self._certificate(champion, design)

        truth = self.world.truth(tried if found.passed else base, "report")
        claim = _expected_score(found, baseline.score.values)
        assert found.comparison is not None, "simulated runs always have a score"
        gain = truth - self.world.truth(base, "report")
        low, high = found.bounds or (-math.inf, math.inf)
        covered = low <= gain <= high
        return Outcome(found.passed, claim, truth, gain, found.expected or 0.0, covered, *done, self.used)

    def _certificate(self, champion: Trial, design: Design) -> Certificate:
        fresh, before, mine, theirs = list[Fresh](), searched(self.history), 0, 0
        for champions, baselines in design.groups:
            wanted = baselines - counted(before, baselines)
            arms: tuple[tuple[Arm, int], ...] = (("champion", champions - mine), ("baseline", wanted - theirs))
            for arm, many in arms:
                one = self.known[champion.number if arm == "champion" else 0]
                fresh += [Fresh(*self._run(one, "report"), arm) for _ in range(many)]
            mine, theirs = champions, wanted
            made = conclude(1, design.levels[-1], champion.number, "simulated", fresh, design, search=before)
            if not made.another:
                break
        return made


def _expected_score(found: Certificate, baseline: Sequence[float]) -> float:
    """Of what ships, in the metric's unit; of the baseline its first runs, `baseline`, count like its fresh ones."""
    if not found.passed:
        return statistics.fmean([*baseline, *map(_value, found.scores("baseline"))])
    mean = found.mean("champion")
    assert mean is not None and found.comparison is not None and found.expected is not None, "it passed"
    mine, theirs = len(found.scores("champion")), len(found.scores("baseline")) + len(found.reused)
    # The correction belongs to the arms as they share the squared error.
    luck = (found.comparison.gain - found.expected) * theirs / (mine + theirs)
    return mean - luck if found.scores("champion")[0].higher_is_better else mean + luck


def _value(score: Score) -> float:
    assert score.value is not None, "simulated runs always have a score"
    return score.value


@dataclass(frozen=True)
class Night:
    """The kind of campaign that is simulated."""

    landscape: Landscape | Table
    rule: str
    cancel: str
    proposer: str
    runs: int
    rule_options: Mapping[str, Any] = field(default_factory=dict)
    cancel_options: Mapping[str, Any] = field(default_factory=dict)
    proposer_options: Mapping[str, Any] = field(default_factory=dict)

    def campaign(self, index: int, seed: int, null: bool) -> Outcome:
        rule = plugins.make("tasks.rules", self.rule, Rule, dict(self.rule_options))  # type: ignore[type-abstract]
        rng = np.random.default_rng([seed, index, null])
        world: World
        if isinstance(self.landscape, Table):
            takes_any = null or self.proposer == "random_search"
            world = TableWorld(self.landscape, None if takes_any else self._proposer(), rng, null)
        else:
            is_points = isinstance(self.landscape, Points)
            proposer = (load("random_search", {}) if null else self._proposer()) if is_points else None
            world = world_of(self.landscape, rng, null, proposer)
        return Campaign(world, rule, self._canceller(), self.runs).run()

    def _proposer(self) -> Proposer:
        return load(self.proposer, dict(self.proposer_options))

    def _canceller(self) -> Canceller | None:
        """Early stopping; on a landscape it looks when something is first shown."""
        if self.cancel == "none":
            return None
        made = plugins.make("tasks.cancellers", self.cancel, Canceller, dict(self.cancel_options))  # type: ignore[type-abstract]
        if isinstance(self.landscape, Table) or not hasattr(made, "fraction"):
            return made
        shares = self.landscape.part if isinstance(self.landscape, Points) else (LOOK,)
        return made.model_copy(update={"fraction": min(shares)}) if shares else made


def simulate(night: Night, campaigns: int, nulls: int, seed: int, jobs: int | None = None) -> Row:
    """Figures over so many campaigns with effects, and `nulls` without any."""
    if isinstance(night.landscape, Points):
        grid_of(night.landscape.dims, night.landscape.length)  # once, before the processes are forked
    with ProcessPoolExecutor(jobs) as pool:
        found, null = (
            list(pool.map(partial(night.campaign, seed=seed, null=none), range(many), chunksize=max(many // 64, 1)))
            for many, none in ((campaigns, False), (nulls, True))
        )
    stated: Row = {"rule": night.rule, "cancel": night.cancel, "proposer": night.proposer, "runs": night.runs}
    stated |= {"campaigns": campaigns, "nulls": nulls}
    return stated | figures(found, null)


def figures(found: Sequence[Outcome], null: Sequence[Outcome]) -> Row:
    """Means over campaigns; a figure that nothing can be said of is NaN in a table, and null in JSON."""
    shipped = [one for one in found if one.shipped]
    gains = [one.gain for one in found]
    return {
        "ships_when_null": _mean([one.shipped for one in null]),
        "ships": _mean([one.shipped for one in found]),
        "claim_minus_true": _mean([one.claim - one.truth for one in found]),
        "p_worse": _mean([one.gain < 0 for one in found]),
        "true_gain": _mean(gains),
        "true_gain_se": statistics.stdev(gains) / math.sqrt(len(gains)) if len(gains) > 1 else math.nan,
        "gain_claim_minus_true_when_shipped": _mean([one.claimed_gain - one.gain for one in shipped]),
        "interval_coverage_when_shipped": _mean([one.covered for one in shipped]),
        "runs_used": _mean([one.runs_used for one in found]),
        "ideas": _mean([one.ideas for one in found]),
        "false_keep_share": _share(sum(one.false_keeps for one in found), sum(one.keeps for one in found)),
    }


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else math.nan


def _share(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--landscape", type=Path, action="append", help="a JSON file; may be repeated")
    parser.add_argument("--table", type=Path, action="append", help="a CSV file of real runs; may be repeated")
    parser.add_argument("--baseline", type=float, default=0.8, help="of a table: the share that is worse than it")
    parser.add_argument("--rule", action="append", choices=plugins.names("tasks.rules"), help="may be repeated")
    parser.add_argument("--cancel", default="curve", choices=[*plugins.names("tasks.cancellers"), "none"])
    parser.add_argument("--rule-options", type=json.loads, default={}, help="JSON, of every rule but greedy")
    parser.add_argument("--cancel-options", type=json.loads, default={}, help="JSON")
    parser.add_argument("--proposer", default="tpe", choices=PROPOSERS, help="who chooses among points")
    parser.add_argument("--proposer-options", type=json.loads, default={}, help="JSON")
    parser.add_argument("--runs", type=int, action="append", help="most training runs of a night; may be repeated")
    parser.add_argument("--campaigns", type=int, default=500, help="a cell, with effects")
    parser.add_argument("--nulls", type=int, default=2000, help="campaigns a cell, without any effect")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} times fewer campaigns")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, help="processes at once; all cores when left out")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--picture", type=Path, help="an SVG file: what each rule claims and is worth, over all tables")
    asked = parser.parse_args()
    fewer = QUICK if asked.quick else 1
    campaigns, nulls = (max(many // fewer, 1) for many in (asked.campaigns, asked.nulls))
    rows, greedy = list[Row](), math.nan
    try:
        for path, night in _nights(asked):
            row = simulate(night, campaigns, nulls, asked.seed, asked.jobs)
            rows.append(row | {"landscape": path.name.partition(".")[0], "unit": night.landscape.unit})
            # Each cell begins with greedy, if it was asked for.
            greedy = float(row["true_gain"]) if night.rule == "greedy" else greedy
            if not asked.json:
                _print(rows[-1], greedy, head=len(rows) == 1)
    except Refused as refused:
        sys.exit(f"decisions: {refused}")
    if asked.picture:
        _draw(rows, asked.picture)
    if asked.json:
        clean = [{k: None if v != v else v for k, v in row.items()} for row in rows]
        print(json.dumps(clean[0] if len(clean) == 1 else clean, indent=2, allow_nan=False))


def _nights(asked: argparse.Namespace) -> Iterator[tuple[Path, Night]]:
    bundled = sorted(BUNDLED.glob("*.json"))
    landscapes: list[tuple[Path, Landscape | Table]]
    landscapes = [(path, read_table(path, asked.baseline)) for path in asked.table or ()]
    landscapes += [(path, read(path)) for path in asked.landscape or ([] if asked.table else bundled)]
    for path, landscape in landscapes:
        for runs in asked.runs or RUNS_OF[landscape.kind]:
            if runs < (least := BASELINE_RUNS + design_of(runs, runs=runs).runs - REUSED + 1):
                raise Refused(f"--runs {runs} leaves none for a trial: give at least {least}")
            for rule in sorted(asked.rule or ["greedy", "certify"], key=lambda rule: rule != "greedy"):
                # Greedy is as the seeds run it: every trial to its end.
                plain = rule == "greedy"
                cancel, options = "none" if plain else asked.cancel, {} if plain else asked.rule_options
                yield (
                    path,
                    Night(
                        landscape,
                        rule,
                        cancel,
                        asked.proposer,
                        runs,
                        options,
                        asked.cancel_options,
                        asked.proposer_options,
                    ),
                )


CELLS = {
    "rule": ("rule", ""), "runs": ("runs", ""), "ships_when_null": ("null", ".3f"),
    "ships": ("ships", ".3f"), "claim_minus_true": ("claim-true", "+.2f"), "p_worse": ("worse", ".3f"),
    "true_gain": ("gain", ".2f"), "true_gain_se": ("se", ".2f"), "to_greedy": ("to greedy", ".2f"),
    "gain_claim_minus_true_when_shipped": ("if shipped", "+.2f"), "interval_coverage_when_shipped": ("coverage", ".3f"),
    "runs_used": ("used", ".1f"), "ideas": ("ideas", ".1f"), "false_keep_share": ("false", ".2f"),
}  # fmt: skip
"""Columns of the table: their heads and formats, by figure."""
IN_UNITS = ("claim_minus_true", "true_gain", "true_gain_se", "gain_claim_minus_true_when_shipped")


def _print(row: Row, greedy: float, head: bool) -> None:
    """A row of the table; scores in units of the landscape."""
    if head:
        print(f"{'':16}", *(f"{name:>10}" for name, _ in CELLS.values()))
    shown = row | {name: float(row[name]) / float(row["unit"]) for name in IN_UNITS}
    shown["to_greedy"] = _share(float(row["true_gain"]), greedy)
    print(
        f"{row['landscape']:16}", *(f"{format(shown[name], how):>10}" for name, (_, how) in CELLS.items()), flush=True
    )


def _draw(rows: Sequence[Row], path: Path) -> None:
    """Claims and worth by rule and runs, means over the landscapes; beside each how often it ends worse."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    cells: dict[tuple[int, str], list[Row]] = {}
    for row in rows:
        cells.setdefault((int(row["runs"]), str(row["rule"])), []).append(row)
    figure, axes = pyplot.subplots(figsize=(7, 3), layout="constrained")
    for place, ((runs, rule), some) in enumerate(
        sorted(cells.items(), key=lambda one: (one[0][0], one[0][1] != "greedy"))
    ):
        worth, over, worse = (
            statistics.fmean(float(row[name]) / (float(row["unit"]) if name in IN_UNITS else 1.0) for row in some)
            for name in ("true_gain", "claim_minus_true", "p_worse")
        )
        axes.bar(place - 0.2, worth + over, 0.38, color="#b9b9b9", label=None if place else "claims")
        axes.bar(place + 0.2, worth, 0.38, color="#2b6cb0", label=None if place else "is worth")
        axes.text(place, worth + max(over, 0) + 0.01, f"worse: {worse:.1%}", ha="center", fontsize=8)
        axes.text(place, -0.03, f"{rule}\n{runs} runs", ha="center", va="top")
    axes.set(xticks=[], ylabel="gain over the baseline\n(1: median to best configuration)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path)


if __name__ == "__main__":
    main()

"""`nightshift compare A B`: fresh runs of one program and its parameters against fresh runs of another.

As in a certificate (tasks/stats/certificate.py), but two-sided, in blocks of one run each in random order. Every
run is judged on units of its own: two programs that are good at different questions would else be told apart by
questions that they share. Those of a finite pool are for `confirm`, so that no report question is used up. Everything
is in runs/.comparisons/<environment>/0001/: the frozen environment, trials/a-1 and so on, and comparison.json, which is
rewritten after every run.
"""

from __future__ import annotations

import json
import secrets
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from environments import Environment, plugins
from environments.judges import BlockUnits
from environments.plugins import Refused
from environments.score import Score
from flows.cli import consent, single_runs
from flows.cli.arguments import parse_params, read_diff, read_text
from flows.cli.set_option import overrides_only
from flows.cli.single_runs import Arm, FreshRun, Side, Stage
from flows.views import terminal
from tasks.numbers import number, probability
from tasks.recipes import output
from tasks.stats.certificate import FEWEST
from tasks.stats.design import order
from tasks.stats.permutation import CONFIDENCE, Comparison, compare
from tasks.store.ledger import Ledger, campaigns, measure
from tasks.store.seeds import derive
from tasks.system import file_trees
from tasks.system.files import write_atomic
from tasks.system.home import home
from tasks.trial import Trial, best

FOLDER = ".comparisons"
FEWEST_RUNS = 4
"""Of each arm, with which p can be small enough: one way of 70 is the best."""
RUNS = 5
"""Of each arm by default; FEWEST in a deterministic environment."""
LEVEL = 0.05
"""A larger two-sided p shows no difference."""
NAMES = {"champion": "a", "baseline": "b"}
"""The arms of a certificate's order, as they are called here."""
KINDS = (
    "baseline, a JSON object of parameters, a file *.json of parameters, a file *.diff or *.patch, "
    "CAMPAIGN, CAMPAIGN/baseline or CAMPAIGN/TRIAL"
)
ABOUT: dict[BlockUnits, str] = {
    "fresh": "each run was judged on fresh units",
    "disjoint": "each run was judged on questions of its own: this is about questions like those of the pool",
    "same": "all runs were judged on the same units: this is about these units, and may be otherwise on others",
}
"""What the result is about."""


@dataclass(frozen=True)
class Match:
    """Two sides, ready to run."""

    stage: Stage
    sides: Sequence[Side]
    arms: Sequence[Arm]
    runs: int
    """Of each arm."""
    seed: int
    """Of the training seeds and of the order, not of the judge's units."""

    def play(self, quiet: bool = False) -> dict[str, Any]:
        """Run both arms and compare them; the content of comparison.json."""
        arms, plan = {arm.name: arm for arm in self.arms}, list[tuple[Arm, int]]()
        for name, turn in order(self.runs, derive(self.seed, "order", 0, 1)):
            arm = arms[NAMES[name]]
            plan.append((arm, derive(self.seed, "train", turn, 1, arm.name.upper())))
        done, document = list[FreshRun](), dict[str, Any]()
        for one in self.stage.runs(plan, use="confirm"):
            done.append(one)
            document = self._document(done)
            write_atomic(self.stage.folder / "comparison.json", json.dumps(document, indent=2, allow_nan=False) + "\n")
            if not quiet:
                text = single_runs.score_text(one.score)
                print(f"{one.arm.upper()} {one.number}  seed {one.run.seed:<10}  {text}", flush=True)
        return document

    def _document(self, done: Sequence[FreshRun]) -> dict[str, Any]:
        """The runs so far. There is no comparison until the last one is over."""
        a, b = ([one.score for one in done if one.arm == name] for name in NAMES.values())
        is_over, problem = len(done) == 2 * self.runs, self.stage.environment
        comparison = difference(a, b, problem.deterministic) if is_over else None
        sides = [
            {
                "named": side.text, "params": arm.proposal.params, "edited": arm.proposal.edit is not None,
                "score": statistics.fmean(values) if (values := _values(scores)) else None,
            }
            for side, arm, scores in zip(self.sides, self.arms, (a, b), strict=True)
        ]  # fmt: skip
        return {
            "a": sides[0], "b": sides[1], "environment": problem.name, "metric": problem.metric,
            "direction": problem.direction, "seed": self.seed,
            "runs": [
                {"arm": one.arm.upper(), "number": one.number, **self.stage.facts(one.run, one.score)} for one in done
            ],
            **{key: getattr(comparison, key, None) for key in ("gain", "low", "high")},
            "p": comparison and comparison.p, "units": problem.judge.block_units,
            "words": in_words(comparison, a, b, problem.judge.block_units) if is_over else "not over yet",
            "directory": str(self.stage.folder),
        }  # fmt: skip


def run(
    a: str, b: str, on: str | None, runs: int | None, settings: list[str], trust: bool, seed: int | None,
    isolation: str, allow_unsandboxed: bool, as_json: bool,
) -> int:  # fmt: skip
    """Run both sides and say which is better; 0 when they could be compared, else 1."""
    sides = [parse("a", a), parse("b", b)]
    from flows.server.server_process import settle_in

    settle_in(home())
    if on:
        consent.ask_about(on, overrides_only(settings), trust)
    match = prepare(sides, on, runs, settings, seed, isolation, allow_unsandboxed)
    least = FEWEST if match.stage.environment.deterministic else FEWEST_RUNS
    if match.runs < least:
        file_trees.remove(match.stage.folder)
        raise Refused(f"--runs {runs}: so few runs cannot show a difference; give at least {least} of each side")
    if not as_json:
        for side, arm in zip(match.sides, match.arms, strict=True):
            edited = " (edited program)" * (arm.proposal.edit is not None)
            print(f"{arm.name.upper()}: {terminal.clean(side.text)}{edited}")
        problem = match.stage.environment
        print(f"{match.runs} fresh runs of each in {problem.name}, of {problem.budget_seconds:g} s at most")
    document = match.play(quiet=as_json)
    if as_json:
        terminal.print_json(document)
    else:
        print(f"{document['words']}\nsee {document['directory']}")
    return 1 if document["gain"] is None else 0


def parse(arm: str, text: str) -> tuple[Side, Ledger | None]:
    """The side that a text names, and the campaign that it comes from. Refused if there is no such side."""
    suffix = Path(text).suffix
    if text == "baseline":
        return Side(arm, text), None
    if text.lstrip().startswith("{"):
        return Side(arm, text, parse_params(text, "parameters")), None
    if suffix == ".json":
        return Side(arm, text, parse_params(read_text(Path(text), "parameters in"), f"{text}:")), None
    if suffix in (".diff", ".patch"):
        return Side(arm, text, edit=read_diff(Path(text), "the edit")), None
    name, _, which = text.partition("/")
    if name not in campaigns():
        try:
            plugins.require(name, ("baseline", *campaigns()), what="side of a comparison")
        except Refused as unknown:
            raise Refused(f"{unknown} A side is {KINDS}.") from None
    ledger = Ledger.open(name)
    if which == "baseline":
        return Side(arm, text, ledger.environment.defaults, program=ledger.program), ledger
    proposal = _trial(ledger, which or "champion").proposal
    return Side(arm, text, proposal.params, proposal.edit, ledger.program), ledger


def _trial(ledger: Ledger, which: str) -> Trial:
    history, name = ledger.history(), ledger.campaign.name
    if which == "champion" and not best(history):
        raise Refused(f"campaign {name!r} has no champion, for no trial has a score: name {name}/baseline")
    numbers = {str(trial.number): trial for trial in history}
    if trial := best(history) if which == "champion" else numbers.get(which):
        return trial
    some = f"it has {history[0].number} to {history[-1].number}" if history else "it has none yet"
    raise Refused(
        f"campaign {name!r} has no finished trial {which}: {some}. Give {name}/champion, {name}/baseline, or {name}/0"
    )


def prepare(
    sides: Sequence[tuple[Side, Ledger | None]], on: str | None, runs: int | None, settings: list[str],
    seed: int | None, isolation: str, allow_unsandboxed: bool,
) -> Match:  # fmt: skip
    """Freeze the environment. Refused if a side cannot be run in it; nothing is left then."""
    environment, baseline = _environment([ledger for _, ledger in sides if ledger], on, settings)
    both, parent = [side for side, _ in sides], home() / FOLDER / environment.name
    with single_runs.set_up(environment, baseline, both, parent, isolation, allow_unsandboxed) as (stage, arms):
        each = runs if runs is not None else FEWEST if environment.deterministic else RUNS
        _check_pool(stage.environment, each)
    return Match(stage, both, arms, each, secrets.randbelow(2**31) if seed is None else seed)


def _environment(ledgers: Sequence[Ledger], on: str | None, settings: list[str]) -> tuple[Environment, Path | None]:
    """The environment of both sides, and its baseline program if a campaign has frozen that.

    Raises:
        Refused: no environment is named, or the campaigns' environments differ.
    """
    from flows.spec.environment import checked_environment

    if on:
        return checked_environment(on, overrides_only(settings)), None
    if not ledgers:
        raise Refused("neither side names a campaign, so there is no environment: give --on ENVIRONMENT")
    if settings:
        raise Refused("--set needs --on ENVIRONMENT: the environment of a campaign is frozen")
    for ledger in ledgers:
        ledger.verify()
    if len({_judged_by(ledger) for ledger in ledgers}) > 1:
        names = " and ".join(repr(ledger.campaign.name) for ledger in ledgers)
        raise Refused(
            f"campaigns {names} have different environments, so their scores cannot be compared: "
            "choose one with --on ENVIRONMENT"
        )
    return ledgers[0].environment, ledgers[0].program


def _judged_by(ledger: Ledger) -> str:
    """A digest of everything that changes a score in a campaign's environment."""
    environment = ledger.environment
    made = output.read(environment.prepared) if environment.prepared else None
    parts: dict[str, object] = {
        "settings": environment.model_dump(mode="json", exclude={"folder", "judge", "prepared", "requires"}),
        "judged": environment.judge.model_dump(mode="json"),
        "prepared": made.content if made else "",
    }
    return measure(ledger.path, environment, parts)


def _check_pool(environment: Environment, runs: int) -> None:
    """Refuse more runs than a finite pool has questions: each takes some of its own."""
    if environment.judge.block_units != "disjoint" or environment.prepared is None:
        return
    made = output.read(environment.prepared)
    if made and (has := made.questions.get("confirm")) is not None and has < 2 * runs:
        raise Refused(f"--runs {runs}: the pool for confirm has {has} questions, and each of {2 * runs} runs needs one")


def difference(a: Sequence[Score], b: Sequence[Score], deterministic: bool = False) -> Comparison | None:
    """A against B with a two-sided interval and p, crashed runs left out; None where an arm has too few scores.

    Args:
        deterministic: Whether equal runs score the same, so that runs without any spread prove something.
    """
    first, second = ([score.utility for score in arm if score.value is not None] for arm in (a, b))
    if min(len(first), len(second)) < FEWEST:
        return None
    one, other = compare([(first, second)], [LEVEL / 2]), compare([(second, first)], [LEVEL / 2])
    if deterministic and len(set(first)) == len(set(second)) == 1:
        return Comparison(one.gain, one.gain, one.gain, float(not one.gain))
    high = None if other.low is None else -other.low
    return Comparison(one.gain, one.low, high, min(2 * min(one.p, other.p), 1.0))


def in_words(comparison: Comparison | None, a: Sequence[Score], b: Sequence[Score], units: BlockUnits = "fresh") -> str:
    """Which arm is better, what that is about, and which runs crashed."""
    crashes = []
    for arm, scores in (("A", a), ("B", b)):
        if missing := [score for score in scores if score.value is None]:
            why = single_runs.first_line(missing[0])
            crashes.append(f"{len(missing)} of {len(scores)} runs of {arm} crashed ({why})")
    if comparison is None:
        return "\n".join(["nothing to compare: each side needs two runs with a score", *crashes])
    biased = [f"{line}: the comparison leaves them out, which favours that side" for line in crashes]
    p, ahead = comparison.p, "A" if comparison.gain >= 0 else "B"
    low, high = comparison.low, comparison.high
    counts = " v ".join(str(len(_values(arm))) for arm in (a, b))
    if low is None or high is None:
        interval = "too few runs for an interval"
    else:
        ends = (low, high) if ahead == "A" else (-high, -low)
        interval = f"{100 * CONFIDENCE:.0f} % interval {number(ends[0])}..{number(ends[1])}"
    facts = f"{interval}, {counts} fresh runs, {probability(p)} two-sided"
    gain = number(abs(comparison.gain))
    if p <= LEVEL:
        return "\n".join([f"{ahead} is better by {gain} ({facts})", ABOUT[units], *biased])
    lead = f"{ahead} is ahead by {gain}" if comparison.gain else "both have the same mean"
    return "\n".join([f"no difference shown: {lead} ({facts})", ABOUT[units], *biased])


def _values(scores: Sequence[Score]) -> list[float]:
    return [score.value for score in scores if score.value is not None]

"""`nightshift duel A B`: fresh runs of one program and its parameters against fresh runs of another.

As in a certificate (tasks/certifying/certificate.py), blocks of one run each in random order; but Welch's test is
two-sided. Every run is judged on units of its own: two programs that are good at different questions would else be
told apart by questions that they share. Those of a finite pool are for `confirm`, so that no report question is used
up. Everything is in runs/.duels/<environment>/0001/: the frozen environment,
a/program and b/program, trials/a-1 and so on, and duel.json, which is rewritten after every run.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from environments import Environment
from environments.judges import BlockUnits, ComparisonBlock
from environments.plugins import Refused
from environments.score import Score
from flows.cli import consent
from flows.cli.deciding import duel_sides
from flows.cli.deciding.duel_sides import Side
from flows.cli.running import single_run
from flows.cli.running.single_run import PlannedRun
from flows.cli.set_option import overrides_only
from flows.views import terminal
from tasks.certifying.group_design import FEWEST, order
from tasks.deciding.statistics import CONFIDENCE, Comparison, welch
from tasks.numbers import number, probability
from tasks.recipes import output
from tasks.sandbox import outputs
from tasks.store.seeds import derive
from tasks.store.workspace import TrialDir
from tasks.system.files import write_atomic
from tasks.system.home import home
from tasks.trial import Params, Proposal, Run

FOLDER = ".duels"
RUNS = 5
"""Of each arm by default; FEWEST in a deterministic environment."""
LEVEL = 0.05
"""A larger two-sided p shows no difference."""
ARMS = {"champion": "A", "baseline": "B"}
"""Names of the arms in a certificate, and in a duel."""
ABOUT: dict[BlockUnits, str] = {
    "fresh": "each run was judged on fresh units",
    "disjoint": "each run was judged on questions of its own: this is about questions like those of the pool",
    "same": "all runs were judged on the same units: this is about these units, and may be otherwise on others",
}
"""What the result of a duel is about."""


@dataclass(frozen=True)
class DuelArm:
    """One program with its parameters."""

    named: str
    """As on the command line."""
    params: Params
    program: str
    """Digest of the program's files."""
    edited: bool
    """Whether the program differs from the baseline's."""


@dataclass(frozen=True)
class Duel:
    """Two arms, ready to run."""

    stage: single_run.Stage
    a: DuelArm
    b: DuelArm
    runs: int
    """Of each arm."""
    seed: int
    """Of the training seeds and of the order, not of the judge's units."""

    def run(self, quiet: bool = False) -> dict[str, object]:
        """Run both arms and compare them; the content of duel.json."""
        done: list[tuple[PlannedRun, Run, Score]] = []
        for planned, run, score in self.stage.measure_all(self._plan()):
            done.append((planned, run, score))
            self._store(done, over=False)
            if not quiet:
                text = single_run.score_text(score)
                print(f"{planned.arm} {planned.number}  seed {run.seed:<10}  {text}", flush=True)
        return self._store(done, over=True)

    def _plan(self) -> Iterator[PlannedRun]:
        root = self.stage.root
        for place_in_order, (name, turn) in enumerate(order(self.runs, derive(self.seed, "order", 0, 1)), 1):
            arm = ARMS[name]
            params = (self.a if arm == "A" else self.b).params
            proposal = Proposal(params, rationale=f"{arm} of a duel", proposer="duel")
            place = TrialDir(root / "trials" / f"{arm.lower()}-{turn}")
            seed = derive(self.seed, "train", turn, 1, arm)
            program, units = root / arm.lower() / "program", secrets.randbelow(2**63)
            block = ComparisonBlock(place_in_order, 2 * self.runs)
            yield PlannedRun(arm, turn, program, place, proposal, seed, units, "confirm", block)

    def _store(self, done: Sequence[tuple[PlannedRun, Run, Score]], over: bool) -> dict[str, object]:
        """Write duel.json; its content. There is no comparison until the duel is over."""
        a, b = ([score for planned, _, score in done if planned.arm == arm] for arm in ARMS.values())
        comparison, problem = compare(a, b) if over else None, self.stage.environment
        runs = [
            {"arm": planned.arm, "number": planned.number, **self.stage.facts(run, score)}
            for planned, run, score in done
        ]
        document: dict[str, object] = {
            "a": {**asdict(self.a), "score": _mean(a)}, "b": {**asdict(self.b), "score": _mean(b)},
            "environment": problem.name, "metric": problem.metric, "direction": problem.direction,
            "seed": self.seed, "runs": runs,
            **{key: getattr(comparison, key, None) for key in ("gain", "low", "high")},
            "p": two_sided(comparison) if comparison else None,
            "units": problem.judge.block_units,
            "words": in_words(comparison, a, b, problem.judge.block_units) if over else "not over yet",
            "directory": str(self.stage.root),
        }  # fmt: skip
        write_atomic(self.stage.root / "duel.json", json.dumps(document, indent=2, allow_nan=False) + "\n")
        return document


def duel(
    a: str, b: str, on: str | None, runs: int | None, settings: list[str], trust: bool, seed: int | None,
    isolation: str, allow_unsandboxed: bool, as_json: bool,
) -> int:  # fmt: skip
    """Run both arms and say which is better; 0 when they could be compared, else 1."""
    if runs is not None and runs < FEWEST:
        raise Refused(f"--runs {runs}: give at least {FEWEST} runs of each arm, since one does not show its noise")
    sides = (duel_sides.parse(a), duel_sides.parse(b))
    from flows.server.server_process import settle_in

    settle_in(home())
    if on:
        consent.ask_about(on, overrides_only(settings), trust)
    ready = prepare(sides, on, runs, settings, seed, isolation, allow_unsandboxed)
    if not as_json:
        for label, arm in (("A", ready.a), ("B", ready.b)):
            print(f"{label}: {terminal.clean(arm.named)}{' (edited program)' if arm.edited else ''}")
        problem = ready.stage.environment
        print(f"{ready.runs} fresh runs of each in {problem.name}, of {problem.budget_seconds:g} s at most")
    document = ready.run(quiet=as_json)
    if as_json:
        terminal.print_json(document)
    else:
        print(f"{document['words']}\nsee {document['directory']}")
    return 1 if document["gain"] is None else 0


def prepare(
    sides: Sequence[Side], on: str | None, runs: int | None, settings: list[str], seed: int | None, isolation: str,
    allow_unsandboxed: bool,
) -> Duel:  # fmt: skip
    """Freeze the environment and both programs.

    Raises:
        Refused: a side cannot be run; nothing is left of the duel then.
    """
    environment, baseline = duel_sides.environment_of(sides, on, settings)
    params = [environment.complete(side.params) for side in sides]
    folder = single_run.next_in(home() / FOLDER / environment.name)
    with single_run.removed_if_refused(folder):
        problem = single_run.frozen(environment, folder, baseline)
        arms = []
        for name, side, values in zip("ab", sides, params, strict=True):
            program = folder / name / "program"
            edited = duel_sides.lay_out(side, problem, folder / "program", program)
            arms.append(DuelArm(side.text, values, outputs.digest(program), edited))
        any_edited = any(arm.edited for arm in arms)
        stage = single_run.stage(problem, isolation, allow_unsandboxed, any_edited, folder, "duel")
        each = runs or (FEWEST if problem.deterministic else RUNS)
        check_pool(problem, each)
    return Duel(stage, arms[0], arms[1], each, secrets.randbelow(2**31) if seed is None else seed)


def check_pool(environment: Environment, runs: int) -> None:
    """Refuse more runs than a finite pool has questions: each takes some of its own."""
    if environment.judge.block_units != "disjoint" or environment.prepared is None:
        return
    made = output.read(environment.prepared)
    if made and (has := made.questions.get("confirm")) is not None and has < 2 * runs:
        raise Refused(f"--runs {runs}: the pool for confirm has {has} questions, and each of {2 * runs} runs needs one")


def compare(a: Sequence[Score], b: Sequence[Score]) -> Comparison | None:
    """A against B, crashed runs left out; None where an arm has too few scores."""
    first, second = ([score.utility for score in arm if score.value is not None] for arm in (a, b))
    return welch(first, second) if min(len(first), len(second)) >= FEWEST else None


def two_sided(comparison: Comparison) -> float:
    """The two-sided p-value."""
    return 2 * min(comparison.p, 1 - comparison.p) if comparison.gain else 1.0


def in_words(comparison: Comparison | None, a: Sequence[Score], b: Sequence[Score], units: BlockUnits = "fresh") -> str:
    """Which arm is better, what that is about, and which runs crashed."""
    crashes = []
    for arm, scores in (("A", a), ("B", b)):
        if missing := [score for score in scores if score.value is None]:
            why = single_run.first_line(missing[0])
            crashes.append(f"{len(missing)} of {len(scores)} runs of {arm} crashed ({why})")
    if comparison is None:
        return "\n".join(["nothing to compare: each arm needs two runs with a score", *crashes])
    biased = [f"{line}: the comparison leaves them out, which favours that arm" for line in crashes]
    p, ahead = two_sided(comparison), "A" if comparison.gain >= 0 else "B"
    low, high = comparison.low, comparison.high
    if ahead == "B":
        low, high = -high, -low
    counts = " v ".join(str(sum(score.value is not None for score in arm)) for arm in (a, b))
    interval = f"{100 * CONFIDENCE:.0f} % interval {number(low)}..{number(high)}"
    facts = f"{interval}, {counts} fresh runs, {probability(p)} two-sided"
    gain = number(abs(comparison.gain))
    if p <= LEVEL:
        return "\n".join([f"{ahead} is better by {gain} ({facts})", ABOUT[units], *biased])
    lead = f"{ahead} is ahead by {gain}" if comparison.gain else "both have the same mean"
    return "\n".join([f"no difference shown: {lead} ({facts})", ABOUT[units], *biased])


def _mean(scores: Sequence[Score]) -> float | None:
    """Over the runs that have a score."""
    values = [score.value for score in scores if score.value is not None]
    return math.fsum(values) / len(values) if values else None

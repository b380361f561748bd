"""`nightshift duel A B`: fresh runs of one program and its parameters against fresh runs of another.

It is a campaign's certificate (tasks/deciding/certificate.py) without a favourite: blocks of one run each in random
order, the
same report units for all, Welch's test on the scores alone, two-sided. Everything lies in
runs/.duels/<environment>/0001/: the frozen environment, a/program and b/program, trials/a-1 and so on, and duel.json,
which is written anew after every run.
"""

from __future__ import annotations

import math
import secrets
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from environments.plugins import Refused
from environments.score import Score
from flows.cli.deciding import duel_sides
from flows.cli.deciding.duel_sides import Side
from flows.cli.running import single_run
from flows.views import terminal
from tasks.deciding.certificate import FEWEST, order
from tasks.deciding.statistics import CONFIDENCE, Comparison, welch
from tasks.describe import number
from tasks.sandbox import outputs
from tasks.store.seeds import derive
from tasks.store.workspace import TrialDir
from tasks.system import file_trees, interrupt
from tasks.system.files import write_atomic
from tasks.system.home import home
from tasks.trial import Params, Proposal, Run

FOLDER = ".duels"
RUNS = 5
"""Of each side, where nobody says otherwise; where nothing is drawn at random, FEWEST."""
LEVEL = 0.05
"""A two-sided p above it shows no difference."""
Arm = Literal["A", "B"]
ARMS: dict[str, Arm] = {"champion": "A", "baseline": "B"}
"""What a certificate calls the two arms, and what a duel does."""


@dataclass(frozen=True)
class Contender:
    """One side of a duel."""

    named: str
    """As on the command line."""
    params: Params
    program: str
    """Digest of its program's files."""
    edited: bool
    """Whether that is another than the baseline's."""
    score: float | None = None
    """Mean over the runs that have one."""


@dataclass(frozen=True)
class Row:
    """One run of a duel."""

    arm: Arm
    number: int
    seed: int
    score: float | None
    se: float | None
    """Over units."""
    n: int
    seconds: float
    error: str | None
    directory: str


@dataclass(frozen=True)
class Duel:
    """duel.json."""

    a: Contender
    b: Contender
    environment: str
    metric: str
    direction: str
    seed: int
    runs: tuple[Row, ...]
    gain: float | None
    """By how much A is better, negative when B is, whichever way the metric points; None without a comparison."""
    low: float | None
    high: float | None
    """Of the gain, at CONFIDENCE."""
    p: float | None
    """Two-sided: how often two equal sides would differ as much or more."""
    words: str
    directory: str


DUEL = TypeAdapter(Duel)


def duel(
    a: str, b: str, on: str | None, runs: int | None, settings: list[str], seed: int | None, walls: str,
    allow_unsandboxed: bool, as_json: bool,
) -> int:  # fmt: skip
    """Run both sides and say which is better; 0 when that could be compared, else 1."""
    if runs is not None and runs < FEWEST:
        raise Refused(
            f"--runs {runs}: a side needs at least {FEWEST} runs, for one alone does not show its noise"
        )
    sides = (duel_sides.parse(a), duel_sides.parse(b))
    from flows.server.connect import settle_in

    settle_in(home())
    from tasks.sandbox.program import CannotStart

    bout = prepare(sides, on, runs, settings, seed, walls, allow_unsandboxed)
    if not as_json:
        print(_opening(bout))
    try:
        found = bout.fight(quiet=as_json)
    except CannotStart as fault:
        print(f"nightshift: {fault}", file=sys.stderr)
        return 1
    terminal.print_json(asdict(found)) if as_json else print(f"{found.words}\nsee {found.directory}")
    return 1 if found.gain is None else 0


def prepare(
    sides: Sequence[Side], on: str | None, runs: int | None, settings: list[str], seed: int | None, walls: str,
    allow_unsandboxed: bool,
) -> Bout:  # fmt: skip
    """Freeze the environment and both programs, ready to run.

    Raises:
        Refused: what cannot be run; nothing is left of it then.
    """
    environment, baseline = duel_sides.environment_of(sides, on, settings)
    params = [environment.complete(side.params) for side in sides]
    folder = single_run.next_in(home() / FOLDER / environment.name)
    try:
        problem = single_run.frozen(environment, folder, baseline)
        programs = [folder / name / "program" for name in "ab"]
        edited = [
            duel_sides.lay_out(side, problem, folder / "program", program)
            for side, program in zip(sides, programs, strict=True)
        ]
        stage = single_run.stage(problem, walls, allow_unsandboxed, any(edited), folder, "duel")
    except Refused:
        file_trees.remove(folder)
        raise
    first, second = (
        Contender(side.text, chosen, outputs.digest(program), other)
        for side, chosen, program, other in zip(sides, params, programs, edited, strict=True)
    )
    each = runs or (FEWEST if problem.deterministic else RUNS)
    return Bout(stage, first, second, each, secrets.randbelow(2**31) if seed is None else seed)


@dataclass(frozen=True)
class Bout:
    """A duel that is ready to run."""

    stage: single_run.Stage
    a: Contender
    b: Contender
    runs: int
    """Of each side."""
    seed: int
    """Of the training seeds and of the order; no program can work out the judge's units from it."""

    def fight(self, quiet: bool = False) -> Duel:
        """Run both sides in blocks of one each, and compare them.

        Raises:
            CannotStart: no process could be started.
        """
        units = secrets.randbelow(2**63)
        done: list[tuple[Arm, int, Run, Score]] = []
        with interrupt.deferred():
            for called, turn in order(self.runs, derive(self.seed, "order", 0, 1)):
                interrupt.check()
                arm = ARMS[called]
                siblings = [run for other, _, run, _ in done if other == arm]
                done.append((arm, turn, *self._measure(arm, turn, units, siblings)))
                self._store(self._document(done, over=False))
                if not quiet:
                    print(_line(*done[-1]), flush=True)
        found = self._document(done, over=True)
        self._store(found)
        return found

    def _measure(self, arm: Arm, turn: int, units: int, siblings: Sequence[Run]) -> tuple[Run, Score]:
        contender = self.a if arm == "A" else self.b
        place = TrialDir(self._folder / "trials" / f"{arm.lower()}-{turn}")
        proposal = Proposal(contender.params, rationale=f"{arm} of a duel", proposer="duel")
        seed = derive(self.seed, "train", turn, 1, arm)
        return self.stage.measure(
            self._folder / arm.lower() / "program", place, proposal, seed, units, siblings
        )

    def _document(self, done: Sequence[tuple[Arm, int, Run, Score]], over: bool) -> Duel:
        scores = {arm: [score for other, _, _, score in done if other == arm] for arm in ARMS.values()}
        found = compare(scores["A"], scores["B"]) if over else None
        problem = self.stage.environment
        return Duel(
            a=replace(self.a, score=mean(scores["A"])),
            b=replace(self.b, score=mean(scores["B"])),
            environment=problem.name,
            metric=problem.metric,
            direction=problem.direction,
            seed=self.seed,
            runs=tuple(_row(*one, self._folder) for one in done),
            gain=found.gain if found else None,
            low=found.low if found else None,
            high=found.high if found else None,
            p=two_sided(found) if found else None,
            words=in_words(found, scores["A"], scores["B"]) if over else "not over yet",
            directory=str(self._folder),
        )

    @property
    def _folder(self) -> Path:
        return self.stage.root

    def _store(self, document: Duel) -> None:
        text = DUEL.dump_json(document, indent=2).decode()
        write_atomic(self._folder / "duel.json", text + "\n")


def compare(a: Sequence[Score], b: Sequence[Score]) -> Comparison | None:
    """A against B in goodness, crashed runs left out; None where a side has too few scores."""
    first, second = ([score.goodness for score in arm if score.value is not None] for arm in (a, b))
    return welch(first, second) if min(len(first), len(second)) >= FEWEST else None


def two_sided(found: Comparison) -> float:
    """How often two equal sides would differ as much, one way or the other."""
    return 2 * min(found.p, 1 - found.p) if found.gain else 1.0


def mean(scores: Sequence[Score]) -> float | None:
    values = [score.value for score in scores if score.value is not None]
    return math.fsum(values) / len(values) if values else None


def in_words(found: Comparison | None, a: Sequence[Score], b: Sequence[Score]) -> str:
    """Which side is better, and what crashed."""
    crashes = [line for arm, scores in (("A", a), ("B", b)) if (line := _crashed(arm, scores))]
    if found is None:
        return "\n".join(["nothing to compare: a side needs two runs with a score", *crashes])
    left = [f"{line}: the comparison leaves them out, which flatters that side" for line in crashes]
    return "\n".join([_better(found, a, b), *left])


def _better(found: Comparison, a: Sequence[Score], b: Sequence[Score]) -> str:
    p, ahead = two_sided(found), "A" if found.gain >= 0 else "B"
    low, high = (found.low, found.high) if ahead == "A" else (-found.high, -found.low)
    counts = " v ".join(str(sum(score.value is not None for score in arm)) for arm in (a, b))
    interval = f"{100 * CONFIDENCE:.0f} % interval {number(low)}..{number(high)}"
    facts = f"{interval}, {counts} fresh runs, p = {p:.2g} two-sided"
    if p <= LEVEL:
        return f"{ahead} is better by {number(abs(found.gain))} ({facts})"
    lead = f"{ahead} is ahead by {number(abs(found.gain))}" if found.gain else "both have the same mean"
    return f"no difference shown: {lead} ({facts})"


def _crashed(arm: str, scores: Sequence[Score]) -> str | None:
    errors = [score.error or "no score" for score in scores if score.value is None]
    return (
        f"{len(errors)} of {len(scores)} runs of {arm} crashed ({_first_line(errors[0])})" if errors else None
    )


def _row(arm: Arm, turn: int, run: Run, score: Score, folder: Path) -> Row:
    place = str(folder / run.dir)
    return Row(arm, turn, run.seed, score.value, score.se, score.n, run.seconds, score.error, place)


def _opening(bout: Bout) -> str:
    problem = bout.stage.environment
    return "\n".join(
        [
            f"A: {terminal.clean(bout.a.named)}{' (edited program)' if bout.a.edited else ''}",
            f"B: {terminal.clean(bout.b.named)}{' (edited program)' if bout.b.edited else ''}",
            f"{bout.runs} fresh runs of each in {problem.name}, of {problem.budget_seconds:g} s at most",
        ]
    )


def _line(arm: Arm, turn: int, run: Run, score: Score) -> str:
    head = f"{arm} {turn}  seed {run.seed:<10}  "
    if score.value is None:
        return f"{head}crash: {_first_line(score.error or 'no score')}"
    se = f" (se {number(score.se)} over {score.n})" if score.se is not None else ""
    return f"{head}{number(score.value)}{se}"


def _first_line(text: str) -> str:
    return terminal.clean(text.splitlines()[0]) if text else text

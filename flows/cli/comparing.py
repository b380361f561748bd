"""`nightshift compare A B`: fresh runs of one program and its configuration against fresh runs of another.

As in a certificate (tasks/stats/certificate.py), but two-sided. Every run is judged on units of its own: two programs
that are good at different questions would else be told apart by questions that they share. Those of a finite pool are
for `confirm`, so that no report question is used up. In runs/.comparisons/<environment>/0001/ are declaration.json,
declared before the first run, a fresh.json of each finished run, and in the end comparison.json and comparison.png.

The same command goes on with a comparison that was killed, and shows one that is over: whoever asks again and again
until a difference shows would find one. `--more` adds runs, under what is left of the error.
"""

from __future__ import annotations

import json
import random
import re
import statistics
import sys
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from pydantic import TypeAdapter

import environments
from environments.judges import BlockUnits, ComparisonBlock
from environments.plugins import Refused
from environments.score import Score
from environments.space import Value
from flows.cli import single_runs
from flows.cli.single_runs import FreshRun, Job, Question, Side, Stage
from flows.views import terminal
from flows.views.terminal import clean
from tasks.describe import in_short
from tasks.numbers import number, probability
from tasks.plots import canvas
from tasks.preparing import laid, read
from tasks.run_checks import one_training
from tasks.sandbox import outputs
from tasks.sandbox.isolation import Isolation
from tasks.stats.certificate import FEWEST
from tasks.stats.design import FIRST_SHARE, least_p
from tasks.stats.permutation import CONFIDENCE, Comparison, Group, compare
from tasks.store.ledger import measure
from tasks.system import file_trees
from tasks.system.files import write_atomic
from tasks.system.home import home
from tasks.system.redact import one_line

FOLDER, FILE = ".comparisons", "declaration.json"
LEVEL = 0.025
"""One-sided error of all looks; so much for either direction."""
RUNS = (5, 5)
"""Of each arm by default; FEWEST in a deterministic environment."""
ONE_RUN = ("ignores its seed", "learned nothing")
"""How the reasons begin for which all runs of an arm are one and the same."""
EXIT_CODES = {"better": 0, "not shown": 1, "worse": 3}
"""By the verdict, which is about A."""
ABOUT: dict[BlockUnits, list[str]] = {
    "fresh": [],
    "disjoint": ["each run was judged on questions of its own: this is about questions like those of the pool"],
    "same": ["all runs were judged on the same units: this is about these units, and may be otherwise on others"],
}
"""What the result is about, where that is not plain."""
Counts = tuple[int, int]


@dataclass(frozen=True)
class Declaration:
    """declaration.json."""

    overrides: dict[str, Value]
    sides: dict[str, Side]
    """A and B, as `a` and `b`."""
    digest: str
    """Of all that changes a score, and of both sides."""
    groups: tuple[tuple[Job, ...], ...] = ()
    levels: tuple[float, ...] = ()
    """One-sided error that may be spent by each group."""

    @property
    def jobs(self) -> list[Job]:
        return [job for group in self.groups for job in group]


DECLARATION = TypeAdapter(Declaration)


@dataclass(frozen=True)
class Match:
    """A declared comparison that can be run."""

    stage: Stage
    declared: Declaration

    def with_more(self, counts: Counts) -> Match:
        """Declare another group of runs, in an order in which the arms take turns at random; none where no further run
        can help. Raises Refused: the best result of all could not show a difference, or too few questions are left of a
        finite pool, which all runs share out.
        """
        known, problem = self.declared, self.stage.environment
        done = self.finished()
        if self.flaw(done) or len(done) < len(known.jobs):  # those that were declared come first
            return self
        draw, order = random.SystemRandom(), dict[Job, float]()
        for arm, count in zip(known.sides, counts, strict=True):
            mine = [job for job in known.jobs if job.arm == arm]
            for n in range(count):
                block, first = ComparisonBlock(1 + len(order), sum(counts)), mine[0] if len(mine) == 1 else None
                mine.append(Job(arm, 1 + len(mine), draw.randrange(2**31), draw.randrange(2**63), block, first))
                order[mine[-1]] = (n + draw.random()) / count
        level = (known.levels[-1] + LEVEL) / 2 if known.levels else FIRST_SHARE * LEVEL
        groups = (*known.groups, tuple(sorted(order, key=order.__getitem__)))
        arms = [(sum(job.arm == "a" for job in group), sum(job.arm == "b" for job in group)) for group in groups]
        too_few, enough = least_p(arms) > level, "4v4, 5v3"
        if problem.deterministic:
            too_few, enough = min(sum(a for a, _ in arms), sum(b for _, b in arms)) < FEWEST, f"{FEWEST}v{FEWEST}"
        if too_few:
            raise Refused(f"{counts[0]}v{counts[1]}: so few runs cannot show a difference: give {enough} or more")
        made = problem.prepared and read(problem.prepared)
        has = 0 if known.groups else made.questions.get("confirm", len(order)) if made else len(order)
        if problem.judge.block_units == "disjoint" and has < len(order):
            raise Refused(f"the pool for confirm has {has} questions left, and each of {len(order)} runs needs one")
        more = replace(self, declared=replace(known, groups=groups, levels=(*known.levels, level)))
        write_atomic(self.stage.folder / FILE, DECLARATION.dump_json(more.declared, indent=2).decode() + "\n")
        return more

    def play(self) -> dict[str, Any]:
        """Make the runs that are missing; the content of comparison.json. Refused if another process is at it."""
        try:
            with FileLock(self.stage.folder / "lock").acquire(0):
                self.stage.make(self.declared.jobs, self.flaw)
                document = self.document(self.finished())
                text = json.dumps(document, indent=2, allow_nan=False)
                write_atomic(self.stage.folder / "comparison.json", text + "\n")
                return document
        except Timeout:
            raise Refused(f"another process is running this comparison, {self.stage.folder}") from None

    def finished(self) -> list[FreshRun]:
        """The runs that were made."""
        return self.stage.finished(self.declared.jobs)

    def flaw(self, done: Sequence[FreshRun]) -> str:
        """Why no further run can help: a side never gets a score, or its runs are all one and the same."""
        root, problem = self.stage.folder.parent, self.stage.environment
        for arm in self.declared.sides:
            reasons = [one.score.error or "" for one in done if one.arm == arm]
            if len(reasons) >= FEWEST and all(reasons):
                return f"no run of {arm.upper()} has a score: {reasons[0]}"
            first = [(one.run, one.score) for one in done if one.arm == arm and one.number <= 2]
            reasons.append(one_training(root, problem.metric, first, [one.run for one in done if one.arm != arm]) or "")
            same = next((reason for reason in reasons if reason.startswith(ONE_RUN)), "")
            if same and not problem.deterministic:
                return f"{arm.upper()} {clean(in_short(same))}"
        return ""

    def document(self, done: Sequence[FreshRun]) -> dict[str, Any]:
        """What the runs show."""
        problem, known, flaw = self.stage.environment, self.declared, self.flaw(done)
        test = None if flaw else difference(self._groups(done), known.levels, problem.deterministic)
        scores = {arm: [one.score for one in done if one.arm == arm] for arm in known.sides}
        level, units = 2 * known.levels[-1], problem.judge.block_units
        shown, words = judged(
            test, [side.text for side in known.sides.values()], scores["a"], scores["b"], level, units
        )
        limit = problem.budget_seconds
        cut = Counter(one.arm.upper() for one in done if one.run.status == "finished" and one.run.seconds >= limit)
        if cut and "--" in problem.train_cmd.split():  # a script of the user's, which ends by itself
            counts = " and ".join(f"{cut[arm]} of {len(scores[arm.lower()])} runs of {arm}" for arm in sorted(cut))
            words += f"\n{counts} were ended at the limit of {limit:g} s, and are judged by what they had saved"
        sides = {}
        for arm, side in known.sides.items():
            values = [score.value for score in scores[arm] if score.value is not None]
            mean = statistics.fmean(values) if values else None
            sides[arm] = {"named": side.text, "params": side.params, "edited": side.edit is not None, "score": mean}
        return {
            **sides, "environment": problem.name, "metric": problem.metric, "direction": problem.direction,
            "runs": [{"arm": one.arm.upper(), "number": one.number, **self.stage.facts(one)} for one in done],
            **{key: test and getattr(test, key) for key in ("gain", "low", "high", "p")},
            "level": level, "verdict": shown, "units": units,
            "words": f"nothing to compare: {flaw}" if flaw else words, "directory": str(self.stage.folder),
        }  # fmt: skip

    def _groups(self, done: Sequence[FreshRun]) -> list[Group]:
        """The utilities of both arms, by the group that brought them; crashed runs are left out."""
        known = {(one.arm, one.number): one.score.utility for one in done if one.score.n}
        keys = [[(job.arm, job.number) for job in jobs] for jobs in self.declared.groups]
        a, b = ([[known[key] for key in group if key[0] == arm and key in known] for group in keys] for arm in "ab")
        return [*zip(a, b, strict=True)]


def difference(groups: Sequence[Group], levels: Sequence[float], deterministic: bool = False) -> Comparison | None:
    """A against B with a two-sided interval and p; None where an arm has too few scores.

    Args:
        deterministic: Whether equal runs score the same, so that runs without any spread prove something.
    """
    if min(sum(len(group[arm]) for group in groups) for arm in (0, 1)) < FEWEST:
        return None
    one, other = (compare(each, levels, deterministic) for each in (groups, [(b, a) for a, b in groups]))
    high = None if other.low is None else -other.low
    return Comparison(one.gain, one.low, high, min(2 * min(one.p, other.p), 1.0))


def judged(
    test: Comparison | None, names: Sequence[str], a: Sequence[Score], b: Sequence[Score], level: float,
    units: BlockUnits,
) -> tuple[str, str]:  # fmt: skip
    """Whether A is `better`, `worse` or `not shown`; in words: by how much at least, what that is about, which runs
    crashed. Of a side with a crashed run only its lucky runs are known: it is not shown to be better.
    """
    crashes = {
        arm: f"{len(why)} of {len(scores)} runs of {arm} crashed ({clean(in_short(why[0] or 'no score'))})"
        for arm, scores in (("A", a), ("B", b))
        if (why := [score.error for score in scores if score.value is None])
    }
    if test is None:
        return "not shown", "\n".join(["nothing to compare: each side needs two runs with a score", *crashes.values()])
    is_a, gain = test.gain >= 0, number(abs(test.gain))
    ahead, (winner, loser) = ("A", names) if is_a else ("B", names[::-1])
    counts = " v ".join(str(sum(score.value is not None for score in arm)) for arm in (a, b))
    facts, least = f"{counts} fresh runs, {probability(test.p)} two-sided", ""
    if test.low is not None and test.high is not None:
        low, high = map(number, (test.low, test.high) if is_a else (-test.high, -test.low))
        facts, least = f"{100 * CONFIDENCE:.0f} % interval {low}..{high}, {facts}", f", at least {low}"
    lead = f"{ahead} is ahead by {gain}" if test.gain else "both have the same mean"
    shown, first = "not shown", f"no difference shown: {lead} ({facts})"
    if test.p <= level and test.gain and ahead not in crashes:
        shown = "better" if is_a else "worse"
        first = f"{ahead} is better by {gain}{least} ({facts}): {clean(winner)} beats {clean(loser)}"
    biased = [f"{line}: it is compared without them, which favours it" for line in crashes.values()]
    return shown, "\n".join([first, *ABOUT[units], *biased])


def draw(document: Mapping[str, Any], folder: Path) -> Path:
    """A picture of the runs and their means, in this folder; the folder itself while there is no score."""
    runs = [run for run in document["runs"] if run["score"] is not None]
    if not runs:
        return folder
    with canvas.styled():
        figure = canvas.blank(7.0, 2.6)
        axes = figure.subplots()
        rows = [-"AB".index(run["arm"]) for run in runs]
        axes.plot([run["score"] for run in runs], rows, "o", color=canvas.GREY, alpha=0.7)
        for row, arm in enumerate("ab"):
            axes.plot([document[arm]["score"]], [-row], "|", color=canvas.GREEN, markersize=26, markeredgewidth=3)
        axes.set_yticks([0, -1], [one_line(f"{arm.upper()}: {document[arm]['named']}", 40) for arm in "ab"])
        axes.set_ylim(-1.6, 0.6)
        axes.set_xlabel(one_line(f"{document['metric']} of each fresh run; green: the mean", 100))
        title = textwrap.fill(one_line(document["words"].partition("\n")[0], 300), 110)
        figure.suptitle(title, x=0.01, ha="left", fontsize=8)
        content = canvas.png(figure)
    write_atomic(folder / "comparison.png", content)
    return folder / "comparison.png"


def declare(question: Question, counts: Counts | None, isolation: Isolation) -> Match:
    """The comparison of two sides: the one that was declared, if there is one of the same under the same conditions.
    Raises Refused: a side cannot be run there, or so few or so many runs are of no use; nothing is left then.
    """
    with single_runs.set_up(question, FOLDER, isolation) as stage:
        folder, problem = stage.folder, stage.environment
        sides = [
            (side.params, side.edit, side.program and outputs.digest(side.program)) for side in stage.sides.values()
        ]
        digest = measure(folder, problem, {"sides": sides, "overrides": question.overrides})
        for file in sorted(folder.parent.glob(f"*/{FILE}"), reverse=True):
            known = DECLARATION.validate_json(file.read_bytes())
            if known.digest == digest and not (earlier := reopen(file.parent, isolation)).flaw(earlier.finished()):
                file_trees.remove(folder)
                has = Counter(job.arm for job in earlier.declared.jobs)
                if counts and (counts[0] > has["a"] or counts[1] > has["b"]):
                    raise Refused(f"they were compared with {has['a']}v{has['b']} runs: --more 4 adds four each")
                return earlier
        new = Declaration(question.overrides, {**stage.sides}, digest)
        return Match(stage, new).with_more(counts or ((FEWEST, FEWEST) if problem.deterministic else RUNS))


def reopen(folder: Path, isolation: Isolation) -> Match:
    """A comparison that was declared."""
    known = DECLARATION.validate_json((folder / FILE).read_bytes())
    environment = laid(environments.load(folder / "environment", known.overrides, folder.parent.name), home())
    return Match(single_runs.stage_in(folder, environment, known.sides, isolation), known)


def newest() -> Path:
    """The folder of the last comparison. Refused if there is none."""
    files = sorted((home() / FOLDER).glob(f"*/*/{FILE}"), key=lambda path: path.stat().st_mtime)
    if not files:
        raise Refused("there is no comparison yet: give two sides (see nightshift compare --help)")
    return files[-1].parent


def parse_runs(text: str) -> Counts:
    """`5v3`, or `5` for five of each."""
    counts = re.fullmatch(r"([1-9]\d?)(?:v([1-9]\d?))?", text)
    if not counts:
        raise Refused(f"{text!r} is no number of runs: give 5 for five of each side, or 5v3")
    return int(counts[1]), int(counts[2] or counts[1])


def show(match: Match, as_json: bool) -> int:
    """Make the runs that are missing, and say what all of them show; the exit code."""
    stage = match.stage
    for arm, side in match.declared.sides.items():
        print(f"{arm.upper()}: {clean(side.text)}", file=sys.stderr)
    if missing := len(match.declared.jobs) - len(match.finished()):
        each = f"of {stage.environment.budget_seconds:g} s at most, {len(stage.slots.parts)} at a time"
        print(f"{missing} fresh runs in {stage.environment.name}, {each}", file=sys.stderr)
    document = match.play()
    lines = [*map(clean, document["words"].splitlines())]
    is_used_up = stage.environment.judge.block_units == "disjoint"
    if document["gain"] is not None and document["verdict"] == "not shown" and not is_used_up:
        lines.append("more runs of both may show one: nightshift compare --more 4")
    terminal.tell(document, "\n".join([*lines, f"see {draw(document, stage.folder)}"]), as_json)
    return EXIT_CODES[document["verdict"]]

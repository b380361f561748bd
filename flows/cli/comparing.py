"""`nightshift compare A B`: fresh runs of one program and its configuration against fresh runs of another.

As in a certificate (tasks/stats/certificate.py), but two-sided. Every run is judged on units of its own: two programs
that are good at different questions would else be told apart by questions that they share. Those of a finite pool are
for `confirm`, so that no report question is used up. Everything is in runs/.comparisons/<environment>/0001/:

    match.json        what is compared, declared before the first run; more runs are added to it
    environment/, program/, trials/a-1/ ...    each finished run has a fresh.json
    comparison.json, comparison.png            rewritten after every run

The same command goes on with a comparison that was killed, and shows one that is over: whoever asks again and again
until a difference shows would find one. `--more` adds runs, under what is left of the error.
"""

from __future__ import annotations

import json
import random
import secrets
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from pydantic import TypeAdapter

import environments
from environments import Environment
from environments.judges import ComparisonBlock
from environments.plugins import Refused
from environments.score import Score
from environments.space import Value
from flows.cli import comparison_words, consent, own_script, sides, single_runs
from flows.cli.own_script import OwnScript
from flows.cli.set_option import overrides_only
from flows.cli.single_runs import Arm, Draw, FreshRun, Side, Stage
from flows.views import terminal
from tasks.recipes import output
from tasks.recipes.preparing import laid
from tasks.run_checks import same_play, same_weights
from tasks.stats.certificate import FEWEST
from tasks.stats.design import FIRST_SHARE, Groups, least_p
from tasks.stats.permutation import Comparison, Group, compare
from tasks.store.ledger import Ledger, measure
from tasks.store.seeds import derive
from tasks.system import file_trees, interrupt
from tasks.system.files import write_atomic
from tasks.system.home import home
from tasks.trial import Run

FOLDER = ".comparisons"
RUNS = (5, 5)
"""Of each arm by default; FEWEST in a deterministic environment."""
LEVEL = 0.025
"""One-sided error of all looks; so much for either direction."""
WORSE = 3
"""Exit code where A was shown to be worse; 0 better, 1 neither."""
CRASHED = "no run of "
POLL_SECONDS = 0.2
Counts = tuple[int, int]
FRESH = TypeAdapter(FreshRun)


@dataclass(frozen=True)
class Declaration:
    """match.json."""

    environment: str
    overrides: dict[str, Value]
    names: tuple[str, str]
    """The sides as they were named."""
    arms: tuple[Arm, Arm]
    digest: str
    """Of all that changes a score, and of both sides."""
    seed: int
    """Of the training seeds and of the order, not of the judge's units."""
    units: int
    """From which the judge's units are derived."""
    groups: Groups
    """Runs of both arms after each group, those of earlier groups included."""
    levels: tuple[float, ...]
    """One-sided error that may be spent by each."""

    def with_more(self, counts: Counts, deterministic: bool) -> Declaration:
        """With another group of runs. Refused where the best result of all could not show a difference."""
        last = self.groups[-1] if self.groups else (0, 0)
        spent = self.levels[-1] if self.levels else None
        level = FIRST_SHARE["one"] * LEVEL if spent is None else (spent + LEVEL) / 2
        groups = (*self.groups, (last[0] + counts[0], last[1] + counts[1]))
        least, before = 1.0, (0, 0)
        for group in groups:
            least, before = least * least_p((group[0] - before[0], group[1] - before[1])), group
        few = min(groups[-1]) < FEWEST if deterministic else least > level or min(counts) < 1
        if few:
            needs = f"{FEWEST} of each side are enough" if deterministic else "give 4v4, 5v3 or more"
            raise Refused(f"{counts[0]}v{counts[1]}: so few runs cannot show a difference: {needs}")
        return replace(self, groups=groups, levels=(*self.levels, level))


DECLARATION = TypeAdapter(Declaration)


@dataclass(frozen=True)
class Match:
    """A declared comparison that can be run."""

    stage: Stage
    declared: Declaration

    @cached_property
    def root(self) -> Path:
        return self.stage.folder.parent

    @property
    def is_over(self) -> bool:
        return not self.missing or self.is_broken

    @property
    def is_broken(self) -> bool:
        """Whether its runs cannot be compared."""
        return bool(self._flaw([*self._finished()]))

    @property
    def missing(self) -> list[tuple[Arm, int]]:
        """The runs that are still to be made."""
        return self._missing([*self._finished()])

    def play(self, say: Callable[[str], None]) -> dict[str, Any]:
        """Make the runs that are missing, side by side in the slots of this machine; the content of comparison.json.

        Raises:
            Refused: another process is at it.
            ChildProcessError: no process could be started.
        """
        done, folder = [*self._finished()], self.stage.folder
        document = self.document(done)
        with _locked(folder), interrupt.deferred(), self._workers() as pool:
            siblings: dict[str, list[Run]] = {arm.name: [] for arm in self.declared.arms}
            for one in done:
                siblings[one.arm].append(one.run)
            due = [] if self._flaw(done) else self._missing(done)
            running = {pool.submit(self._run, arm, number, siblings[arm.name]) for arm, number in due}
            while running and not self._flaw(done):
                for future in self._wait(running):
                    running.discard(future)
                    one = future.result()
                    write_atomic(self._file(one.arm, one.number), FRESH.dump_json(one).decode() + "\n")
                    siblings[one.arm].append(one.run)
                    done.append(one)
                    document = self.document(done)
                    write_atomic(folder / "comparison.json", json.dumps(document, indent=2, allow_nan=False) + "\n")
                    say(f"{one.arm.upper()} {one.number}  seed {one.run.seed:<10}  {single_runs.score_text(one.score)}")
        return document

    @contextmanager
    def _workers(self) -> Iterator[ThreadPoolExecutor]:
        """As many threads as this machine has slots; what still runs at the end of the block is ended."""
        pool = ThreadPoolExecutor(len(self.stage.slots.parts))
        try:
            yield pool
        finally:
            with interrupt.asked():
                pool.shutdown(cancel_futures=True)

    def _wait(self, running: set[Future[FreshRun]]) -> set[Future[FreshRun]]:
        while not (done := wait(running, POLL_SECONDS, FIRST_COMPLETED).done):
            interrupt.check()
        return done

    def _file(self, arm: str, number: int) -> Path:
        return self.stage.dir(arm, number).path / "fresh.json"

    def _finished(self) -> Iterator[FreshRun]:
        for arm, number in self._plan():
            if (file := self._file(arm.name, number)).is_file():
                yield FRESH.validate_json(file.read_bytes())

    def _plan(self) -> Iterator[tuple[Arm, int]]:
        """All runs, group by group, each in an order in which the arms take turns at random."""
        before = (0, 0)
        for at, group in enumerate(self.declared.groups):
            draw, places = random.Random(derive(self.declared.seed, "order", at, 1)), []
            for arm, start, end in zip(self.declared.arms, before, group, strict=True):
                numbers = range(start + 1, end + 1)
                places += [((n - start - draw.random()) / len(numbers), arm.name, arm, n) for n in numbers]
            yield from ((arm, number) for _, _, arm, number in sorted(places, key=lambda place: place[:2]))
            before = group

    def _missing(self, done: Sequence[FreshRun]) -> list[tuple[Arm, int]]:
        have = {(one.arm, one.number) for one in done}
        return [(arm, number) for arm, number in self._plan() if (arm.name, number) not in have]

    def _run(self, arm: Arm, number: int, siblings: Sequence[Run]) -> FreshRun:
        seed = derive(self.declared.seed, "train", number, 1, arm.name)
        same = self.stage.environment.judge.block_units == "same"
        echo = self._draw(arm, 1) if number == 2 and not same else None
        one = self.stage.run(arm, number, seed, self._draw(arm, number), siblings, echo)
        return replace(one, score=replace(one.score, echo=one.score.units)) if same else one

    def _draw(self, arm: Arm, number: int) -> Draw:
        """The units of a run. Those of a finite pool are shared out over all runs."""
        at = 1 + next(at for at, (each, n) in enumerate(self._plan()) if (each.name, n) == (arm.name, number))
        block = ComparisonBlock(at, sum(self.declared.groups[-1]))
        return Draw(derive(self.declared.units, "confirm", number, 1, arm.name), "confirm", block)

    def _flaw(self, done: Sequence[FreshRun]) -> str:
        """Why no further run can help: an arm's runs are all one and the same, or it never gets a score."""
        first = {one.arm: one for one in done if one.number == 1}
        metric, deterministic = self.stage.environment.metric, self.stage.environment.deterministic
        for arm in self.declared.arms:
            mine = [one for one in done if one.arm == arm.name]
            if len(mine) >= FEWEST and all(one.score.value is None for one in mine):
                return f"{CRASHED}{arm.name.upper()} has a score: {terminal.clean(mine[0].score.error or '')}"
            if deterministic or arm.name not in first:
                continue
            one, others = first[arm.name], [each for each in mine if each.number == 2]
            strangers = [self.root / each.run.dir / "out" for each in first.values() if each.arm != arm.name]
            for other in others:
                folders = [self.root / each.run.dir / "out" for each in (one, other)]
                pair = (other.run, other.score), (one.run, one.score)
                reason = (
                    same_play(self.root, metric, *pair)
                    or same_weights(folders[0], folders[1], strangers)
                    or other.score.error
                )
                if reason and reason.startswith(("ignores its seed", "learned nothing")):
                    return f"{arm.name.upper()} {single_runs.first_line(replace(other.score, error=reason))}"
        return ""

    def document(self, done: Sequence[FreshRun]) -> dict[str, Any]:
        """The runs so far. There is no comparison until the last one is over."""
        places = {(arm.name, number): at for at, (arm, number) in enumerate(self._plan())}
        done = sorted(done, key=lambda one: places[one.arm, one.number])
        problem, declared, flaw = self.stage.environment, self.declared, self._flaw(done)
        a, b = ([one.score for one in done if one.arm == arm.name] for arm in declared.arms)
        found = None if flaw or self._missing(done) else self._difference(done)
        verdict = comparison_words.verdict(found, a, b, 2 * declared.levels[-1])
        units = problem.judge.block_units
        if flaw:
            words = f"nothing to compare: {flaw}"
        elif self._missing(done):
            words = "not over yet"
        else:
            words = comparison_words.sentence(found, verdict, declared.names, a, b, units)
        return {
            **{
                arm.name: {
                    "named": name, "params": arm.proposal.params, "edited": arm.proposal.edit is not None,
                    "score": _mean(scores),
                }
                for arm, name, scores in zip(declared.arms, declared.names, (a, b), strict=True)
            },
            "environment": problem.name, "metric": problem.metric, "direction": problem.direction,
            "seed": declared.seed,
            "runs": [
                {"arm": one.arm.upper(), "number": one.number, **self.stage.facts(one.run, one.score)} for one in done
            ],
            **{key: found and getattr(found, key) for key in ("gain", "low", "high", "p")},
            "level": 2 * declared.levels[-1], "verdict": verdict, "units": units, "words": words,
            "directory": str(self.stage.folder),
        }  # fmt: skip

    def _difference(self, done: Sequence[FreshRun]) -> Comparison | None:
        groups, before = list[Group](), (0, 0)
        for group in self.declared.groups:
            mine, theirs = (
                [one.score.utility for one in done if one.arm == arm.name and start < one.number <= end and one.score.n]
                for arm, start, end in zip(self.declared.arms, before, group, strict=True)
            )
            groups.append((mine, theirs))
            before = group
        return difference(groups, self.declared.levels, self.stage.environment.deterministic)


def difference(groups: Sequence[Group], levels: Sequence[float], deterministic: bool = False) -> Comparison | None:
    """A against B with a two-sided interval and p; None where an arm has too few scores.

    Args:
        groups: Utilities of both arms in each group of runs; crashed runs are left out.
        levels: One-sided error that may be spent by each.
        deterministic: Whether equal runs score the same, so that runs without any spread prove something.
    """
    first, second = ([value for group in groups for value in group[arm]] for arm in (0, 1))
    if min(len(first), len(second)) < FEWEST:
        return None
    one, other = compare(groups, levels), compare([(b, a) for a, b in groups], levels)
    if deterministic and len(set(first)) == len(set(second)) == 1:
        return Comparison(one.gain, one.gain, one.gain, float(not one.gain))
    high = None if other.low is None else -other.low
    return Comparison(one.gain, one.low, high, min(2 * min(one.p, other.p), 1.0))


def run(
    a: str | None, b: str | None, script: OwnScript | None, study: str | None, on: str | None, runs: str, more: str,
    settings: list[str], trust: bool, seed: int | None, isolation: str, allow_unsandboxed: bool, as_json: bool,
) -> int:  # fmt: skip
    """Run both sides and say which is better: 0: A is, 3: B is, 1: neither was shown."""
    counts = parse_runs(runs) if runs else None
    own = own_script.of_study(study, b) if study else [(a, a), (b, b)] if a and b else None
    if own is None:
        if a or b or script or on:
            raise Refused("give both sides: --a and --b, files or JSON of parameters, or two names (see --help)")
        match = opened(_newest(), isolation, allow_unsandboxed)
    elif script:
        with tempfile.TemporaryDirectory() as draft:
            folder = Path(draft) / script.folder.name
            both = script.write(folder, own)
            environment = own_script.load(folder, overrides_only(settings))
            match = declared(environment, None, both, counts, settings, seed, isolation, allow_unsandboxed)
    else:
        named = [sides.parse(arm, text) for arm, (text, _) in zip("ab", own, strict=True)]
        if campaign := sides.certified_campaign(named, on):
            return _certify(campaign, counts, more, trust, as_json)
        if on:
            consent.ask_about(on, overrides_only(settings), trust)
        match = prepare(named, on, counts, settings, seed, isolation, allow_unsandboxed)
    if more:
        match = with_more(match, parse_runs(more))
    return _show(match, as_json)


def own(train: str, evaluate: str, minutes: float, minimize: bool) -> OwnScript | None:
    """The user's own script, if one is named."""
    if bool(train) != bool(evaluate):
        raise Refused("--train and --eval belong together: give both commands")
    if not train:
        return None
    if not 0 < minutes <= 60 * 24 * 7:
        raise Refused(f"--minutes {minutes:g}: give the minutes that one training may take")
    return OwnScript(train, evaluate, Path.cwd(), minutes, minimize)


def _certify(campaign: str, counts: Counts | None, more: str, trust: bool, as_json: bool) -> int:
    """A campaign's champion against its own baseline: that is its certificate, whose runs count together."""
    from flows.cli import foreground

    single_runs.print_aside(f"{campaign}'s champion against its baseline: these runs count with those of `certify`")
    each = max(parse_runs(more) if more else counts or (0,)) or None
    return foreground.certify(campaign, None, each, "", trust, None, as_json)


def _show(match: Match, as_json: bool) -> int:
    if not as_json:
        for name, arm in zip(match.declared.names, match.declared.arms, strict=True):
            edited = " (edited program)" * (arm.proposal.edit is not None)
            print(f"{arm.name.upper()}: {terminal.clean(name)}{edited}")
        problem = match.stage.environment
        slots, each = len(match.stage.slots.parts), f"of {problem.budget_seconds:g} s at most"
        if not match.is_over:
            print(f"{len(match.missing)} fresh runs in {problem.name}, {each}, {slots} at a time", flush=True)
    document = match.play(lambda line: None if as_json else print(line, flush=True))
    picture = comparison_words.draw(document, match.stage.folder / "comparison.png")
    if as_json:
        terminal.print_json(document)
    else:
        print("\n".join([*comparison_words.strip(document), document["words"]]))
        if document["gain"] is not None and document["verdict"] == "not shown":
            print("more runs of both may show one: nightshift compare --more 4")
        elif CRASHED in document["words"] and match.stage.isolation.level != "none":
            print("if it needs what the sandbox withholds, --isolation none runs it as you, without one")
        print(f"see {picture or document['directory']}")
    return {"better": 0, "worse": WORSE}.get(document["verdict"], 1)


def parse_runs(text: str) -> Counts:
    """`5v3`, or `5` for five of each."""
    first, v, second = text.partition("v")
    try:
        counts = int(first), int(second if v else first)
    except ValueError:
        counts = 0, 0
    if not all(0 < count <= 100 for count in counts):
        raise Refused(f"{text!r} is no number of runs: give 5 for five of each side, or 5v3")
    return counts


def prepare(
    named: Sequence[tuple[Side, Ledger | None]], on: str | None, runs: Counts | None, settings: list[str],
    seed: int | None, isolation: str, allow_unsandboxed: bool,
) -> Match:  # fmt: skip
    """The comparison of two sides in an environment. Refused if a side cannot be run in it; nothing is left then."""
    environment, baseline = sides.common_environment([ledger for _, ledger in named if ledger], on, settings)
    both = [side for side, _ in named]
    return declared(environment, baseline, both, runs, settings, seed, isolation, allow_unsandboxed)


def declared(
    environment: Environment, baseline: Path | None, both: Sequence[Side], runs: Counts | None, settings: list[str],
    seed: int | None, isolation: str, allow_unsandboxed: bool,
) -> Match:  # fmt: skip
    """The comparison, as it was declared if there is one of the same sides under the same conditions."""
    parent = home() / FOLDER / environment.name
    with single_runs.set_up(environment, baseline, both, parent, isolation, allow_unsandboxed) as (stage, arms):
        facts = [(arm.proposal.params, arm.proposal.edit, arm.program != stage.folder / "program") for arm in arms]
        digest = measure(stage.folder, stage.environment, {"sides": facts, "overrides": overrides_only(settings)})
        default = (FEWEST, FEWEST) if environment.deterministic else RUNS
        new = Declaration(
            environment.name, overrides_only(settings), (both[0].text, both[1].text), (arms[0], arms[1]), digest,
            secrets.randbelow(2**31) if seed is None else seed, secrets.randbelow(2**63), (), (),
        ).with_more(runs or default, environment.deterministic)  # fmt: skip
        _check_pool(stage.environment, new)
        earlier = _same(parent, digest) if seed is None else None
        if earlier and not (match := opened(earlier, isolation, allow_unsandboxed)).is_broken:
            file_trees.remove(stage.folder)
            return match
        _write(stage.folder, new)
    return Match(stage, new)


def opened(folder: Path, isolation: str, allow_unsandboxed: bool) -> Match:
    """A comparison that was declared."""
    known = DECLARATION.validate_json((folder / "match.json").read_bytes())
    environment = laid(environments.load(folder / "environment", known.overrides, known.environment), home())
    edited = any(arm.proposal.edit for arm in known.arms)
    return Match(single_runs.stage_in(folder, environment, isolation, allow_unsandboxed, edited), known)


def with_more(match: Match, counts: Counts) -> Match:
    """With another group of runs. Refused where the first ones are not made yet, or share out a finite pool."""
    problem = match.stage.environment
    if problem.judge.block_units == "disjoint":
        raise Refused("--more: the runs have shared out all questions of the pool: make more of them, or compare anew")
    if not match.is_over:
        return match
    more = match.declared.with_more(counts, problem.deterministic)
    _write(match.stage.folder, more)
    return replace(match, declared=more)


def _write(folder: Path, declaration: Declaration) -> None:
    write_atomic(folder / "match.json", DECLARATION.dump_json(declaration, indent=2).decode() + "\n")


def _newest() -> Path:
    found = sorted((home() / FOLDER).glob("*/*/match.json"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise Refused("there is no comparison yet: give two sides (see nightshift compare --help)")
    return found[-1].parent


def _same(parent: Path, digest: str) -> Path | None:
    """The newest comparison of the same sides under the same conditions."""
    for file in sorted(parent.glob("*/match.json"), reverse=True):
        if DECLARATION.validate_json(file.read_bytes()).digest == digest:
            return file.parent
    return None


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        with FileLock(folder / "lock").acquire(0):
            yield
    except Timeout:
        raise Refused(f"another process is running this comparison, {folder}") from None


def _check_pool(environment: Environment, declaration: Declaration) -> None:
    """Refuse more runs than a finite pool has questions: each takes some of its own."""
    if environment.judge.block_units != "disjoint" or environment.prepared is None:
        return
    made, runs = output.read(environment.prepared), sum(declaration.groups[-1])
    if made and (has := made.questions.get("confirm")) is not None and has < runs:
        raise Refused(f"the pool for confirm has {has} questions, and each of {runs} runs needs one: give fewer --runs")


def _mean(scores: Sequence[Score]) -> float | None:
    values = [score.value for score in scores if score.value is not None]
    return statistics.fmean(values) if values else None

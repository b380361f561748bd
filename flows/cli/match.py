"""A declared comparison of two arms: its runs, side by side, and what they show. See comparing.py for its files."""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from pydantic import TypeAdapter

from environments.judges import ComparisonBlock
from environments.plugins import Refused
from environments.score import Score
from environments.space import Value
from flows.cli import comparison_words, single_runs
from flows.cli.single_runs import Arm, Draw, FreshRun, Stage
from tasks.run_checks import same_play, same_weights
from tasks.stats.certificate import FEWEST
from tasks.stats.design import FIRST_SHARE, Groups, least_p
from tasks.stats.permutation import Comparison, Group, compare
from tasks.store.seeds import derive
from tasks.system import interrupt
from tasks.system.files import write_atomic
from tasks.trial import Run

LEVEL = 0.025
"""One-sided error of all looks; so much for either direction."""
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
        root, problem = self.stage.folder.parent, self.stage.environment
        for arm in self.declared.arms:
            mine = [one for one in done if one.arm == arm.name]
            if len(mine) >= FEWEST and all(one.score.value is None for one in mine):
                return f"{CRASHED}{arm.name.upper()} has a score: {mine[0].score.error}"
            if problem.deterministic or arm.name not in first:
                continue
            one, others = first[arm.name], [each for each in mine if each.number == 2]
            strangers = [root / each.run.dir / "out" for each in first.values() if each.arm != arm.name]
            for other in others:
                folders = [root / each.run.dir / "out" for each in (one, other)]
                pair = (other.run, other.score), (one.run, one.score)
                reason = (
                    same_play(root, problem.metric, *pair)
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


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        with FileLock(folder / "lock").acquire(0):
            yield
    except Timeout:
        raise Refused(f"another process is running this comparison, {folder}") from None


def _mean(scores: Sequence[Score]) -> float | None:
    values = [score.value for score in scores if score.value is not None]
    return statistics.fmean(values) if values else None

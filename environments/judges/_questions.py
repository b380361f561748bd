"""Questions of a text judge: the pools made by a recipe, the draws from them, and what was answered.

A pool is a file of JSON lines, `{"id": "0123456789abcdef", "question": "...", "answer": "...", "source": "..."}`,
where `source` is in all lines or in none. Judgements of one purpose share a pool. Each line is a question, in one pool
alone: the recipe's output was checked (tasks/recipes/output.py).
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from environments.judges import ComparisonBlock, Misbehaved, Use
from environments.judges._talk import Completed
from environments.judges._taskset import Taskset
from environments.recipe import JUDGE
from environments.score import Score

ANSWERS = "answers.jsonl"


@dataclass(frozen=True)
class Question:
    """One line of a pool."""

    id: str
    place: int
    """Its line in the pool, from 0; the taskset makes the prompt of it."""
    source: str = ""
    """Empty if the pool has no sources."""
    text: str = ""
    answer: object = ""
    """The expected one."""


def pool_file(prepared: Path, use: Use) -> Path:
    """The pool for one purpose; `control` uses the search's."""
    return prepared / JUDGE / f"{'search' if use == 'control' else use}.jsonl"


def pool(file: Path) -> tuple[Question, ...]:
    """The questions of a pool, in order. Raises ValueError: it is missing, or not all have a source."""
    if not file.is_file():
        raise ValueError(f"{file.name} is missing: the recipe makes it (`nightshift env prepare`)")
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").removesuffix("\n").split("\n")]
    questions = tuple(
        Question(row["id"], at, row.get("source", ""), row["question"], row["answer"]) for at, row in enumerate(rows)
    )
    if len(sources := {question.source for question in questions}) > 1 and "" in sources:
        raise ValueError(f"{file.name} has questions with a source and without: give all of them one, or none")
    return questions


def share(questions: Sequence[Question], block: ComparisonBlock | None) -> tuple[Question, ...]:
    """The questions of one block: disjoint shares of a pool, equally large up to one, of each source.

    Raises ValueError: there are fewer questions than blocks.
    """
    if block is None:
        return tuple(questions)
    rng = np.random.default_rng(block.of)  # a pool may be ordered by subject
    shares: list[Question] = []
    for source, own in _by_source(questions, rng).items():
        if len(own) < block.of:
            raise ValueError(f"its pool has {len(own)} questions{_of(source)} for {block.of} blocks: make more of them")
        shares += own[block.number - 1 :: block.of]
    return tuple(shares)


def evenly(questions: Sequence[Question]) -> int:
    """The most questions that can be asked, equally many of each source."""
    return len({question.source for question in questions}) * rarest(questions)


def rarest(questions: Sequence[Question]) -> int:
    """How many questions the source has that has the fewest."""
    return min(Counter(question.source for question in questions).values())


def draw(questions: Sequence[Question], many: int, seed: np.random.SeedSequence) -> list[Question]:
    """`many` questions in random order, 0 for all; from several sources equally many, up to one.

    Raises ValueError: there are fewer.
    """
    parts = _by_source(questions, np.random.default_rng(seed))
    if 0 < many < len(parts):
        raise ValueError(f"its pool has {len(parts)} sources, and questions = {many}: ask at least one of each")
    drawn: list[Question] = []
    for at, (source, own) in enumerate(parts.items()):
        size = many // len(parts) + (at < many % len(parts)) if many else len(own)
        if len(own) < size:
            raise ValueError(f"its pool has {len(own)} questions{_of(source)}, and {size} are to be asked")
        drawn += own[:size]
    return drawn


def weights(questions: Iterable[Question], stated: Mapping[str, float]) -> dict[str, float]:
    """The weight of each source, equal if none are stated; empty without sources.

    Raises ValueError: the stated weights are for other sources.
    """
    sources = sorted({question.source for question in questions} - {""})
    if stated and sorted(stated) != sources:
        raise ValueError(
            f"its pool has the sources {', '.join(sources) or 'none'}, the weights in [text.sources] are for "
            f"{', '.join(sorted(stated))}: give a weight to every source and to nothing else"
        )
    return dict(stated) or dict.fromkeys(sources, 1.0)


def _by_source(questions: Sequence[Question], rng: np.random.Generator) -> dict[str, list[Question]]:
    """The questions of each source in random order."""
    shuffled = [questions[index] for index in rng.permutation(len(questions))]
    sources = sorted({question.source for question in questions})
    return {source: [question for question in shuffled if question.source == source] for source in sources}


def _of(source: str) -> str:
    return f" of source {source!r}" if source else ""


@dataclass(frozen=True)
class Answers:
    """What was answered to some questions under one kind of sampling, and the reward of each completion."""

    questions: Sequence[Question]
    completed: Sequence[Completed]
    rewards: Sequence[Sequence[float]]

    @classmethod
    def scored(cls, taskset: Taskset, questions: Sequence[Question], completed: Sequence[Completed]) -> Answers:
        """Raises Misbehaved: a reward cannot be computed."""
        both = zip(questions, completed, strict=True)
        rewards = iter(taskset.rewards([(question.place, text) for question, one in both for text in one.texts]))
        return cls(questions, completed, [[next(rewards) for _ in one.texts] for one in completed])

    @property
    def failures(self) -> str:
        """How many questions could not be completed, and why the first was not; empty if all were.

        The mean over the others would be another measure.
        """
        both = zip(self.questions, self.completed, strict=True)
        if not (failed := [f"({question.id}): {one.error}" for question, one in both if one.error]):
            return ""
        return f"{len(failed)} of {len(self.questions)} questions could not be completed, the first {failed[0]}"

    def score(self, weights: Mapping[str, float], higher_is_better: bool) -> Score:
        """The score of these questions; each unit is the mean over a question's completions.

        Raises Misbehaved: some have none.
        """
        if self.failures:
            raise Misbehaved(self.failures)
        units = [math.fsum(some) / len(some) for some in self.rewards]
        if not weights:
            return Score.of(units, higher_is_better)
        by_source = {
            source: [unit for unit, question in zip(units, self.questions, strict=True) if question.source == source]
            for source in sorted(weights)
        }
        return Score.of_sources(by_source, weights, higher_is_better)


def store(path: Path, kinds: Mapping[str, Answers]) -> None:
    """Write each question with what was answered to it, by kind of sampling, one per line; replaces an old file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW  # the folder may belong to a program, too
    with os.fdopen(os.open(temporary, flags, 0o600), "w") as file:
        for at, question in enumerate(kinds["sampled"].questions):
            row: dict[str, object] = {"question": question.id, "text": question.text, "expected": question.answer}
            row |= {"source": question.source} if question.source else {}
            row |= {kind: _record(answers.completed[at], answers.rewards[at]) for kind, answers in kinds.items()}
            file.write(json.dumps(row) + "\n")
    temporary.replace(path)


def _record(completed: Completed, rewards: Sequence[float]) -> dict[str, object]:
    if completed.error:
        return {"error": completed.error}
    return {
        "completions": list(completed.texts), "rewards": list(rewards), "tokens": completed.tokens,
        "truncated": completed.truncated,
    }  # fmt: skip
